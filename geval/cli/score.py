"""`geval score`: judge rows with a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.errors import ConfigError, Exit

if TYPE_CHECKING:
    from geval.runs.run import Run
    from geval.traffic.plan import Plan, Span

SHOWN = 50


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("score", epilog=_EXAMPLES)(score)


_EXAMPLES = """
Examples:

  geval score --template finance_qa                       the template's own example rows, offline

  geval score answers.csv -t finance_qa --locale ko       a file of yours

  geval score answers.jsonl -t finance_qa --judge openai:MODEL --reasons all

  geval score answers.csv -t aspect --aspect "Does the answer name a deadline?"

Exit codes: 0 fine, 2 usage or configuration, 3 too many rows unscored, 130 interrupted.
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
    max_unscored: Annotated[
        float,
        typer.Option(
            "--max-unscored", min=0, max=1, help="Share of rows that may be unscored before exit 3."
        ),
    ] = 0.5,
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
    from geval.settings import Settings
    from geval.traffic.limits import Limits

    if not template:
        from geval.template import available, search_path

        known = ", ".join(available(search_path(templates or [])))
        raise ConfigError("name a template with --template NAME", hint=f"Known: {known}.")
    note = ui.quiet if silent else ui.note
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
    summary = run.manifest["summary"]
    word = _words(run, template, templates or [])
    if as_json:
        from geval.judges.records import dumps

        ui.json_lines(dumps(record) for record in run.results())
    else:
        _print_table(run, word)
        ui.out.print(summary_line(run, word), markup=False, soft_wrap=True)
    note(after_score(run, word))
    for text in cautions(summary, word):
        ui.err.print(text, style="yellow", markup=False, soft_wrap=True)
    counts = summary["overall"]
    rows = sum(counts[status] for status in ("scored", "unscored", "not_applicable"))
    if rows and (counts["unscored"] > max_unscored * rows or not counts["scored"]):
        ui.err.print(
            word["too_many_unscored"].format(n=counts["unscored"], rows=rows, most=max_unscored),
            style="red",
            markup=False,
        )
        raise typer.Exit(int(Exit.UNSCORED))


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


def _words(run: Run, template: str, templates: Sequence[Path]) -> Mapping[str, Any]:
    """Report words of the run's locale, which may lie beside the user's own templates."""
    from geval.locale import report_words
    from geval.template import locale_folders, search_path

    folders = [Path(template).resolve().parent, *search_path(templates)]
    return report_words(run.manifest["template"]["locale"], locale_folders(folders))


def _print_table(run: Run, word: Mapping[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from geval.cli import ui
    from geval.runs.run import table_rows

    told = run.manifest["template"]
    names = list(told["weights"])
    titles = _titles(run)
    rows = table_rows(run.results())
    spread = ui.out.width >= 40 + 14 * len(names)  # a narrow terminal keeps the scores
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(word["id"], overflow="fold", min_width=6)
    for name in names:
        table.add_column(
            escape(titles.get(name, name)), justify="right", overflow="fold", min_width=4
        )
    table.add_column(f"{word['overall']} (0–1)", justify="right", style="bold", min_width=6)
    table.add_column(word["coverage"], justify="right", min_width=5)
    for row in rows[:SHOWN]:
        judged = row.get("status") != "unscored"
        table.add_row(
            escape(_short(str(row["id"]))) + (f" #{row['repeat']}" if row["repeat"] else ""),
            *(_score_cell(row, name, word["not_applicable"], spread) for name in names),
            word["not_applicable"]
            if row.get("status") == "not_applicable"
            else _cell(row.get("overall"), "{:.3f}") + ("*" if row.get("capped") else ""),
            _cell(row.get("coverage") if judged else None, "{:.3f}"),
        )
    ui.out.print(table)
    if legend := _legend(rows, word, spread):
        ui.out.print(legend, style="dim", markup=False, soft_wrap=True)
    if len(rows) > SHOWN:
        more = word["more_rows"].format(n=len(rows) - SHOWN, path=run.folder / "results.jsonl")
        ui.out.print(more, markup=False, soft_wrap=True)
    for row in [r for r in rows if r.get("error")][:5]:
        ui.err.print(f"{row['id']}: {row['error']}", style="red", markup=False, soft_wrap=True)
    for row in [r for r in rows if r.get("numbers_unmatched")][:5]:
        texts = ", ".join(_short(text, 40) for text in row["numbers_unmatched"][:8])
        told = f"{_short(str(row['id']))}: numbers_unmatched: {texts}"
        ui.err.print(told, style="yellow", markup=False, soft_wrap=True)


def _short(text: str, most: int = 24) -> str:
    """A long id must not push the scores off the screen; results.jsonl has it whole."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _score_cell(row: dict[str, Any], name: str, not_applicable: str, spread: bool) -> str:
    """Score and, with `spread`, its ±; "-" is unscored.

    That is the standard deviation over the levels, or the standard error of an aggregate of units.
    """
    if row.get(f"{name}_status") == "not_applicable":
        return not_applicable
    score, sd, se = (row.get(key) for key in (name, f"{name}_sd", f"{name}_se"))
    told = f" ±{sd:.1f}" if sd is not None else "" if se is None else f" ±{se:.2f}"
    return _cell(score, "{:.2f}") + (told if score is not None and spread else "")


def _legend(rows: Sequence[dict[str, Any]], word: Mapping[str, Any], spread: bool) -> str:
    told = [word["legend_sd"]] if spread else []
    if any(row.get("capped") for row in rows):
        told.append(word["legend_capped"])
    if any(row.get("status") == "unscored" for row in rows):
        told.append(word["legend_unscored"])
    return " · ".join(told)


def _titles(run: Run) -> dict[str, str]:
    titles = run.manifest["template"].get("titles", {})
    return dict(titles)


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)


def summary_line(run: Run, word: Mapping[str, Any]) -> str:
    """Mean, rows scored of rows, method, judge, tokens, seconds and run folder in one line."""
    manifest = run.manifest
    summary = manifest["summary"]
    counts, usage = summary["overall"], summary["usage"]
    rows = counts["scored"] + counts["unscored"] + counts["not_applicable"]
    mean = counts.get("mean")
    shown = "-" if mean is None else f"{mean:.3f}"
    if counts["unscored"] and counts.get("pessimistic_mean") is not None:
        shown += f" ({word['pessimistic']} {counts['pessimistic_mean']:.3f})"
    read = usage.get("prompt_tokens", 0)
    cached = usage.get("cached_tokens", 0)
    tokens = f"{read + usage.get('completion_tokens', 0):,}"
    if cached:
        tokens += f" ({word['reused']} {cached:,})"
    if hits := (manifest.get("paid") or {}).get("cache_hits"):
        tokens += f" ({word['from_cache']} {hits:,})"
    methods = "+".join(summary["methods"]) or "-"
    return " · ".join(
        [
            f"{word['mean']} {shown}",
            f"{word['scored']} {counts['scored']}/{rows}",
            f"{word['method']} {methods}",
            f"{word['judge']} {' + '.join(j['spec'] for j in manifest['judges'])}",
            f"{word['tokens']} {tokens}",
            f"{manifest['seconds']:.1f} {word['seconds']}",
            f"{word['run_folder']} {run.folder}",
        ]
    )


def cautions(summary: dict[str, Any], word: Mapping[str, Any]) -> list[str]:
    """Things about a run that a reader of its mean should know."""
    told = []
    if len(summary["methods"]) > 1:
        mixed = ", ".join(f"{name} {count}" for name, count in summary["methods"].items())
        told.append(word["caution_mixed"].format(methods=mixed))
    if summary["failures"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in summary["failures"].items())
        told.append(f"{word['unscored']}: {kinds}")
    failed = {k: n for k, n in summary["warnings"].items() if k.startswith("juror_failed_")}
    if failed:
        named = ", ".join(f"{k.removeprefix('juror_failed_')} {n}" for k, n in failed.items())
        told.append(word["caution_juror"].format(judges=named))
    differing = summary["warnings"].get("prompt_differs_from_recording")
    if differing:
        told.append(word["caution_recording"].format(n=differing))
    if elsewhere := summary["warnings"].get("reason_language"):
        told.append(word["caution_language"].format(n=elsewhere))
    if figures := summary["warnings"].get("numbers_unmatched"):
        told.append(word["caution_numbers"].format(n=figures))
    if summary["narrow"]:
        told.append(word["caution_narrow"].format(criteria=", ".join(summary["narrow"])))
    noise = summary.get("noise")
    if noise and noise["rows"]:
        told.append(word["caution_noise"].format_map(noise))
    return told
