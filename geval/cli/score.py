"""`geval score`: judge rows with a template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.gate_output import (
    Files,
    GithubOption,
    JunitOption,
    OnOption,
    SummaryOption,
    conclude,
)
from geval.errors import ConfigError, Exit

if TYPE_CHECKING:
    from geval.traffic.plan import Plan, Span


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("score", epilog=_EXAMPLES)(score)


_EXAMPLES = """
Examples:

  geval score --template finance_qa                       the template's own example rows, offline

  geval score answers.csv -t finance_qa --locale ko       a file of yours

  geval score answers.jsonl -t finance_qa --judge openai:MODEL --reasons all

  geval score answers.jsonl -t finance_qa --fail-under 0.8 --junit geval.xml

  geval score answers.csv -t aspect --aspect "Does the answer name a deadline?"

Exit codes: 0 fine, 1 gate failed (--fail-under), 2 usage or configuration, 3 too many rows
unscored, 130 interrupted.
"""


def score(
    data: Annotated[
        str | None,
        typer.Argument(
            help="Rows: .jsonl, .json, .csv, .tsv (also .gz), .xlsx, .parquet, or - for standard "
            "input. Without it the template's own examples are scored.",
            show_default=False,
        ),
    ] = None,
    template: Annotated[
        str, typer.Option("--template", "-t", help="Template by name, or a path to its file.")
    ] = "",
    locale: Annotated[
        str | None,
        typer.Option("--locale", "-l", help="Language of the template (default: the data's)."),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            "-j",
            help="local (default), local:PATH.gguf, openai:MODEL, replay:FILE, or a judge of "
            "geval.toml. Several of them judge as a panel.",
            show_default=False,
        ),
    ] = None,
    pool: Annotated[
        str, typer.Option("--pool", help="How a panel's scores are pooled: mean or median.")
    ] = "mean",
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Endpoint of an OpenAI-compatible server."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="auto, decision, exact, logprobs, samples or single; auto never single.",
        ),
    ] = "auto",
    reasons: Annotated[
        str | None,
        typer.Option(
            "--reasons",
            help="none, low (low or uncertain scores) or all. Default: low for the local judge, "
            "else all.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Judge each row N times.")] = 1,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Calibration file in place of the template's own."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="FIELD=COLUMN where a column's name is not known."),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option("--sheet", help="Sheet of a workbook: its name, its number, or * for all."),
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            help="FIELD=TEXT for all rows (a policy, a rubric); FIELD=@FILE reads the text from a "
            "file. Repeatable.",
        ),
    ] = None,
    aspect: Annotated[
        str | None,
        typer.Option("--aspect", help="The criterion of the template `aspect`, for all rows."),
    ] = None,
    templates: Annotated[
        list[Path] | None,
        typer.Option("--templates", help="Further folder of templates (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Run folder; an unfinished run there continues. Default: runs/..."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Record invalid rows as unscored, judge the rest."),
    ] = False,
    force_new: Annotated[
        bool, typer.Option("--force-new", help="Start over where the run folder holds another run.")
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option("--fail-under", help="Least score, 0 to 1; exit 1 where the run is below."),
    ] = None,
    on: OnOption = "mean",
    max_unscored: Annotated[
        float | None,
        typer.Option(
            "--max-unscored",
            help="Share of rows that may be unscored before exit 3. Default: 0.5, with "
            "--fail-under 0.02.",
        ),
    ] = None,
    junit: JunitOption = None,
    summary: SummaryOption = None,
    github_summary: GithubOption = False,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Calls in flight per endpoint.")
    ] = None,
    rpm: Annotated[
        int | None, typer.Option("--rpm", min=1, help="Requests a minute per endpoint.")
    ] = None,
    tpm: Annotated[
        int | None, typer.Option("--tpm", min=1, help="Tokens a minute per endpoint.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds one attempt may take.")
    ] = 120.0,
    row_timeout: Annotated[
        float,
        typer.Option("--row-timeout", min=0.1, help="Seconds of a call with its retries."),
    ] = 900.0,
    run_timeout: Annotated[
        float | None,
        typer.Option("--run-timeout", min=0.1, help="Seconds after which no call is begun."),
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option("--max-calls", min=0, help="Stop before more paid calls."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=0, help="Stop before more paid tokens.")
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", min=0, help="Stop before more US dollars are spent."),
    ] = None,
    reply_tokens: Annotated[
        int, typer.Option("--reply-tokens", min=16, help="Room for a reply with its reason.")
    ] = 400,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor fill the reply cache.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print calls, tokens, cost and one prompt; ask nothing."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result lines as JSON Lines, no table.")
    ] = False,
    silent: Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the log of the local model.")
    ] = False,
) -> None:
    """Score rows with a rubric template.

    Writes a run folder with manifest.json, results.jsonl, replies.jsonl and report.html, prints a
    table.

    Where the template names `checks: [numbers]`, rows whose answer states a figure that no other
    field of the row holds get the warning numbers_unmatched. It never changes a score.
    """
    import asyncio

    from geval import api
    from geval.cli import ui
    from geval.cli.report import after_score
    from geval.cli.run_table import print_table, words_of
    from geval.runs.gate import Gate
    from geval.runs.told import cautions, summary_line
    from geval.settings import Settings
    from geval.template import Template
    from geval.traffic.limits import Limits

    if not template:
        from geval.template import available, search_path

        known = ", ".join(available(search_path(templates or [])))
        raise ConfigError("name a template with --template NAME", hint=f"Known: {known}.")
    note = ui.quiet if silent else ui.note
    gated = fail_under is not None
    gate = Gate(fail_under, on, (0.02 if gated else 0.5) if max_unscored is None else max_unscored)
    if gated:
        gate.fits(Template.load(template, locale, templates or []))
    files = Files.asked(junit, summary, github_summary)
    if pool not in ("mean", "median"):
        raise ConfigError(f"unknown pool {pool!r}", hint="Known: mean, median.")
    judges = judge or ["local"]
    what: dict[str, Any] = {
        "template": template,
        "locale": locale,
        "judge": judges,
        "base_url": base_url,
        "templates": templates or [],
        "columns": columns or [],
        "sheet": sheet,
        "parameters": ui.parameters(params or [], aspect),
        "method": method,
        "reasons": reasons,
        "repeat": repeat,
        "skip_invalid": skip_invalid,
        "settings": Settings(reply_tokens=reply_tokens),
        "note": note,
    }
    if dry_run:
        _print_plan(asyncio.run(api.aplan(data, **what)), as_json)
        return
    limits = Limits(
        concurrency=concurrency,
        rpm=rpm,
        tpm=tpm,
        attempt_timeout=timeout,
        row_timeout=row_timeout,
        run_timeout=run_timeout,
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_cost=max_cost,
    )
    with ui.progress(template, silent=silent) as on_progress:
        run = asyncio.run(
            api.ascore(
                data,
                **what,
                calibration=calibration,
                pool=pool,  # type: ignore[arg-type]
                out=out,
                force_new=force_new,
                limits=limits,
                cache=not no_cache,
                on_progress=on_progress,
                verbose=verbose,
            )
        )
    word = words_of(run, template, templates or [])
    if as_json:
        from geval.judges.records import dumps

        ui.json_lines(dumps(record) for record in run.results())
    else:
        print_table(run, word)
        ui.out.print(summary_line(run, word), markup=False, soft_wrap=True)
    note(after_score(run, word))
    for text in cautions(run.manifest["summary"], word):
        ui.err.print(text, style="yellow", markup=False, soft_wrap=True)
    message, code = conclude(run, gate, files, word)
    if message:
        style = "green" if code == Exit.OK else "red"
        ui.err.print(message, style=style, markup=False, soft_wrap=True)
    raise typer.Exit(int(code))


def _print_plan(plan: Plan, as_json: bool) -> None:
    from geval.cli import ui
    from geval.judges.records import dumps

    if as_json:
        ui.json_lines([dumps(plan.to_dict())])
        return
    for message in plan.prompt:
        ui.err.print(f"--- {message['role']}", style="bold", markup=False)
        typer.echo(message["content"])
    guess = "" if plan.estimated_from == plan.rows else f" (from the first {plan.estimated_from:,})"
    cost = "unknown: no price is known for this judge"
    if plan.cost is not None:
        cost = f"${plan.cost.low:.4f} to ${plan.cost.high:.4f}" if plan.cost.high else "nothing"
    for name, value in (
        ("rows", f"{plan.rows:,}"),
        ("calls", _span(plan.calls)),
        ("prompt tokens", _span(plan.prompt_tokens) + guess),
        ("reply tokens", _span(plan.completion_tokens)),
        ("cost", cost),
    ):
        typer.echo(f"{name:14}{value}")


def _span(span: Span) -> str:
    return f"{span.low:,.0f} to {span.high:,.0f}"
