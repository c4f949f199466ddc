"""Fitting a calibration by group cross-validation; held-out figures beside the raw ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geval.calibration import Kind, MapSpec
from geval.errors import DataError
from geval.stats import numpy, scipy_optimize

LEAST_ROWS, LEAST_GROUPS, FOLDS = 20, 5, 5
ISOTONIC_FROM = 200
"""Rows from which a free rising curve is tried: under it the curve follows noise."""


@dataclass(frozen=True)
class Fit:
    """A chosen map and how it does on rows of groups it was not fitted on.

    `raw` and `held_out` hold mae, rmse, bias; `tried` the held-out rmse of every kind.
    """

    map: MapSpec
    n: int
    groups: int
    raw: dict[str, float]
    held_out: dict[str, float]
    tried: dict[str, float]


def fit(judge: Any, human: Any, group: Any, low: float, high: float, seed: int = 0) -> Fit:
    """The simplest map that is better on held-out groups by more than its standard error.

    `judge`, `human` (n,) in units of the scale from `low` to `high`. Raises DataError under 20
    rows or 5 groups.
    """
    np = numpy()
    judge, human = np.asarray(judge, float), np.asarray(human, float)
    _, group = np.unique(group, return_inverse=True)
    groups = int(group.max()) + 1 if len(group) else 0
    if len(judge) < LEAST_ROWS or groups < LEAST_GROUPS:
        raise DataError(
            f"{len(judge)} labelled rows in {groups} groups; a calibration needs at least "
            f"{LEAST_ROWS} rows in {LEAST_GROUPS} groups"
        )
    kinds: list[Kind] = ["identity", "affine"]
    if len(judge) >= ISOTONIC_FROM:
        kinds.append("isotonic")
    fold = np.random.default_rng(seed).permutation(groups)[group] % FOLDS
    held = {kind: np.empty(len(judge)) for kind in kinds}
    for f in range(FOLDS):
        out = fold == f
        if not out.any():
            continue
        for kind in kinds:
            one = _fitted(kind, judge[~out], human[~out], low, high)
            held[kind][out] = _mapped(one, judge[out], low, high)
    loss = {kind: (values - human) ** 2 for kind, values in held.items()}
    chosen: Kind = "identity"
    for kind in kinds[1:]:
        gain = np.bincount(group, weights=loss[chosen] - loss[kind])
        if gain.sum() > np.sqrt((gain**2).sum()):
            chosen = kind
    return Fit(
        _fitted(chosen, judge, human, low, high),
        len(judge),
        groups,
        _figures(judge, human),
        _figures(held[chosen], human),
        {kind: float(np.sqrt(values.mean())) for kind, values in loss.items()},
    )


def _figures(judge: Any, human: Any) -> dict[str, float]:
    np = numpy()
    gap = judge - human
    return {
        "mae": float(np.abs(gap).mean()),
        "rmse": float(np.sqrt((gap**2).mean())),
        "bias": float(gap.mean()),
    }


def _mapped(one: MapSpec, values: Any, low: float, high: float) -> Any:
    np = numpy()
    return np.clip([one(float(v)) for v in values], low, high)


def _fitted(kind: Kind, x: Any, y: Any, low: float, high: float) -> MapSpec:
    """The map of one kind; identity where the judge falls as people rise."""
    np = numpy()
    spread = x.var()
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / spread) if spread > 0 else 0.0
    if kind == "identity" or slope <= 1e-6:
        return MapSpec()
    if kind == "affine":
        return MapSpec(kind="affine", intercept=float(y.mean() - slope * x.mean()), slope=slope)
    order = np.argsort(x, kind="stable")
    # Rows with one score must get one value.
    xs, start, count = np.unique(x[order], return_index=True, return_counts=True)
    means = np.add.reduceat(y[order], start) / count
    curve = scipy_optimize().isotonic_regression(means, weights=count.astype(float)).x
    edge = np.flatnonzero(np.r_[True, np.diff(curve) > 1e-9])
    size = np.add.reduceat(count, edge)
    middle = np.add.reduceat(xs * count, edge) / size
    if len(edge) < 2:
        return _fitted("affine", x, y, low, high)
    # Flat steps become their middles: straight lines between these rise strictly.
    return MapSpec(
        kind="isotonic",
        x=tuple(float(f"{v:.6g}") for v in middle),
        y=tuple(float(f"{v:.6g}") for v in curve[edge]),
    )
