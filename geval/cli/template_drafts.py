"""`geval template steps` and `import`: templates that a judge or another tool helps to write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from geval.template import Template

Folders = Annotated[
    list[Path] | None, typer.Option("--templates", help="Further folder of templates (repeatable).")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(steps)
    app.command("import")(import_)


def steps(
    name: Annotated[str, typer.Argument(help="Template by name, or a path.")],
    judge: Annotated[str, typer.Option("--judge", "-j", help="Judge that drafts the steps.")],
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of the template.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Draft over steps that exist.")] = False,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Endpoint of the judge's server.")
    ] = None,
    templates: Folders = None,
) -> None:
    """Draft evaluation steps into the template file, once, for you to review.

    Three to five steps a criterion, in the template's language; comments stay and nothing else
    changes. A template that comes with geval is copied to ./templates first.

    Example: `geval template steps politeness --judge openai:MODEL`
    """
    from geval.authoring.steps import draft
    from geval.cli import ui
    from geval.config import RUN_OPTIONS, resolve_judge
    from geval.judges.base import open_judge
    from geval.template import Template

    found = Template.load(name, locale, templates or [])
    target = _own(found)
    resolved, options = resolve_judge(judge, {"base_url": base_url})
    opened = open_judge(resolved, **{k: v for k, v in options.items() if k not in RUN_OPTIONS})

    async def run() -> Template:
        try:
            return await draft(found, opened, force=force)
        finally:
            await opened.aclose()

    drafted = asyncio.run(run())
    if target != found.path:
        target.parent.mkdir(exist_ok=True)
        ui.note(f"the template comes with geval: writing your own copy {target}")
        examples = found.examples()
        beside = target.with_name(examples.name) if examples else None
        if examples and beside and not beside.exists():
            beside.write_bytes(examples.read_bytes())
    drafted.save(target, overwrite=target == found.path)
    for criterion in drafted.criteria:
        typer.echo(f"{criterion.name}:")
        for number, step in enumerate(criterion.steps, start=1):
            typer.echo(f"  {number}. {step}")
    ui.note(f"written to {target}; read them before you use them")


def _own(found: Template) -> Path:
    """The file to write: the template's own, or a copy in ./templates of a shipped one."""
    from geval.errors import TemplateError
    from geval.template import shipped_folder

    assert found.path is not None
    if found.path.resolve().parent != shipped_folder().resolve():
        return found.path
    target = Path("templates") / found.path.name
    if target.exists() and target.resolve() != found.path.resolve():
        raise TemplateError(f"{target} is there already", hint=f"Name it: {target}")
    return target


def import_(
    source: Annotated[str, typer.Argument(metavar="ragas:METRIC|FILE.json", help="What to read.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the template.")] = None,
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of its words (default: seen).")
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where to write.")] = Path("templates"),
) -> None:
    """Make a template from a prompt of your installed ragas, its saved JSON, or Haystack examples.

    What cannot be carried over is printed and stands in the file's comments.

    Examples: `geval template import ragas:faithfulness`, `geval template import prompt.json`
    """
    from geval.authoring.importing import convert, load, write
    from geval.cli import ui

    template, lost = convert(load(source, name), locale)
    path = write(template, lost, folder)
    typer.echo(str(path))
    for text in lost:
        ui.note(f"not carried over: {text}")
    ui.note(f"next: review it, then geval template lint {path}")
