"""`geval gate`: an exit code by the scores of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from geval.cli.run_argument import RunName


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("gate")(gate)


def gate(
    run: RunName,
    fail_under: Annotated[
        float, typer.Option("--fail-under", help="Least score, 0 to 1.", show_default=False)
    ],
    on: Annotated[
        str, typer.Option("--on", help="What must reach it: mean, row or criterion.")
    ] = "mean",
    max_unscored: Annotated[
        float, typer.Option("--max-unscored", help="Share that may be unscored before exit 3.")
    ] = 0.02,
) -> None:
    """Fail where a run scores too low; what is not scored never passes.

    Exit codes: 0 fine, 1 gate failed, 2 usage or an incomplete run, 3 too many rows unscored.
    """
    from geval.runs.find import open_run
    from geval.runs.gate import judge_run, line

    verdict = judge_run(open_run(run), fail_under, on, max_unscored)
    typer.echo(line(verdict))
    raise typer.Exit(int(verdict.code))
