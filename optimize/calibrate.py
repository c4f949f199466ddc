"""A rising map from the judge's score to people's, by group cross-validation on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geval.agreement.fit import fit
from geval.calibration import CalibrationSpec, MapSpec
from geval.errors import DataError
from geval.stats import numpy

from .objective import Judged


def calibrations(
    judged: Judged,
    levels: Mapping[str, Sequence[float]],
    human: Mapping[str, Any],
    group: Any,
    rows: Any,
    seed: int,
) -> dict[str, CalibrationSpec]:
    """A map for each criterion; identity where there are too few rows to fit one."""
    np = numpy()
    found = {}
    for name, values in levels.items():
        x, y = judged.mean(name, values)[rows], human[name][rows]
        ok = np.isfinite(x) & np.isfinite(y)
        try:
            chosen = fit(x[ok], y[ok], group[rows][ok], min(values), max(values), seed).map
        except DataError:
            chosen = MapSpec()
        found[name] = CalibrationSpec(map=_rounded(chosen))
    return found


def _rounded(one: MapSpec) -> MapSpec:
    """Six digits: what is written into the template is what was tested."""
    if one.kind != "affine":
        return one
    return MapSpec(
        kind="affine", intercept=float(f"{one.intercept:.6g}"), slope=float(f"{one.slope:.6g}")
    )


def mapped(values: Any, spec: CalibrationSpec, levels: Sequence[float]) -> Any:
    """Scores (n,) behind the map, NaN kept."""
    np = numpy()
    out = [spec.map(float(v)) if np.isfinite(v) else np.nan for v in values]
    return np.clip(np.array(out), min(levels), max(levels))
