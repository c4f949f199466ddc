"""`geval template`: list, show, lint, render."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geval.errors import ConfigError, DataError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geval.job import Job
    from geval.judges.base import Message

app = typer.Typer(help="Look at, check and render rubric templates.", no_args_is_help=True)

Folders = Annotated[
    list[Path] | None, typer.Option("--templates", help="Further folder of templates (repeatable).")
]
Locale = Annotated[str | None, typer.Option("--locale", "-l", help="Language of the template.")]


@app.command("list")
def list_(templates: Folders = None) -> None:
    """List the templates that can be found, with locales, inputs, levels and criteria."""
    from rich.table import Table

    from geval.cli import ui
    from geval.errors import TemplateError
    from geval.template import available, parse, search_path, shipped_folder

    folders = search_path(templates or [])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "locales", "inputs", "levels", "criteria", "from"):
        table.add_column(title, overflow="fold")
    for name, locales in available(folders).items():
        path = locales.get("en") or next(iter(locales.values()))
        try:
            found = parse(path.read_bytes(), path, folders)
        except TemplateError as error:
            table.add_row(name, ", ".join(locales), f"[red]{error.what.splitlines()[0]}[/red]")
            continue
        inputs = [n if s.required else f"{n}?" for n, s in found.front.inputs.items()]
        levels = {", ".join(c.scale.allowed) for c in found.criteria}
        shipped = path.parent == shipped_folder().resolve()
        table.add_row(
            name,
            ", ".join(sorted(locales)),
            ", ".join(inputs),
            " | ".join(sorted(levels)),
            ", ".join(c.name for c in found.criteria),
            "geval" if shipped else str(path.parent),
        )
    ui.out.print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Template by name, or a path.")],
    locale: Locale = None,
    templates: Folders = None,
    rendered: Annotated[
        bool, typer.Option("--rendered", help="The prompt for the first example row instead.")
    ] = False,
) -> None:
    """Print a template: front matter and body, or its prompt with an example row."""
    from geval.template import find, search_path
    from geval.yaml import decode

    folders = search_path(templates or [])
    if rendered:
        from geval.job import prepare

        _render(prepare(template=name, locale=locale, templates=templates or []), 1, None, None)
        return
    path = find(name, locale, folders)
    typer.echo(decode(path.read_bytes(), str(path)), nl=False)


@app.command()
def lint(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH|NAME]...", help="Files, folders or names (default: ./templates)."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="Check the levels for this way of reading scores.")
    ] = "auto",
    templates: Folders = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a fault.")] = False,
) -> None:
    """Check templates and show every fault at once as file:line; exit 1 on errors.

    Errors keep a template from being used; warnings are likely mistakes; infos are worth knowing.

    Examples: `geval template lint`, `geval template lint finance_qa`,
    `geval template lint templates/mine.ko.jinja --method logprobs`
    """
    from typing import get_args

    from geval.cli import ui
    from geval.errors import nearest
    from geval.judges.base import Method
    from geval.judges.records import dumps
    from geval.lint import lint_targets, to_dict

    known = ("auto", *get_args(Method))
    if method not in known:
        raise ConfigError(f"unknown method {method!r}", hint=nearest(method, known))
    files, faults = lint_targets(targets or [], templates or [], method=method, hints=True)
    if as_json:
        ui.json_lines(dumps(to_dict(path, fault)) for path, fault in faults)
    else:
        for path, fault in faults:
            typer.echo(f"{path}:{fault.line}: {fault.severity}: {fault.message}")
    count = {kind: sum(f.severity == kind for _, f in faults) for kind in ("error", "warning")}
    told = f"{len(files)} file{'s' if len(files) != 1 else ''}, "
    typer.echo(f"{told}{count['error']} errors, {count['warning']} warnings", err=True)
    if count["error"]:
        raise typer.Exit(int(Exit.GATE))


@app.command()
def render(
    name: Annotated[str, typer.Argument(help="Template by name, or a path.")],
    data: Annotated[str, typer.Argument(help="Rows, as for `geval score`.")],
    row: Annotated[int, typer.Option("--row", min=1, help="Which row, counted from 1.")] = 1,
    criterion: Annotated[
        str | None, typer.Option("--criterion", help="Only this criterion (default: all).")
    ] = None,
    locale: Locale = None,
    templates: Folders = None,
    columns: Annotated[
        list[str] | None, typer.Option("--map", help="FIELD=COLUMN where a name is not known.")
    ] = None,
    sheet: Annotated[
        str | None, typer.Option("--sheet", help="Sheet of a workbook: its name or number.")
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option("--param", help="FIELD=TEXT (or FIELD=@FILE) for all rows (repeatable)."),
    ] = None,
    aspect: Annotated[
        str | None, typer.Option("--aspect", help="The criterion of the template `aspect`.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge", "-j", help="Count tokens as this judge does (local); else they are guessed."
        ),
    ] = None,
) -> None:
    """Print the exact messages a judge would get for a row, and how many tokens they are."""
    from geval.cli import ui
    from geval.job import prepare

    job = prepare(
        data,
        template=name,
        locale=locale,
        templates=templates or [],
        columns=columns or [],
        sheet=sheet,
        parameters=ui.parameters(params or [], aspect),
        skip_invalid=True,
        note=ui.note,
    )
    _render(job, row, criterion, judge)


def _render(job: Job, row: int, criterion: str | None, judge: str | None) -> None:
    import asyncio

    from geval.cli import ui
    from geval.sample import Sample

    item = next(islice(job.data, row - 1, None), None)
    if item is None:
        raise DataError(f"there is no row {row}: the data has {job.data.n} rows")
    if not isinstance(item, Sample):
        raise DataError(f"row {row} is invalid: {item.reason}")
    template = job.template
    chosen = [template.criterion(criterion)] if criterion else list(template.criteria)
    prompts = [template.renderer.render(item, one) for one in chosen]
    counted = asyncio.run(_count(prompts, judge))
    for one, messages, told in zip(chosen, prompts, counted, strict=True):
        for message in messages:
            ui.err.print(f"--- {one.name}: {message['role']}", style="bold", markup=False)
            typer.echo(message["content"])
        ui.note(told)


async def _count(prompts: Sequence[tuple[Message, ...]], judge: str | None) -> list[str]:
    """Tokens of each prompt, counted by a judge that can or guessed from the letters."""
    from geval.asking import likely_tokens
    from geval.judges.base import Request, open_judge

    if judge is None:
        guesses = (likely_tokens(Request(messages, "single", 0)) for messages in prompts)
        return [f"about {guess:,} tokens (--judge local counts them)" for guess in guesses]
    opened = open_judge(judge)
    try:
        count = getattr(opened, "tokens", None)
        if count is None:
            raise ConfigError(f"the judge {judge!r} cannot count tokens", hint="Use --judge local.")
        return [f"{await count(messages):,} tokens" for messages in prompts]
    finally:
        await opened.aclose()
