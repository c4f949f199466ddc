"""`geval label-sheet`: rows for people to label, as a table that `agree` reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from geval.errors import DataError

CONTRADICTS = "reference_contradicts"
"""Column of the figures that a row's reference states and its documents do not."""

_EXAMPLES = """
Examples:

  geval label-sheet rows.jsonl --run RUN --n 50 --out labels.csv

  geval label-sheet rows.jsonl --criteria accuracy,style --annotators 김,이 --out labels.xlsx

  geval agree RUN --labels labels.csv
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("label-sheet", epilog=_EXAMPLES)(label_sheet)


def label_sheet(
    data: Annotated[str, typer.Argument(help="The rows that were or will be judged.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new .csv or .xlsx.")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many rows.")] = 50,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run over the rows: those it is least sure of come first."),
    ] = None,
    by_chance: Annotated[
        bool, typer.Option("--random", help="Draw rows by chance, as a mean over all rows needs.")
    ] = False,
    criteria: Annotated[
        str | None, typer.Option("--criteria", help="Comma-separated; default: those of the run.")
    ] = None,
    annotators: Annotated[
        str, typer.Option("--annotators", help="Comma-separated names: a column for each.")
    ] = "",
    group: Annotated[str | None, typer.Option("--group", help="Column of the document.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of the row's id.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw.")] = 0,
) -> None:
    """Write a sheet of rows for annotators to fill in."""
    from geval.agreement.beside import References, find_column
    from geval.agreement.judged import read_judged
    from geval.agreement.label_sheet import asked_columns, choose, write_sheet
    from geval.cli import ui
    from geval.data import read_rows
    from geval.data.mapping import flatten
    from geval.data.values import as_text, is_missing
    from geval.result import OVERALL
    from geval.runs.find import open_run

    judged = read_judged(open_run(run)) if run else {}
    names = [c.strip() for c in (criteria or "").split(",") if c.strip()]
    names = names or [c for c in judged if c != OVERALL]
    if not names:
        raise DataError("no criterion to label", hint="Name them: --criteria accuracy,style")
    source = read_rows(data)
    rows = [flatten(row.values)[0] for row in source]
    columns = list(dict.fromkeys(c for row in rows for c in row))
    key, of = find_column(columns, "id", id_column), find_column(columns, "group", group)
    held: dict[str, dict[str, Any]] = {}
    groups: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        value = row.get(key) if key else number
        if is_missing(value):
            raise DataError("the id is missing", where=f"{source.name}, row {number}")
        name = as_text(value).strip()
        held[name] = {"id": name, **{c: v for c, v in row.items() if c != key}}
        if of and not is_missing(row.get(of)):
            groups[name] = as_text(row[of])
    sd: dict[str, float] | None = None
    if judged and not by_chance:
        sd = {}
        for criterion in names:
            one = judged.get(criterion)
            span = (one.levels[-1] - one.levels[0]) if one and one.levels else 1.0
            for name, value in one.sd.items() if one else ():
                sd[name] = max(sd.get(name, 0.0), value / span)
    chosen = choose(list(held), groups, sd, n, seed)
    if not chosen:
        raise DataError("no row of the data is in the run", where=source.name)
    references = References(columns)
    flagged = {i: f for i in chosen if (f := references.contradicted(held[i]))}
    for name, figures in flagged.items():
        held[name][CONTRADICTS] = ", ".join(figures)
    if flagged:
        columns.append(CONTRADICTS)
    shown = ["id", *(c for c in columns if c != key and c not in names and c != "annotators")]
    asked = asked_columns(names, [a.strip() for a in annotators.split(",") if a.strip()])
    write_sheet(out, shown, [held[i] for i in chosen], asked)
    typer.echo(f"{len(chosen)} rows written to {out}: {', '.join(asked)}")
    if flagged:
        ui.note(
            f"{CONTRADICTS}: {len(flagged)} references state figures that none of their documents "
            "holds; annotators see them in that column"
        )
