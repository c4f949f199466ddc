"""`geval template`: list, new, diff, show, lint, render."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli import template_drafts
from geval.errors import ConfigError, DataError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geval.job import Job
    from geval.judges.base import Message

app = typer.Typer(help="Look at, check and render rubric templates.", no_args_is_help=True)

template_drafts.add_to(app)

Folders = Annotated[
    list[Path] | None, typer.Option("--templates", help="Further folder of templates (repeatable).")
]
Locale = Annotated[str | None, typer.Option("--locale", "-l", help="Language of the template.")]


@app.command("list")
def list_(
    templates: Folders = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the templates that can be found, with locales, inputs, levels and criteria.

    Examples: `geval template list`, `geval template list --templates prompts --json`
    """
    from rich.markup import escape
    from rich.table import Table

    from geval.authoring.catalogue import catalogue
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.template import search_path

    rows = catalogue(search_path(templates or []))
    if as_json:
        ui.json_lines([dumps(rows)])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "locales", "inputs", "levels", "criteria", "from"):
        table.add_column(title, overflow="fold")
    for row in rows:
        locales = ", ".join(row["locales"])
        if row["error"]:
            table.add_row(row["name"], locales, f"[red]{escape(row['error'])}[/red]")
            continue
        cells = [", ".join(row["inputs"]), " | ".join(row["levels"]), ", ".join(row["criteria"])]
        table.add_row(row["name"], locales, *map(escape, cells), escape(row["from"]))
    ui.out.print(table)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new template.")],
    locale: Annotated[str | None, typer.Option("--locale", "-l", help="Language (en, ko).")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Take inputs, scales and criteria from this one.")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where to write.")] = Path("templates"),
    judged: Annotated[
        str | None, typer.Option("--judged", help="The field that is judged.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option("--inputs", help="The other fields of a row: question,contexts")
    ] = None,
    levels: Annotated[
        str | None, typer.Option("--levels", help="1-5, yes-no, 0,1,2 or words from worst to best.")
    ] = None,
    criterion: Annotated[
        str | None, typer.Option("--criterion", help="The question that decides the score.")
    ] = None,
    templates: Folders = None,
) -> None:
    """Write a commented starter and an examples file; both work as they are.

    On a terminal it asks for what is not given. Nothing is ever overwritten.

    Examples: `geval template new politeness --locale ko`,
    `geval template new finance_qa --locale ko --from finance_qa`
    """
    import sys

    from geval.authoring.draft import Plan
    from geval.authoring.draft import new as write
    from geval.cli import ui
    from geval.template import Template, available, find, search_path

    given = {"locale": locale, "judged": judged, "levels": levels, "criterion": criterion,
             "inputs": None if inputs is None else inputs.split(",")}  # fmt: skip
    found = None
    if source is not None:
        folders = search_path(templates or [])
        others = [c for c in sorted(available(folders).get(source, {})) if c != locale]
        same = locale in available(folders).get(source, {}) and source != name
        chosen = locale if same else next(iter(others), None)
        path = find(source, chosen, folders)
        found = Template.load(path, folders=folders)
        given["locale"] = locale or found.front.locale
    elif not any(given.values()):
        if sys.stdin.isatty():
            given = _asked(name)
        else:
            ui.note("no terminal to ask on: taking the defaults (see --help for the options)")
    plan = Plan(name, **{k: v for k, v in given.items() if v})  # type: ignore[arg-type]
    for written in write(plan, folder, found):
        typer.echo(str(written))
    ui.note(f"next: edit it, geval template lint {folder}, geval score -t {name} -l {plan.locale}")


def _asked(name: str) -> dict[str, Any]:
    """The author's answers, in the order in which one thinks."""
    from geval.authoring.draft import Plan
    from geval.cli import ui

    default = Plan(name)
    ui.note("Enter takes the value in brackets.")
    ask = typer.prompt
    locale = ask("Language of the prompt (en, ko)", default.locale, err=True)
    judged = ask("Field that is judged", default.judged, err=True)
    inputs = ask("Other fields of a row, with commas", ",".join(default.inputs), err=True)
    levels = ask("Levels: 1-5, yes-no, or own, worst first (bad,good)", default.levels, err=True)
    offered = Plan(name, locale).words["criterion"].format(judged=judged)
    criterion = ask("Question that decides the score", offered, err=True)
    return {"locale": locale, "judged": judged, "inputs": inputs.split(","), "levels": levels,
            "criterion": criterion}  # fmt: skip


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="Template by name or path.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    locale: Locale = None,
    templates: Folders = None,
) -> None:
    """Show what changed from A to B: front matter by path, then the body.

    Example: `geval template diff finance_qa templates/finance_qa.en.jinja`
    """
    from rich.text import Text

    from geval.authoring.diff import diff as changes
    from geval.cli import ui
    from geval.template import Template

    one, two = (Template.load(name, locale, templates or []) for name in (a, b))
    for line in changes(one, two):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        ui.out.print(Text(line, style=style), soft_wrap=True)
    same = one.fingerprint == two.fingerprint
    told = "the same fingerprint: replies stay valid" if same else "different fingerprints"
    ui.note(f"{told} ({one.fingerprint}, {two.fingerprint})")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Template by name, or a path.")],
    locale: Locale = None,
    templates: Folders = None,
    rendered: Annotated[
        bool, typer.Option("--rendered", help="The prompt for the first example row instead.")
    ] = False,
) -> None:
    """Print a template: front matter and body, or its prompt with an example row.

    Examples: `geval template show finance_qa --locale ko`,
    `geval template show faithfulness --rendered`
    """
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
    from geval.lint.check import lint_targets, to_dict

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
    counted = {"file": len(files), **count}
    told = (f"{n} {what}{'s' if n != 1 else ''}" for what, n in counted.items())
    typer.echo(", ".join(told), err=True)
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
    """Print the exact messages a judge would get for a row, and how many tokens they are.

    Examples: `geval template render finance_qa rows.xlsx --row 3`,
    `geval template render finance_qa rows.jsonl --criterion groundedness --judge local`
    """
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
    from geval.judges.base import Request, open_judge
    from geval.traffic.asking import likely_tokens

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
