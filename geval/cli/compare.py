"""`geval compare`: two runs over the same rows, paired."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from geval.runs.compare import Comparison

_EXAMPLES = """
Examples:

  geval compare 20261130-101500-finance_qa last

  geval compare RUN_A RUN_B --html compare.html
"""

_HELP = "A run: its folder, its name under ./runs, or `last`."
_STYLES = {"better": "green", "worse": "red", "no_evidence": ""}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("compare", epilog=_EXAMPLES)(compare)


def compare(
    run_a: Annotated[str, typer.Argument(metavar="RUN_A", help=_HELP, show_default=False)],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help=_HELP, show_default=False)],
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report with charts to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare run B with run A over the rows that are scored in both.

    Per criterion: both means, the difference with a 95 % interval (over groups where the data has
    them), wins, losses and ties, p of the sign test and of Wilcoxon's test with Holm's correction
    over criteria; then the rows that changed most. All scores are on 0 to 1.
    """
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.locale import report_words
    from geval.runs.compare import compare as compared
    from geval.runs.find import open_run

    found = compared(open_run(run_a), open_run(run_b))
    word = report_words(found.locale)
    if as_json:
        ui.json_lines([dumps(found.to_dict())])
    else:
        _print(found, word)
    for note in found.notes:
        ui.err.print(note.told(word), style="yellow", markup=False, soft_wrap=True)
    if html is not None:
        from geval.report.compare import write_report

        write_report(found, html)
        ui.note(str(html))


def _print(found: Comparison, word: Mapping[str, Any]) -> None:
    from rich.table import Table

    from geval.cli import ui
    from geval.cli.terminal import line, plain
    from geval.report.compare import cells, counts, heads_of, method, number, signed

    for name, run in (("A", found.a), ("B", found.b)):
        told = found.to_dict()[name.lower()]
        text = f"{name}  {run.folder} · {told['template']}.{told['locale']} · {told['judge']}"
        ui.out.print(plain(line(text), "bold"), soft_wrap=True)
    ui.out.print(plain(" · ".join(counts(found, word))), soft_wrap=True)
    ui.out.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, head in enumerate(heads_of(found, word)):
        last = index == len(heads_of(found, word)) - 1
        table.add_column(
            plain(head), justify="right" if index and not last else "left", overflow="fold"
        )
    for one in (*found.criteria, found.overall):
        shown = cells(one, word)
        table.add_row(
            *(plain(line(cell, 60)) for cell in shown[:-1]),
            plain(shown[-1], _STYLES[one.verdict]),
        )
    ui.out.print(table)
    ui.out.print(plain(method(found, word), "dim"), soft_wrap=True)
    if not found.most:
        return
    ui.out.print()
    titles = {one.criterion: one.title for one in found.criteria}
    most = Table(box=None, pad_edge=False, header_style="bold", title=word["compare_most"],
                 title_justify="left")  # fmt: skip
    for head in (word["id"], "A", "B", "B − A", word["criterion"], "A → B", f"{word['reason']} B"):
        most.add_column(plain(head), overflow="fold")
    for row in found.most:
        most.add_row(
            plain(line(row.id, 40)),
            number(row.a),
            number(row.b),
            signed(row.b - row.a),
            plain(line(titles.get(row.criterion, row.criterion), 40)),
            f"{number(row.criterion_a)} → {number(row.criterion_b)}",
            plain(line(row.reason_b or "", 160)),
        )
    ui.out.print(most)
