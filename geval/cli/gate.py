"""`geval gate`: an exit code by the scores of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from geval.cli.gate_output import (
    Files,
    GithubOption,
    JunitOption,
    OnOption,
    SummaryOption,
    conclude,
)
from geval.cli.run_argument import RunName

_EXAMPLES = """
Examples:

  geval gate runs/20261130-101500-finance_qa --fail-under 0.8

  geval gate RUN --fail-under 0.8 --on criterion --junit geval.xml --github-summary
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("gate", epilog=_EXAMPLES)(gate)


def gate(
    run: RunName,
    fail_under: Annotated[
        float, typer.Option("--fail-under", help="Least score, 0 to 1.", show_default=False)
    ],
    on: OnOption = "mean",
    max_unscored: Annotated[
        float, typer.Option("--max-unscored", help="Share that may be unscored before exit 3.")
    ] = 0.02,
    junit: JunitOption = None,
    summary: SummaryOption = None,
    github_summary: GithubOption = False,
) -> None:
    """Fail where a run scores too low; what is not scored never passes.

    Exit codes: 0 fine, 1 gate failed, 2 usage or an incomplete run, 3 too many rows unscored.
    """
    from geval.locale import report_words
    from geval.runs.find import open_run
    from geval.runs.gate import Gate

    held = Gate(fail_under, on, max_unscored)
    files = Files.asked(junit, summary, github_summary)
    opened = open_run(run)
    word = report_words(opened.manifest["template"].get("locale") or "en")
    message, code = conclude(opened, held, files, word)
    typer.echo(message)
    raise typer.Exit(int(code))
