"""`geval optimize`: tune a template against people's labels; `status`, `resume`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.errors import Exit, UsageError

if TYPE_CHECKING:
    from geval.optimize.tuning import Plan, Tuned

_EXAMPLES = """
Examples:

  geval optimize -t finance_qa --labels labels.jsonl --judge openai:MODEL --dry-run

  geval optimize -t finance_qa --labels labels.jsonl --judge openai:MODEL --proposer openai:STRONGER

  geval optimize -t mine.ko.jinja --labels labels.csv --group document --budget 1500

  geval optimize status tuned/finance_qa.ko

  geval optimize resume tuned/finance_qa.ko          what was asked before is not asked again

Exit codes: 0 better or no evidence, 1 worse (with --strict: anything but better),
2 usage or configuration; 130 interrupted, the same command continues.
"""

app = typer.Typer(
    invoke_without_command=True,
    help="Tune a template against people's labels, and say honestly whether it got better.",
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Dir = Annotated[Path, typer.Argument(help="Folder of a study (--out).", show_default=False)]


@app.callback()
def optimize(
    context: typer.Context,
    template: Annotated[
        str, typer.Option("--template", "-t", help="Template by name, or a path to its file.")
    ] = "",
    labels: Annotated[
        str,
        typer.Option("--labels", "-L", help="Rows with people's labels: a column per criterion."),
    ] = "",
    data: Annotated[
        str | None,
        typer.Option("--data", help="Rows to judge, where they are in another file than labels."),
    ] = None,
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of the template.")
    ] = None,
    judge: Annotated[
        str,
        typer.Option("--judge", "-j", help="Judge that the template is tuned for."),
    ] = "local",
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Endpoint of the judge's server.")
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option(
            "--proposer",
            help="Model that writes texts. Default: the judge itself where it can write; none for "
            "nobody, then order, levels' wording, steps and demos are searched.",
        ),
    ] = None,
    proposer_url: Annotated[
        str | None, typer.Option("--proposer-url", help="Endpoint of the proposer's server.")
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="How scores are read, as for `geval score`.")
    ] = "auto",
    budget: Annotated[
        int,
        typer.Option(
            "--budget", "-b", min=1, help="Most requests to judge and proposer, cached or not."
        ),
    ] = 2_000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=10, help="Rounds of proposing and searching.")
    ] = 2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of split and search.")] = 0,
    metric: Annotated[
        str,
        typer.Option("--metric", help="Of the test: spearman, kendall, pearson, qwk, mae or auc."),
    ] = "spearman",
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="Criterion to tune (repeatable); default: all labelled."),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            "--order", help="Order to try: score_only, score_first, reason_first (repeatable)."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Column of the document a row belongs to.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="FIELD=COLUMN or CRITERION=COLUMN (several: annotators)."),
    ] = None,
    label_map: Annotated[
        list[str] | None,
        typer.Option("--label-map", help="What spellings mean, e.g. 상=5,중=3,하=1,보류="),
    ] = None,
    label_scale: Annotated[
        str | None,
        typer.Option("--label-scale", help="Ends of people's scale, LOW:HIGH, where it differs."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the row's id in the labels.")
    ] = None,
    sheet: Annotated[str | None, typer.Option("--sheet", help="Sheet of a workbook.")] = None,
    templates: Annotated[
        list[Path] | None,
        typer.Option("--templates", help="Further folder of templates (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the study. Default: tuned/NAME.LOCALE."),
    ] = None,
    force_new: Annotated[
        bool, typer.Option("--force-new", help="Start over where the folder holds another study.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out rows that cannot be judged.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor fill the user's reply cache.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Calls in flight per endpoint.")
    ] = None,
    rpm: Annotated[
        int | None, typer.Option("--rpm", min=1, help="Requests a minute per endpoint.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 unless the verdict is better.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print trials, requests, tokens and a prompt; ask nothing."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tune a template against people's labels.

    Splits the rows by document, proposes and tries changes on one part, and tests the best of
    them once on rows that nothing has looked at. Writes the template to use, a report and the
    study. The verdict is better, no_evidence or worse.
    """
    if context.invoked_subcommand is not None:
        return
    for name, value in (("--template", template), ("--labels", labels)):
        if not value:
            raise UsageError(f"optimize needs {name}", hint="geval optimize --help shows examples.")
    from geval.cli.agree import ends

    options: dict[str, Any] = {
        "template": template, "data": data, "locale": locale, "judge": judge,
        "base_url": base_url, "proposer": proposer, "proposer_url": proposer_url,
        "method": method, "budget": budget, "rounds": rounds, "seed": seed, "metric": metric,
        "criteria": criteria or [], "orders": order or None, "group": group,
        "columns": columns or [], "label_map": label_map or [],
        "label_scale": ends(label_scale), "id": id_column, "sheet": sheet,
        "templates": templates or [], "skip_invalid": skip_invalid,
    }  # fmt: skip
    from geval.cli import ui

    if dry_run:
        from geval.optimize.tuning import plan

        _show_plan(plan(labels, note=ui.note, **options), as_json)
        return
    run = {"out": out, "force_new": force_new, "cache": not no_cache}
    _tune(labels, options, run, concurrency, rpm, strict, as_json)


def _tune(
    labels: Any,
    options: dict[str, Any],
    run: dict[str, Any],
    concurrency: int | None,
    rpm: int | None,
    strict: bool,
    as_json: bool,
) -> None:
    from geval.cli import ui
    from geval.optimize.tuning import tune
    from geval.traffic.limits import Limits

    limits = Limits(concurrency=concurrency, rpm=rpm)
    tuned = tune(labels, note=ui.note, progress=_Progress(), limits=limits, **options, **run)
    _show(tuned, as_json)
    if tuned.verdict == "worse" or (strict and tuned.verdict != "better"):
        raise typer.Exit(int(Exit.GATE))


@app.command()
def status(folder: Dir, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Tell where a study stands; nothing is asked and nothing is changed."""
    from geval.judges.records import dumps
    from geval.optimize.study import Folder

    study = Folder(folder)
    about = study.read("study.json")["identity"]
    stands = study.read("progress.json") if study.path("progress.json").exists() else {}
    done = study.path("result.json").exists()
    told = {
        "template": f"{about['template']['name']}.{about['template']['locale']}",
        "judge": about["judge"]["spec"],
        "proposer": about["proposer"],
        "running": study.busy(),
        "finished": done and stands.get("phase") == "done",
        **stands,
    }
    if told["finished"]:
        told["verdict"] = study.read("result.json")["result"]["verdict"]
    if as_json:
        typer.echo(dumps(told))
        return
    for name, value in told.items():
        typer.echo(f"{name:12}{'-' if value is None else value}")


@app.command()
def resume(
    folder: Dir,
    strict: Annotated[bool, typer.Option("--strict")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Continue a study with the options it was started with."""
    from geval.optimize.study import Folder

    command = dict(Folder(folder).read("study.json")["command"])
    if not command:
        raise UsageError(
            "this study was started from Python with rows or judges that no file names",
            hint="Call geval.tune with the same arguments; it continues.",
        )
    labels = command.pop("labels")
    run = {"out": folder, "cache": command.pop("cache", True)}
    command.pop("out", None)
    if command.get("label_scale"):
        command["label_scale"] = tuple(command["label_scale"])
    _tune(labels, command, run, None, None, strict, as_json)


@app.command()
def report(folder: Dir) -> None:
    """Write report.html of a finished study anew."""
    from geval.optimize.report import write_report
    from geval.optimize.study import Folder

    study = Folder(folder)
    path = write_report(study.out, study.read("result.json"), study.read("paid.json"))
    typer.echo(f"written to {path}")


class _Progress:
    """A line for each phase and for each better candidate."""

    def __init__(self) -> None:
        self.phase, self.best = "", float("inf")

    def __call__(self, phase: str, tried: Any, ledger: Any) -> None:
        from geval.cli import ui

        losses = [t.loss for t in tried if t.complete]
        better = bool(losses) and min(losses) < self.best - 1e-12
        if phase == self.phase and not better:
            return
        self.phase = phase
        text = f"{phase}: {ledger.used:,} of {ledger.budget:,} requests"
        if losses:
            self.best = min(losses)
            text += f", {len(tried)} tried, loss {losses[0]:.4f} -> {self.best:.4f}"
        ui.note(text)


def _show_plan(plan: Plan, as_json: bool) -> None:
    from geval.judges.records import dumps

    if as_json:
        typer.echo(dumps(plan.to_dict()))
        return
    rows = ", ".join(f"{k} {v}" for k, v in plan.rows.items())
    typer.echo(f"rows        {rows} ({plan.groups} documents)")
    if plan.explore:
        typer.echo("mode        explore: too few rows or documents to call anything better")
    typer.echo(f"budget      {plan.budget:,} requests")
    typer.echo(f"  template  {plan.seed_requests:,} at least, on dev")
    typer.echo(f"  test      {plan.test_requests:,} at least, two templates once")
    typer.echo(
        f"  search    about {plan.candidates} whole candidates with the rest, more with racing"
    )
    typer.echo(f"tokens      about {plan.tokens_per_request:,} a request, "
               f"{plan.tokens_per_request * plan.budget:,} at most without demos")  # fmt: skip
    for name, options in plan.choices.items():
        typer.echo(f"tries       {name}: {', '.join(options)}")
    if len(plan.prompt):
        typer.echo("prompt of the first row:")
        for message in plan.prompt:
            typer.echo(f"[{message['role']}]\n{message['content']}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _show(tuned: Tuned, as_json: bool) -> None:
    from geval.judges.records import dumps

    if as_json:
        told = {**tuned.result, "paid": tuned.paid, "path": str(tuned.path)}
        typer.echo(dumps(told))
        return
    r = tuned.result["result"]
    judge = tuned.result["identity"]["judge"]["spec"]
    typer.echo(f"{judge}: {r['verdict']}")
    typer.echo(
        f"test        {r['metric']} {_number(r['before'])} -> {_number(r['after'])}, gain "
        f"{_number(r['gain'])} [{_number(r['low'])}, {_number(r['high'])}], p {_number(r['p'])} "
        f"(one-sided), {r['rows']} rows in {r['groups']} documents"
    )
    if r["visible"] is not None:
        typer.echo(f"power       a gain of {r['visible']:.3f} would be seen four times in five")
    for name, value in r["ceiling"].items():
        typer.echo(f"people      {name}: one against the others {value:.3f} (spearman)")
    for note in r["notes"]:
        typer.echo(f"note        {note}")
    changed = ", ".join(f"{k} {v}" for k, v in tuned.result["choices"].items())
    typer.echo(f"changed     {changed or 'nothing'}")
    requests = tuned.result["requests"]
    typer.echo(
        f"requests    {requests['total']:,} of {tuned.result['identity']['budget']:,}; paid "
        f"{tuned.paid['requests']:,} ({tuned.paid['tokens']:,} tokens)"
    )
    typer.echo(f"template    {tuned.path}")
    if tuned.candidate:
        typer.echo(f"candidate   {tuned.candidate} (not shown to be better)")
    if tuned.report:
        typer.echo(f"report      {tuned.report}")
