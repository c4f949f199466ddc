"""`geval agree`: how well a run matches people's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.run_argument import RunName
from geval.errors import UsageError

if TYPE_CHECKING:
    from geval.agreement.results import Agreement, CriterionAgreement, Figure

LEAST_FOR_PLAN = 10

_EXAMPLES = """
Examples:

  geval agree runs/20261130-101500-finance_qa --labels labels.csv

  geval agree RUN --labels labels.xlsx --group document --map accuracy=점수

  geval agree RUN --labels labels.csv --plan --width 0.2     how many labels are needed
"""

Labels = Annotated[
    str,
    typer.Option("--labels", "-L", help="Labels: a table with an id and a column per criterion."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--map", help="CRITERION=COLUMN; several columns are several annotators."),
]
LabelMap = Annotated[
    list[str] | None,
    typer.Option("--label-map", help="What spellings mean, e.g. 상=5,중=3,하=1,보류="),
]
Group = Annotated[
    str | None, typer.Option("--group", help="Column of the document a row belongs to.")
]
IdColumn = Annotated[str | None, typer.Option("--id", help="Column of the row's id.")]
Sheet = Annotated[
    str | None, typer.Option("--sheet", help="Sheet of a workbook; * for one per annotator.")
]
LabelScale = Annotated[
    str | None,
    typer.Option("--label-scale", help="Ends of the people's scale, LOW:HIGH, where it differs."),
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("agree", epilog=_EXAMPLES)(agree)


def agree(
    run: RunName,
    labels: Labels,
    group: Group = None,
    system: Annotated[
        str | None, typer.Option("--system", help="Column of who produced the judged text.")
    ] = None,
    annotators: Annotated[
        list[str] | None,
        typer.Option(
            "--annotators",
            help="The column that names the annotator of a row, or (repeated) their columns.",
        ),
    ] = None,
    columns: Columns = None,
    label_map: LabelMap = None,
    label_scale: LabelScale = None,
    id_column: IdColumn = None,
    sheet: Sheet = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="The judged rows, where the label file lacks the group, the system or the "
            "documents of a row.",
        ),
    ] = None,
    misses: Annotated[
        str,
        typer.Option(
            "--misses",
            help="Samples without a score: missing, or zero (all read as the published code does).",
        ),
    ] = "missing",
    draws: Annotated[
        int, typer.Option("--draws", min=0, help="Bootstrap draws over groups; 0 for none.")
    ] = 2_000,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say how many labels are needed; compare nothing.")
    ] = False,
    width: Annotated[
        float | None,
        typer.Option("--width", help="With --plan: width of the interval, in scale units."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report with charts to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a run with people's labels.

    Prints how the two were joined, then per criterion every statistic with its level and a 95 %
    interval over groups, the people's own agreement, and what people would have said on all rows.
    """
    from geval.agreement import measure
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.runs.find import find_run

    folder = find_run(run)
    found = measure.agree(
        folder,
        labels,
        group=group,
        system=system,
        id=id_column,
        annotators=annotators or [],
        columns=columns or [],
        label_map=label_map or [],
        label_scale=ends(label_scale),
        sheet=sheet,
        data=data,
        misses=misses,  # type: ignore[arg-type]
        draws=0 if plan else draws,
    )
    told = found.to_dict()
    if plan:
        _plan(found, width, as_json)
        return
    if as_json:
        ui.json_lines([dumps(told)])
    else:
        _print(found)
    if html is not None:
        from geval.agreement.report import write_report

        write_report(found, html)
        ui.note(str(html))


def ends(text: str | None) -> tuple[float, float] | None:
    """`0:100` as two numbers. Raises UsageError for what is none."""
    if text is None:
        return None
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise UsageError(f"--label-scale: {text!r} is no LOW:HIGH", hint="Write 0:100.") from None


def _plan(found: Agreement, width: float | None, as_json: bool) -> None:
    from geval.agreement.planning import plan
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.locale import own_folders, report_words

    word = report_words(found.locale, own_folders())
    lines: list[dict[str, Any]] = []
    for name, one in found.criteria.items():
        if one.every_row is None or not one.levels or one.n < LEAST_FOR_PLAN:
            ui.note(word["plan_few"].format(criterion=name, n=one.n, least=LEAST_FOR_PLAN))
            continue
        judge, human, group = one.every_row
        span = one.levels[-1] - one.levels[0]
        for wide in [width] if width else [span * part for part in (0.05, 0.1, 0.2)]:
            needed = plan(judge, human, wide, group)
            have = {"have_rows": len(judge), "have_groups": len(set(group))}
            lines.append({"criterion": name, **needed.to_dict(), **have})
    if as_json:
        ui.json_lines(dumps(line) for line in lines)
        return
    for line in lines:
        told = "plan_line" if line["rows"] else "plan_more"
        design = line["design"]
        ui.out.print(
            word[told].format(**line | {"design": 1.0 if design is None else design}),
            markup=False,
            soft_wrap=True,
        )


def _print(found: Agreement) -> None:
    from rich.markup import escape
    from rich.table import Table

    from geval.cli import ui
    from geval.locale import own_folders, report_words

    word = report_words(found.locale, own_folders())
    ui.out.print(
        f"{found.template} · {word['judge']} {found.judge}", style="bold", markup=False,
        soft_wrap=True,
    )  # fmt: skip
    join = found.join
    ui.out.print(
        f"{word['joined']}: {word['data_rows']} {join['data']}, {word['label_rows']} "
        f"{join['labels']}, {word['matched']} {join['matched']}",
        markup=False,
        soft_wrap=True,
    )
    for key in ("unlabelled", "unknown"):
        if join[key]:
            more = ", ..." if len(join[key]) > 5 else ""
            ids = ", ".join(join[key][:5])
            ui.err.print(
                f"{word[key]} ({len(join[key])}): {ids}{more}", markup=False, soft_wrap=True
            )
    for text in found.notes:
        ui.note(text)
    for name, one in found.criteria.items():
        table = Table(
            title=f"{escape(name)}: n {one.n}, {word['groups']} {one.groups}",
            box=None,
            pad_edge=False,
            title_justify="left",
        )
        reads = list(dict.fromkeys(f.read for f in one.figures))
        for column in (word["metric"], word["level"]):
            table.add_column(column, no_wrap=True)
        for read in reads:
            table.add_column(word[f"read_{read}"], justify="right", no_wrap=True)
        for row in _rows(one, reads, word):
            table.add_row(*row)
        ui.out.print(table)
        for line in sentences(one, word):
            ui.out.print(line, markup=False, soft_wrap=True)
        for text in one.notes:
            ui.err.print(f"{name}: {text}", style="yellow", markup=False, soft_wrap=True)
        if one.confusion and one.levels:
            _confusion(one, word)


def _rows(
    one: CriterionAgreement, reads: Sequence[str], word: Mapping[str, str]
) -> list[list[str]]:
    """A line per statistic and level, with a cell "value (interval)" per read."""
    cells: dict[tuple[str, str], dict[str, Figure]] = {}
    for f in one.figures:
        cells.setdefault((f.metric, f.level), {})[f.read] = f
    lines = []
    for (metric, level), by_read in cells.items():
        lines.append(
            [metric, word[f"level_{level}"], *(_cell(by_read.get(read)) for read in reads)]
        )
    return lines


def _cell(f: Figure | None) -> str:
    if f is None or f.value is None:
        return "-"
    if f.low is None or f.high is None:
        return f"{f.value:.3f}"
    return f"{f.value:.3f} ({f.low:.2f}–{f.high:.2f})"


def number(value: float | None) -> str:
    """Three digits, "-" for none."""
    return "-" if value is None else f"{value:.3f}"


def span(low: float | None, high: float | None) -> str:
    """An interval, or "-"."""
    return "-" if low is None or high is None else f"{low:.3f} – {high:.3f}"


def sentences(one: CriterionAgreement, word: Mapping[str, str]) -> list[str]:
    """What stands below the table of a criterion."""
    told = []
    for name in dict.fromkeys(f.metric for f in one.figures if f.groups_skipped):
        within = [f for f in one.figures if f.metric == name and f.level == "per_group"]
        skipped = {f.read: f.groups_skipped for f in within}
        shown = ", ".join(f"{word['read_' + read]} {n}" for read, n in skipped.items() if n)
        told.append(f"{name}, {word['level_per_group']}: {word['skipped']}: {shown}")
    for what, key in ((one.gain, "weighted_gain"), (one.corrected, "corrected_gain")):
        if what:
            told.append(
                f"{word[key]}: {what['metric']} {what['value']:+.3f} "
                f"({span(what['low'], what['high'])}): {word['verdict_' + what['verdict']]}"
            )
    if c := one.contradicted:
        told.append(
            word["without_contradicted"].format(
                n=len(c["rows"]), metric=c["metric"], level=word[f"level_{c['level']}"],
                value=number(c["without"]), all=number(c["value"]),
            )
        )  # fmt: skip
    if one.ceiling:
        c = one.ceiling
        told.append(
            f"{word['ceiling']} ({word['annotators']} {c['annotators']}, n {c['rows']}): "
            f"{word['one_against_others']} {number(c['one_against_others'])}, "
            f"alpha {number(c['alpha_nominal'])} / {number(c['alpha_ordinal'])} / "
            f"{number(c['alpha_interval'])} (nominal / ordinal / interval)"
        )
    for name, mean in [("", one.people), *one.by_system.items()]:
        if mean and mean["n_rest"]:
            of = f" ({name})" if name else ""
            told.append(
                f"{word['people_mean']}{of}: {number(mean['value'])} "
                f"({span(mean['low'], mean['high'])}), {word['judge_mean']} "
                f"{number(mean['naive'])}, {word['label_rows']} {mean['n_labelled']}"
            )
    for d in one.differences:
        told.append(
            f"{d['a']} − {d['b']}: {number(d['value'])} ({span(d['low'], d['high'])}), "
            f"{word['judge_mean']} {number(d['naive'])}, n {d['n_labelled']}+{d['n_rest']}, "
            f"{word['groups']} {d['groups']}"
        )
    return told


def _confusion(one: CriterionAgreement, word: Mapping[str, str]) -> None:
    from rich.table import Table

    from geval.cli import ui

    ui.out.print(word["confusion"])
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for level in one.levels or []:
        table.add_column(f"{level:g}", justify="right")
    for level, row in zip(one.levels or [], one.confusion or [], strict=True):
        table.add_row(f"{level:g}", *map(str, row))
    ui.out.print(table)
