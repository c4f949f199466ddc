"""`geval judge`: check, list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from geval.judges.check import Report
    from geval.template import Template

app = typer.Typer(help="See which judges there are and what they can do.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_PLAIN = """---
name: check
locale: en
inputs: {answer: {type: text}}
scale: {levels: {1: bad, 2: poor, 3: fair, 4: good, 5: very good}}
criteria: {fit: How good is the answer?}
output: {order: score_first, reason: true}
---
{% extends "_geval.jinja" %}
{% block sample %}{{ answer }}{% endblock %}
"""


@app.command()
def check(
    spec: Annotated[str, typer.Argument(help="Judge, as for `geval score --judge`.")],
    template: Annotated[
        str | None,
        typer.Option(
            "--template", "-t", help="Take the levels of this template (default: 1 to 5)."
        ),
    ] = None,
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of the template.")
    ] = None,
    templates: Annotated[
        list[Path] | None,
        typer.Option("--templates", help="Further folder of templates (repeatable)."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Endpoint of the judge's server.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Try a judge: what it can do, how its probabilities are, what it costs.

    Makes a few tiny calls to find out, one small call per method, and one that shows how the
    levels are spelled. Nothing of your data is sent.
    """
    from geval.cli import ui
    from geval.judges.records import dumps

    chosen = _template(template, locale, templates or [])
    told = asyncio.run(_check(spec, base_url, chosen))
    if as_json:
        typer.echo(dumps(told))
    else:
        _print(told, ui)


async def _check(spec: str, base_url: str | None, template: Template) -> dict[str, Any]:
    from geval.config import RUN_OPTIONS, load_config, resolve_judge
    from geval.judges.base import open_judge
    from geval.judges.check import check_judge
    from geval.traffic.prices import load_prices

    resolved, options = resolve_judge(spec, {"base_url": base_url})
    judge = open_judge(resolved, **{k: v for k, v in options.items() if k not in RUN_OPTIONS})
    try:
        report = await check_judge(judge, template.criteria[0].scale)
    finally:
        await judge.aclose()
    price = load_prices(load_config().prices).find(report.identity)
    return {
        **report.to_dict(),
        "auto": _auto(report, template),
        "price": None if price is None else price.model_dump(mode="json", exclude_none=True),
    }


def _auto(report: Report, template: Template) -> dict[str, list[str]]:
    """The methods that `auto` tries, in their order, with and without reasons."""
    from geval.settings import choose_methods

    return {
        "without reasons": list(choose_methods("auto", report.methods, template, "none")),
        "with reasons": list(choose_methods("auto", report.methods, template, "all")),
    }


def _template(name: str | None, locale: str | None, folders: list[Path]) -> Template:
    from geval.template import Template, parse, search_path

    if name is not None:
        return Template.load(name, locale, folders)
    return parse(_PLAIN.encode(), Path("check.en.jinja"), search_path(folders))


def _print(told: dict[str, Any], ui: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    from geval.judges.check import shown

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("method", "expected", "coverage", "answer", "probabilities", "tokens", "seconds"):
        table.add_column(title, overflow="fold")
    for trial in told["trials"]:
        used = f"{trial['prompt_tokens']} + {trial['completion_tokens']}"
        if trial["error"]:
            error = f"[red]{escape(trial['error'])}[/red]"
            table.add_row(trial["method"], "", "", "", error, used, f"{trial['seconds']:.2f}")
            continue
        table.add_row(
            trial["method"],
            "" if trial["expected"] is None else f"{trial['expected']:.3f}",
            "" if trial["coverage"] is None else f"{trial['coverage']:.3f}",
            escape(trial["answer"] or ""),
            escape(shown(trial["levels"])) if trial["levels"] else "",
            used,
            f"{trial['seconds']:.2f}",
        )
    ui.out.print(table)
    lines = {
        "judge": told["spec"],
        **{k: v for k, v in told["identity"].items() if k != "judge" and v},
        "methods": ", ".join(told["methods"]),
        **told["facts"],
        "auto": _auto_line(told["auto"]),
        "price": _price_line(told["price"]),
    }
    typer.echo("")
    for name, value in lines.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        typer.echo(f"{name}: {text}")
    for word, tokens in told["tokens"].items():
        pieces = "cannot be seen" if tokens is None else " | ".join(map(repr, tokens))
        typer.echo(f"level {word}: {pieces}")
    for note in told["notes"]:
        ui.note(note)


def _auto_line(auto: dict[str, list[str]]) -> str:
    ways = {name: " then ".join(methods) or "nothing" for name, methods in auto.items()}
    if len(set(ways.values())) == 1:
        return next(iter(ways.values()))
    return "; ".join(f"{name}: {way}" for name, way in ways.items())


def _price_line(price: dict[str, Any] | None) -> str:
    if price is None:
        return "unknown"
    if not price["input"] and not price["output"]:
        return "free"
    line = f"${price['input']:g} in, ${price['output']:g} out per million tokens"
    return f"{line} (as of {price['date']})" if price.get("date") else line


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the judges that can be named, and whether each could be used here.

    Looks for extras and keys only: no server is called.
    """
    from dataclasses import asdict

    from rich.markup import escape
    from rich.table import Table

    from geval.cli import ui
    from geval.config import RUN_OPTIONS, load_config, resolve_judge
    from geval.judges.check import list_judges
    from geval.judges.records import dumps

    config = load_config()
    named: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in config.judges:
        spec, options = resolve_judge(f"@{name}", None, config)
        named[name] = (spec, {k: v for k, v in options.items() if k not in RUN_OPTIONS})
    listed = asyncio.run(list_judges(named))
    if as_json:
        typer.echo(dumps({"judges": [asdict(one) for one in listed]}))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "spec", "usable", ""):
        table.add_column(title, overflow="fold")
    for one in listed:
        usable = "[green]yes[/green]" if one.usable else "[red]no[/red]"
        table.add_row(escape(one.name), escape(one.spec), usable, escape(one.why))
    ui.out.print(table)
