"""`geval report`: a run as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.run_argument import RunName
from geval.errors import GevalError, UsageError, nearest

if TYPE_CHECKING:
    from geval.runs.run import Run

_EXAMPLES = """
Examples:

  geval report runs/20261130-101500-finance_qa

  geval report RUN --open no --out report.html
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("report", epilog=_EXAMPLES)(report)


def report(
    run: RunName,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (default: report.html in the run folder)."),
    ] = None,
    show: Annotated[
        str,
        typer.Option("--open", help="yes, no, or auto: open it where this is a terminal."),
    ] = "auto",
) -> None:
    """Write the report of a run as one HTML file that opens offline, and print its path.

    Histograms, means with intervals, the lowest rows with their reasons, and a table of all rows
    to search and sort. `geval score` writes it by itself when it ends.
    """
    import sys
    import webbrowser

    from geval.report import write_report
    from geval.runs.find import open_run

    if show not in ("yes", "no", "auto"):
        raise UsageError(f"--open {show}", hint=nearest(show, ("yes", "no", "auto")))
    path = write_report(open_run(run), out)
    typer.echo(str(path))
    if show == "yes" or (show == "auto" and sys.stdout.isatty()):
        webbrowser.open(path.resolve().as_uri())


def after_score(run: Run, word: Mapping[str, Any]) -> str:
    """Write the report of a run that was just scored; a line that tells where, or why not."""
    from geval.report import write_report

    try:
        path = write_report(run, word=word)
    except (GevalError, OSError) as error:  # the scores are there all the same
        return str(word["page_failed"]).format(why=error)
    return str(word["page_written"]).format(path=path, size=size(path.stat().st_size))


def size(n: int) -> str:
    """Bytes as people read them."""
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{max(1, round(n / 1e3))} kB"
