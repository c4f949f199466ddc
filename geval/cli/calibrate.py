"""`geval calibrate`: fit a map to people's labels, or a level prior without labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.agree import Columns, Group, IdColumn, LabelMap, LabelScale, Sheet, ends
from geval.errors import DataError, UsageError

if TYPE_CHECKING:
    from geval.calibration import CalibrationSpec
    from geval.job import Job
    from geval.runs.run import Run
    from geval.template import Template

_EXAMPLES = """
Examples:

  geval calibrate RUN --labels labels.csv --write templates/finance_qa.ko.jinja

  geval calibrate RUN --unlabelled --strength 0.5 --out calibration.yaml

  geval calibrate --unlabelled rows.jsonl -t mine.ko.jinja --both-orders --write mine.ko.jinja

  geval score DATA -t finance_qa --calibration calibration.yaml
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("calibrate", epilog=_EXAMPLES)(calibrate)


def calibrate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|DATA",
            help="A run (folder, name or `last`); with --template a data file, which is judged.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        str | None, typer.Option("--labels", "-L", help="People's labels: fit a map to them.")
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="Estimate the levels that the judge prefers anyway."),
    ] = False,
    strength: Annotated[
        float,
        typer.Option("--strength", min=0, max=1, help="How much of the level prior is taken out."),
    ] = 1.0,
    reordered: Annotated[
        Path | None,
        typer.Option(
            "--reordered",
            help="With --unlabelled: a run of the same rows, levels named in another order.",
        ),
    ] = None,
    both_orders: Annotated[
        bool,
        typer.Option(
            "--both-orders",
            help="With a data file: judge it twice, levels named up and down, and take out only "
            "what the order moves.",
        ),
    ] = False,
    template: Annotated[
        str | None, typer.Option("--template", "-t", help="Judge a data file with this template.")
    ] = None,
    locale: Annotated[
        str | None, typer.Option("--locale", "-l", help="Language of the template.")
    ] = None,
    judge: Annotated[
        list[str] | None, typer.Option("--judge", "-j", help="Who judges the data (as in score).")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="How a judge is read (as in score).")
    ] = None,
    group: Group = None,
    columns: Columns = None,
    label_map: LabelMap = None,
    label_scale: LabelScale = None,
    id_column: IdColumn = None,
    sheet: Sheet = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Template file to put it into.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for `score --calibration`.")
    ] = None,
) -> None:
    """Calibrate a run's scores: to people's labels, or against the judge's own taste in levels.

    Prints raw and calibrated figures on held-out groups. Nothing is changed without --write or
    --out; `score` applies what stands in the template and keeps the raw score. Whether it helped
    `agree` says of a run that was scored with it.
    """
    from geval import calibration
    from geval.runs.find import open_run

    if unlabelled == (labels is not None):
        raise UsageError("calibrate takes --labels FILE or --unlabelled, one of them")
    if template is None and (both_orders or judge or locale or method):
        raise UsageError(
            "--both-orders, --judge, --locale and --method are for a data file",
            hint="Name its template: geval calibrate --unlabelled DATA -t TEMPLATE",
        )
    if both_orders and (not unlabelled or reordered):
        raise UsageError("--both-orders goes with --unlabelled DATA, and without --reordered")
    other = open_run(reordered) if reordered else None
    if template is None:
        run = open_run(source)
    else:
        asked = {"locale": locale, "judge": judge or ["local"], "method": method}
        run, falling = _judged(source, template, asked, both_orders)
        other = falling or other
    if unlabelled:
        specs = _priors(run, strength, other)
    else:
        how: dict[str, Any] = {
            "group": group,
            "columns": columns or [],
            "label_map": label_map or [],
            "label_scale": ends(label_scale),
            "id": id_column,
            "sheet": sheet,
        }
        specs = _maps(run, labels, how)
    if write is not None:
        told = run.manifest.get("template", {})
        calibration.write_into(write, specs, told.get("fingerprint"))
        typer.echo(f"written into {write}")
    if out is not None:
        out.write_text(calibration.block(specs), encoding="utf-8")
        typer.echo(f"written to {out}")
    if write is None and out is None:
        typer.echo(calibration.block(specs), nl=False)


def _judged(
    data: str, template: str, asked: Mapping[str, Any], both: bool
) -> tuple[Run, Run | None]:
    """A run over the data, and with `both` a second whose levels are named from the highest."""
    from dataclasses import replace

    from geval import api
    from geval.cli import ui
    from geval.job import prepare

    job = prepare(data, template=template, locale=asked["locale"], note=ui.note)
    chosen, falling = job.template, replace(job.template, falling=True)
    if both:  # found before the first call
        _moves(job, falling)
    how = {"judge": asked["judge"], "method": asked["method"], "reasons": "none"}
    runs = []
    for one in (chosen, falling)[: 1 + both]:
        with ui.progress(chosen.name) as on_progress:
            runs.append(api.score(data, template=one, **how, on_progress=on_progress))
        ui.note(str(runs[-1].folder))
    return runs[0], runs[1] if both else None


def _moves(job: Job, falling: Template) -> None:
    """Raise UsageError where the order of the levels is not in the prompts."""
    row = next(iter(job.data.samples()))
    for one in job.template.criteria:
        if job.template.renderer.render(row, one) == falling.renderer.render(row, one):
            raise UsageError(
                f"naming the levels of {one.name} from the highest down changes no prompt: the "
                "template's body names them itself",
                hint="Take --unlabelled alone, or --reordered RUN with a run whose template names "
                "them in another order.",
            )


def _priors(run: Run, strength: float, reordered: Run | None) -> dict[str, CalibrationSpec]:
    from geval.agreement.judged import read_judged
    from geval.agreement.level_prior import batch_prior, order_prior
    from geval.calibration import CalibrationSpec

    other = read_judged(reordered) if reordered else {}
    kept = run_calibration(run)
    specs = {}
    for name, one in read_judged(run).items():
        if not one.levels or not one.probs:
            continue
        if reordered:
            if name not in other:
                raise DataError(f"{name}: the other run has no such criterion")
            prior = order_prior(one.probs, other[name].probs)
        else:
            prior = batch_prior(list(one.probs.values()))
        shown = ", ".join(f"{v:g}: {p:.3f}" for v, p in zip(one.levels, prior, strict=True))
        typer.echo(f"{name}: level prior over {len(one.probs)} rows: {shown}")
        if name in kept and kept[name].map.kind != "identity":
            typer.echo(f"{name}: the map of before was fitted without this prior and is dropped")
        specs[name] = CalibrationSpec(level_prior=prior, strength=strength)
    if not specs:
        raise DataError("no criterion of this run has distributions over levels")
    return specs


def _maps(run: Run, labels: Any, how: dict[str, Any]) -> dict[str, CalibrationSpec]:
    from geval.agreement.fit import fit
    from geval.agreement.join import joined
    from geval.calibration import CalibrationSpec

    kept = run_calibration(run)
    specs = {}
    for name, rows in joined(run, labels, **how).items():
        before = kept.get(name, CalibrationSpec())
        low, high = rows.levels[0], rows.levels[-1]
        found = fit(rows.unmapped(before), rows.human, rows.group, low, high)
        typer.echo(f"{name}: {found.map.kind}, {found.n} rows in {found.groups} groups")
        for what, figures in (("raw", found.raw), ("held out", found.held_out)):
            told = ", ".join(f"{k} {v:.3f}" for k, v in figures.items())
            typer.echo(f"  {what:9}{told}")
        typer.echo("  rmse held out: " + ", ".join(f"{k} {v:.3f}" for k, v in found.tried.items()))
        specs[name] = before.model_copy(update={"map": found.map})
    if not specs:
        raise DataError("no criterion has labels on the judge's scale")
    return specs


def run_calibration(run: Run) -> dict[str, CalibrationSpec]:
    """The calibration that a run was scored with."""
    from geval.calibration import CalibrationSpec

    told = run.manifest.get("template", {}).get("calibration") or {}
    return {name: CalibrationSpec.model_validate(value) for name, value in told.items()}
