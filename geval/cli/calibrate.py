"""`geval calibrate`: fit a map to people's labels, or a level prior without labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.agree import Columns, Group, IdColumn, LabelMap, LabelScale, Sheet, ends
from geval.cli.run_argument import RunName
from geval.errors import DataError, UsageError

if TYPE_CHECKING:
    from geval.calibration import CalibrationSpec

_EXAMPLES = """
Examples:

  geval calibrate RUN --labels labels.csv --write templates/finance_qa.ko.jinja

  geval calibrate RUN --unlabelled --strength 0.5 --out calibration.yaml

  geval score DATA -t finance_qa --calibration calibration.yaml
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("calibrate", epilog=_EXAMPLES)(calibrate)


def calibrate(
    run: RunName,
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
    --out; `score` applies what stands in the template and keeps the raw score.
    """
    from geval import calibration
    from geval.runs.find import open_run

    if unlabelled == (labels is not None):
        raise UsageError("calibrate takes --labels FILE or --unlabelled, one of them")
    source = open_run(run)
    if unlabelled:
        specs = _priors(source, strength, reordered)
    else:
        how: dict[str, Any] = {
            "group": group,
            "columns": columns or [],
            "label_map": label_map or [],
            "label_scale": ends(label_scale),
            "id": id_column,
            "sheet": sheet,
        }
        specs = _maps(source, labels, how)
    if write is not None:
        told = source.manifest.get("template", {})
        calibration.write_into(write, specs, told.get("fingerprint"))
        typer.echo(f"written into {write}")
    if out is not None:
        out.write_text(calibration.block(specs), encoding="utf-8")
        typer.echo(f"written to {out}")
    if write is None and out is None:
        typer.echo(calibration.block(specs), nl=False)


def _priors(run: Any, strength: float, reordered: Path | None) -> dict[str, CalibrationSpec]:
    from geval.agreement.level_prior import batch_prior, order_prior
    from geval.agreement.measure import read_judged
    from geval.calibration import CalibrationSpec
    from geval.runs.find import open_run

    other = read_judged(open_run(reordered)) if reordered else {}
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


def _maps(run: Any, labels: Any, how: dict[str, Any]) -> dict[str, CalibrationSpec]:
    from geval.agreement.fit import fit
    from geval.agreement.measure import joined
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


def run_calibration(run: Any) -> dict[str, CalibrationSpec]:
    """The calibration that a run was scored with."""
    from geval.calibration import CalibrationSpec

    told = run.manifest.get("template", {}).get("calibration") or {}
    return {name: CalibrationSpec.model_validate(value) for name, value in told.items()}
