"""`geval data`: look at a data file without judging it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at data before it is judged.", no_args_is_help=True)


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="Rows, as for `geval score`.", show_default=False)],
    template: Annotated[str, typer.Option("--template", "-t", help="Template by name, or a path.")],
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of the template.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="FIELD=COLUMN where a column's name is not known."),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option("--sheet", help="Sheet of a workbook: its name, its number, or * for all."),
    ] = None,
    templates: Annotated[
        list[Path] | None,
        typer.Option("--templates", help="Further folder of templates (repeatable)."),
    ] = None,
) -> None:
    """Check every row for a template: columns, notes and all faults; nothing is judged.

    Exit code 2 where the data has faults.
    """
    from geval.cli import ui
    from geval.job import prepare

    job = prepare(
        data,
        template=template,
        locale=locale,
        templates=templates or [],
        columns=columns or [],
        sheet=sheet,
        note=ui.note,
    )
    typer.echo(f"{job.data.rows.name}: {job.data.n:,} rows can be judged with {job.template.name}")
