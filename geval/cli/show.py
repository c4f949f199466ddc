"""`geval show`: what a run came to, why rows are unscored, one row with its prompt and reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.run_argument import RunName
from geval.errors import UsageError

if TYPE_CHECKING:
    from geval.runs.look import Group, Overview
    from geval.runs.run import Run

_EXAMPLES = """
Examples:

  geval show last

  geval show RUN --errors                    why rows are unscored, and the way out

  geval show RUN --row q17 --criterion accuracy
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("show", epilog=_EXAMPLES)(show)


def show(
    run: RunName,
    errors: Annotated[
        bool, typer.Option("--errors", help="Why judgements are unscored, by kind.")
    ] = False,
    row: Annotated[
        str | None,
        typer.Option("--row", metavar="ID", help="One row: prompt, reply, distribution, reason."),
    ] = None,
    criterion: Annotated[
        str | None, typer.Option("--criterion", "-c", help="This criterion alone.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a run: its summary, its failures (--errors), or one row (--row)."""
    from geval.cli import ui
    from geval.cli.show_row import print_row
    from geval.judges.records import dumps
    from geval.locale import report_words
    from geval.result import OVERALL
    from geval.runs import look
    from geval.runs.find import open_run

    if errors and row is not None:
        raise UsageError("show takes --errors or --row, one of them")
    opened = open_run(run)
    word = report_words(str(opened.manifest["template"].get("locale") or "en"))
    names = look.criteria_of(opened, criterion)
    if row is not None:
        found = look.row(opened, row, criterion)
        if as_json:
            ui.json_lines([dumps(found.to_dict())])
        else:
            print_row(opened, found, word)
    elif errors:
        groups = look.errors(opened, names if criterion else None)
        if as_json:
            ui.json_lines([dumps([group.to_dict() for group in groups])])
        else:
            _print_errors(opened, groups, word)
    else:
        seen = look.overview(opened, names[0] if criterion else OVERALL)
        if as_json:
            ui.json_lines([dumps(seen.to_dict())])
        else:
            _print_summary(seen, word, names)


def _print_summary(seen: Overview, word: Mapping[str, Any], names: Sequence[str]) -> None:
    from rich.table import Table

    from geval.cli import ui
    from geval.cli.terminal import line, plain
    from geval.runs.told import cautions

    run = seen.run
    ui.out.print(plain(_title(run), "bold"), soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(seen, word):
        facts.add_row(plain(name, "dim"), plain(line(value, 500)))
    ui.out.print(facts)
    ui.out.print()
    ui.out.print(_criteria(seen, word, names))
    if seen.lowest:
        ui.out.print()
        ui.out.print(_lowest(seen, word, names))
    summary = seen.tally.to_dict()
    for text in cautions(summary, word):
        ui.out.print(plain(text, "yellow"), soft_wrap=True)
    if summary["failures"]:
        ui.note(word["show_next_errors"].format(folder=run.folder))
    ui.note(word["show_next"].format(folder=run.folder))


def _title(run: Run) -> str:
    template = run.manifest["template"]
    return f"{template.get('name')}.{template.get('locale')} · {run.folder}"


def _facts(seen: Overview, word: Mapping[str, Any]) -> list[tuple[str, str]]:
    from geval.runs.listing import judges_of, rows_of, status_of

    run, tally = seen.run, seen.tally
    manifest, usage = run.manifest, tally.usage
    counts = tally.to_dict()["overall"]
    rows = rows_of(manifest)
    done = sum(counts[s] for s in ("scored", "unscored", "not_applicable"))
    mean = f"{_number(tally.mean())} ({word['page_pessimistic']} {_number(tally.pessimistic())})"
    scored = word["page_scored_of"].format(
        scored=counts["scored"], rows=done if rows is None else rows
    )
    told = [
        (word["status"], word[f"runs_{status_of(run)}"]),
        (f"{word['mean']} (0–1)", mean),
        (word["scored"], scored),
        (word["judge"], judges_of(manifest)),
        (word["method"], " · ".join(f"{m} {n:,}" for m, n in tally.methods.items()) or "-"),
        (word["page_data"], str(manifest["data"].get("name"))),
        (word["page_started"], str(manifest.get("started") or "-")),
        (
            word["tokens"],
            f"{usage.get('prompt_tokens', 0) + usage.get('completion_tokens', 0):,}",
        ),
    ]
    passed = tally.to_dict().get("passed")
    if passed:
        told.insert(2, (word["rescore_threshold"], word["show_passed"].format_map(passed)))
    rescored = manifest.get("rescored")
    if isinstance(rescored, dict):
        changes = "; ".join(str(c) for c in rescored.get("changes") or ())
        text = word["show_rescored"].format(run=rescored.get("run"), changes=changes)
        told.append((word["rescored"], text))
    return told


def _criteria(seen: Overview, word: Mapping[str, Any], names: Sequence[str]) -> Any:
    from rich.table import Table

    from geval.cli.terminal import line, plain
    from geval.result import OVERALL

    titles = seen.run.manifest["template"].get("titles") or {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    keys = ("mean", "page_pessimistic", "scored", "unscored", "not_applicable")
    table.add_column(plain(word["criterion"]))
    for key in keys:
        table.add_column(plain(word[key]), justify="right")
    for name in (*names, OVERALL):
        counts = seen.tally.n.get(name, {})
        title = word["overall"] if name == OVERALL else titles.get(name) or name
        table.add_row(
            plain(line(title, 60), "bold" if name == OVERALL else ""),
            _number(seen.tally.mean(name)),
            _number(seen.tally.pessimistic(name)),
            *(f"{counts.get(s, 0):,}" for s in ("scored", "unscored", "not_applicable")),
        )
    return table


def _lowest(seen: Overview, word: Mapping[str, Any], names: Sequence[str]) -> Any:
    from rich.table import Table

    from geval.cli.terminal import line, plain
    from geval.report.collect import number
    from geval.report.parts import told_by
    from geval.result import OVERALL

    titles = seen.run.manifest["template"].get("titles") or {}
    title = word["page_highest" if seen.tally.worst else "page_lowest"]
    table = Table(box=None, pad_edge=False, header_style="bold", title=plain(title, "bold"),
                  title_justify="left")  # fmt: skip
    table.add_column(plain(word["id"]), overflow="fold")
    for name in names:
        table.add_column(plain(line(titles.get(name) or name, 24)), justify="right")
    table.add_column(plain(word["overall"]), justify="right")
    table.add_column(plain(word["reason"]), ratio=1)
    for lines in seen.lowest:
        by_name = {r["criterion"]: r for r in lines}
        about = told_by(lines)
        scores = [number(by_name.get(n, {}).get("score")) for n in (*names, OVERALL)]
        table.add_row(
            plain(line(by_name[OVERALL]["id"], 40)),
            *("-" if s is None else f"{s:.2f}" for s in scores[:-1]),
            _number(scores[-1]),
            plain(line((about or {}).get("reason") or "", 160)),
        )
    return table


def _print_errors(run: Run, groups: Sequence[Group], word: Mapping[str, Any]) -> None:
    from geval.cli import ui
    from geval.cli.terminal import line, plain
    from geval.report.words import failure_words

    if not groups:
        ui.out.print(plain(word["show_no_errors"]))
        return
    titles = run.manifest["template"].get("titles") or {}
    for group in groups:
        what, way = failure_words(group.kind, word)
        where = ", ".join(f"{titles.get(c) or c} {n:,}" for c, n in group.criteria.items())
        head = f"{group.n:,}  {group.kind}: {what} ({line(where, 200)})"
        ui.out.print(plain(head, "bold"), soft_wrap=True)
        for cause in sorted(group.causes.values(), key=lambda c: -c.n):
            ids = ", ".join(line(i, 40) for i in cause.ids)
            more = ", …" if cause.n > len(cause.ids) else ""
            told = f"   {cause.n:,} × {line(cause.message, 400)} [{ids}{more}]"
            ui.out.print(plain(told), soft_wrap=True)
        if group.others:
            told = word["show_other_causes"].format(n=group.others)
            ui.out.print(plain(f"   {told}"), soft_wrap=True)
        ui.out.print(plain(f"   → {word['show_way_out']}: {way}", "green"), soft_wrap=True)
    again = sum(group.retryable for group in groups)
    if again:
        told = word["show_retryable"].format(n=again, folder=run.folder)
        ui.out.print(plain(told, "green"), soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
