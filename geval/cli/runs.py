"""`geval runs`: the runs of a folder, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from geval.runs.listing import Listed

_EXAMPLES = """
Examples:

  geval runs

  geval runs experiments/runs --json

Wherever a command takes a RUN, a folder, its name under ./runs, or `last` will do.
"""

_STYLES = {"complete": "green", "running": "cyan", "interrupted": "yellow", "damaged": "red"}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("runs", epilog=_EXAMPLES)(runs)


def runs(
    folder: Annotated[
        Path, typer.Argument(help="Folder that holds run folders.", show_default=True)
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List runs, newest first: template, judge, rows scored, mean and what became of them."""
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.runs.find import ROOT
    from geval.runs.listing import runs_in

    if folder == ROOT and not folder.exists():
        listed: list[Listed] = []
    else:
        listed = runs_in(folder)
    if as_json:
        ui.json_lines(dumps(one.to_dict()) for one in listed)
    elif listed:
        _print(listed)
    else:
        ui.note(f"no runs in {str(folder)!r} yet: `geval score` makes one")


def _print(listed: Sequence[Listed]) -> None:
    from rich.table import Table

    from geval.cli import ui
    from geval.cli.terminal import line, plain
    from geval.locale import report_words

    # A list of several languages is told in English.
    locales = {one.locale for one in listed if one.locale}
    word = report_words(locales.pop() if len(locales) == 1 else "en")
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = ("runs_name", "page_started", "page_template", "judge", "scored", "mean", "status")
    for key in heads:
        right = key in ("scored", "mean")
        table.add_column(
            plain(word[key]),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=key == "status",
        )
    for one in listed:
        table.add_row(
            plain(line(one.name, 80)),
            plain((one.started or "-")[:16].replace("T", " ")),
            plain(f"{one.template or '-'}.{one.locale or '-'}"),
            plain(line(one.judge or "-", 60)),
            plain(_of(one.scored, one.rows)),
            plain("-" if one.mean is None else f"{one.mean:.3f}", "bold"),
            plain(word[f"runs_{one.status}"], _STYLES[one.status]),
        )
    ui.out.print(table)
    _faults(listed, word)


def _of(scored: int | None, rows: int | None) -> str:
    return f"{'-' if scored is None else f'{scored:,}'}/{'-' if rows is None else f'{rows:,}'}"


def _faults(listed: Sequence[Listed], word: Mapping[str, Any]) -> None:
    from geval.cli import ui

    for one in listed:
        if one.fault:
            ui.err.print(f"{one.name}: {one.fault}", style="red", markup=False, soft_wrap=True)
    if any(one.status == "interrupted" for one in listed):
        ui.note(word["runs_continue"])
