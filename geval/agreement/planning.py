"""How many labels an interval of a given width needs, in rows and in groups.

Rows of one document resemble each other, so a tenth row of it tells less than the first row of
another: a mean of n rows is as sure as one of n / (1 + (b - 1) rho) independent rows, with b
labelled rows a group and the correlation rho of rows of one group (Kish 1965, "Survey Sampling").
Labels are taken to be spread over the groups, as `geval label-sheet` spreads them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from geval.agreement.ppi import LEVEL
from geval.stats import numpy, scipy_stats


@dataclass(frozen=True)
class Plan:
    """Rows and groups to label for a mean's interval of `width` (units of the scale).

    With the judge's help (None where labels on all rows would not do), and from people alone: that
    may take more rows and groups than there are. `icc` is the correlation of people's labels within
    a group, `design` the design effect at `rows` (of the judge's errors).
    """

    width: float
    rows: int | None
    groups: int | None
    people_rows: int
    people_groups: int
    icc: float
    design: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def within_correlation(values: Any, group: Any) -> float | None:
    """Correlation of rows of one group (one-way ANOVA), 0..1; None where no group has two rows."""
    np = numpy()
    values = np.asarray(values, float)
    _, group = np.unique(group, return_inverse=True)
    size = np.bincount(group)
    n, k = len(values), len(size)
    if n == k or k < 2:
        return None
    means = np.bincount(group, weights=values) / size
    between = float((size * (means - values.mean()) ** 2).sum()) / (k - 1)
    inside = float(((values - means[group]) ** 2).sum()) / (n - k)
    each = (n - float((size**2).sum()) / n) / (k - 1)
    whole = between + (each - 1) * inside
    return float(np.clip((between - inside) / whole, 0, 1)) if whole > 0 else 0.0


def plan(judge: Any, human: Any, width: float, group: Any = None) -> Plan:
    """Labels needed, from the spread and the correlation at hand.

    `judge` (n,) on all rows, `human` (n,) NaN where there is no label, at least 3 labels. Where the
    labels at hand have no group twice, the judge's correlation within groups stands for people's.
    """
    np = numpy()
    judge, human = np.asarray(judge, float), np.asarray(human, float)
    group = np.arange(len(judge)) if group is None else np.unique(group, return_inverse=True)[1]
    known = np.isfinite(human)
    y, f, of = human[known], judge[known], group[known]
    total, groups = len(judge), len(np.unique(group))
    judge_icc = within_correlation(judge, group) or 0.0
    own = within_correlation(y, of)
    icc = judge_icc if own is None else own
    covariance, spread = float(np.cov(y, f)[0, 1]), float(judge.var(ddof=1))
    people = _alone(float(y.var(ddof=1)), icc, width / 2, groups)
    n = (
        np.arange(5, total)
        if total < 20_000
        else np.unique(np.geomspace(5, total - 1, 4_000, dtype=int))
    )
    if not len(n):
        return Plan(width, None, None, *people, icc, None)
    weight = np.clip(covariance / (spread * (1 + n / (total - n))), 0, 1) if spread else 0.0 * n
    # The errors at the heaviest weight: they resemble each other most where the judge tells least.
    residual = y - float(weight.max()) * f
    rho = within_correlation(residual, of)
    rho = icc if rho is None else rho
    error = y.var(ddof=1) - 2 * weight * covariance + weight**2 * f.var(ddof=1)
    design = 1 + (np.maximum(n / groups, 1) - 1) * rho
    rest = 1 + (np.maximum((total - n) / groups, 1) - 1) * judge_icc
    variance = error * design / n + weight**2 * spread * rest / (total - n)
    free = np.minimum(n, groups) - 2
    half = scipy_stats().t.ppf((1 + LEVEL) / 2, np.maximum(free, 1)) * np.sqrt(variance)
    enough = np.flatnonzero((half <= width / 2) & (free >= 3))
    if not len(enough):
        return Plan(width, None, None, *people, icc, None)
    at = int(enough[0])
    rows = int(n[at])
    return Plan(width, rows, min(rows, groups), *people, icc, float(design[at]))


def _alone(variance: float, icc: float, half: float, groups: int) -> tuple[int, int]:
    """(rows, groups) without the judge; new groups, a row of each, where these would not do."""
    np = numpy()
    z = float(scipy_stats().norm.ppf((1 + LEVEL) / 2))
    independent = z**2 * variance / half**2 + 2
    if independent <= groups or independent * icc >= groups * 0.95:
        rows = int(np.ceil(independent))
        return rows, rows
    rows = int(np.ceil(independent * (1 - icc) / (1 - independent * icc / groups)))
    return rows, groups
