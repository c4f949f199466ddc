"""`geval export`: a run as CSV, XLSX, Parquet or JSON Lines, or beside the rows of a workbook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geval.cli.run_argument import RunName
from geval.errors import ConfigError

if TYPE_CHECKING:
    from geval.runs.run import Run

_EXAMPLES = """
Examples:

  geval export runs/20261130-101500-finance_qa --to csv

  geval export RUN --to xlsx --data answers.csv --out results.xlsx

  geval export RUN --into answers.xlsx       a copy of the workbook with the scores beside its rows
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("export", epilog=_EXAMPLES)(export)


def export(
    run: RunName,
    to: Annotated[
        str | None, typer.Option("--to", help="csv, xlsx, parquet or jsonl.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write (default: in the run folder).")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="A row per sample and criterion, not per sample.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option("--data", help="The file that was judged: its columns are written as well."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Workbook that was judged: copy it with the results inside."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --into: also a workbook that was changed since.")
    ] = False,
) -> None:
    """Write the results of a run to one file, and print its path."""
    from geval.cli import ui
    from geval.runs.find import open_run

    opened = open_run(run)
    if opened.manifest.get("status") != "complete":
        ui.note("the run is not complete; what there is so far is written")
    if into is not None:
        if to or out or long or data:
            raise ConfigError("--into goes with neither --to, --out, --long nor --data")
        from geval.data.into import lost, write_into
        from geval.data.rows import find_file

        if missing := lost(find_file(into)):
            ui.err.print(
                f"the copy may lose or change {', '.join(missing)}; the original is left as it is",
                style="yellow", markup=False, soft_wrap=True,
            )  # fmt: skip
        target, notes = write_into(opened, into, force=force)
    else:
        target, notes = _write(opened, to, out, long, data)
    for text in notes:
        ui.note(text)
    typer.echo(str(target))


def _write(
    opened: Run, to: str | None, out: Path | None, long: bool, data: str | None
) -> tuple[Path, list[str]]:
    from geval.data import table
    from geval.data.write import WRITERS, write_table
    from geval.errors import nearest

    form = to or (out.suffix.removeprefix(".").lower() if out else "")
    if form not in WRITERS:
        said = f"unknown format {form!r}" if form else "name a format with --to"
        raise ConfigError(said, hint=nearest(form, WRITERS))
    if long and data:
        raise ConfigError("--data goes with the wide form only", hint="Leave --long out.")
    if long:
        records = list(table.long(opened))
    else:
        records = table.wide(opened, table.input_columns(opened, data) if data else None)
    ending = "table.jsonl" if form == "jsonl" else form  # results.jsonl is the run's own
    target = out or opened.folder / f"results{'-long' if long else ''}.{ending}"
    return target, write_table(records, target, form)
