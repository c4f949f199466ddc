"""What people would have said on all rows, from labels on a part of them and the judge on all.

Prediction-powered inference with power tuning (Angelopoulos, Duchi, Zrnic 2023, "PPI++"): the
judge's mean on the unlabelled rows plus the labelled rows' mean error, the judge weighted by
lambda, which is 0 where it tells nothing. The interval counts the judge's error; rows of a group
are taken together (cluster-robust). For two levels also the correction by the judge's
sensitivity and specificity (Rogan & Gladen 1978; Lee et al. 2026 on reporting judge results).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from geval.stats import numpy, scipy_stats

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval; `naive` is the judge's own, `weight` lambda (0..1).

    `groups` are those of all rows, `groups_labelled` those that hold a label.
    """

    n_labelled: int
    n_rest: int
    naive: float
    value: float
    low: float | None
    high: float | None
    weight: float
    people_only: float
    groups: int
    groups_labelled: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def tuned(human: Any, judge: Any, rest: Any) -> tuple[Any, Any, Any]:
    """(estimate, standard error, lambda) of independent rows, over the last axis.

    `human`, `judge`: (..., n) on the labelled rows; `rest`: (..., N) the judge on the others.
    """
    np = numpy()
    n, more = human.shape[-1], rest.shape[-1]
    y, f = human - human.mean(-1, keepdims=True), judge - judge.mean(-1, keepdims=True)
    weight = _lambda((y * f).sum(-1) / (n - 1), judge, rest)
    error = y - weight[..., None] * f
    spread = (error**2).sum(-1) / (n - 2)
    variance = spread / n + weight**2 * rest.var(-1, ddof=1) / more
    value = weight * rest.mean(-1) + human.mean(-1) - weight * judge.mean(-1)
    return value, np.sqrt(variance), weight


def _lambda(covariance: Any, judge: Any, rest: Any) -> Any:
    np = numpy()
    n, more = judge.shape[-1], rest.shape[-1]
    spread = np.concatenate([judge, rest], axis=-1).var(-1, ddof=1) * (1 + n / more)
    return np.clip(np.where(spread > 0, covariance / np.where(spread > 0, spread, 1), 0), 0, 1)


def mean(judge: Any, human: Any, group: Any = None) -> Mean | None:
    """The mean of people over all rows. `human` (n,) is NaN where nobody said anything.

    None with fewer than 2 labels; no interval with fewer than 5 groups that have labels.
    """
    np = numpy()
    judge, human = np.asarray(judge, float), np.asarray(human, float)
    known = np.isfinite(human)
    n, more = int(known.sum()), int((~known).sum())
    if n < 2:
        return None
    group = np.arange(len(judge)) if group is None else np.unique(group, return_inverse=True)[1]
    y, f, rest = human[known], judge[known], judge[~known]
    weight = 0.0
    if more > 1 and n > 2:
        weight = float(_lambda(np.cov(y, f)[0, 1], f, rest))
    value = float(y.mean() + (weight * (rest.mean() - f.mean()) if more else 0.0))
    # What each row adds to the estimate, summed within its group.
    part = np.zeros(len(judge))
    error = y - weight * f
    part[known] = (error - error.mean()) / n
    if more and weight:
        part[~known] = weight * (rest - rest.mean()) / more
    sums, labelled = np.bincount(group, weights=part), len(np.unique(group[known]))
    low, high = _ends(value, sums, labelled, weight)
    return Mean(
        n, more, float(judge.mean()), value, low, high, weight, float(y.mean()), len(sums), labelled
    )


def _ends(value: float, sums: Any, labelled: int, weight: float) -> tuple[float | None, ...]:
    """The interval from what each group adds (G,); none where under 5 groups have labels."""
    np = numpy()
    if labelled < 5:
        return None, None
    free = labelled - (2 if weight else 1)
    groups = len(sums)
    spread = (sums**2).sum() * groups / (groups - 1) * (labelled - 1) / free
    half = float(scipy_stats().t.ppf((1 + LEVEL) / 2, free) * np.sqrt(spread))
    return value - half, value + half


def differences(judge: Any, human: Any, group: Any, system: Any) -> dict[tuple[str, str], Mean]:
    """People's mean difference of each two systems, paired by group, from all rows (n,) of both.

    Groups that hold both systems count, each once: a row weighs one over the rows of its system in
    its group, so that a system with more rows in an easy document gains nothing by it. What the
    two have in common within a group cancels in the interval. Pairs with fewer than 2 labelled
    rows of either system are left out.
    """
    np = numpy()
    judge, human = np.asarray(judge, float), np.asarray(human, float)
    group, system = np.unique(group, return_inverse=True)[1], np.asarray(system).astype(str)
    names = [str(name) for name in np.unique(system)]
    rows = np.array([np.bincount(group[system == n], minlength=group.max() + 1) for n in names])
    found = {}
    for at, a in enumerate(names):
        for offset, b in enumerate(names[at + 1 :], at + 1):
            both = (rows[at] > 0) & (rows[offset] > 0)
            kept = both[group] & ((system == a) | (system == b))
            if both.sum() < 2:
                continue
            first = system[kept] == a
            of = group[kept]
            share = 1 / np.where(first, rows[at][of], rows[offset][of])
            one = _difference(judge[kept], human[kept], of, first, share)
            if one is not None:
                found[a, b] = one
    return found


def _difference(judge: Any, human: Any, group: Any, first: Any, share: Any) -> Mean | None:
    """Rows (n,) where `first` minus the others; `share` is what a row weighs.

    The judge's weight lambda is tuned on what groups add, not rows: what the systems share within
    a group would otherwise pass for information.
    """
    np = numpy()
    group = np.unique(group, return_inverse=True)[1]
    known = np.isfinite(human)
    own, helped = np.zeros(len(judge)), np.zeros(len(judge))
    people = shift = naive = 0.0
    for sign, side in ((1.0, first), (-1.0, ~first)):
        here, rest = side & known, side & ~known
        if here.sum() < 2:
            return None
        naive += sign * float(np.average(judge[side], weights=share[side]))
        mean, add = _centred(human, here, share)
        people += sign * mean
        own += sign * add
        if rest.any():
            (labelled, add), (other, less) = (_centred(judge, m, share) for m in (here, rest))
            shift += sign * (other - labelled)
            helped += sign * (add - less)
    sums, help_sums = (np.bincount(group, weights=v) for v in (own, helped))
    weight, spread = 0.0, float((help_sums**2).sum())
    labelled_groups = len(np.unique(group[known]))
    if spread > 0 and labelled_groups > 2:
        weight = float(np.clip((sums * help_sums).sum() / spread, 0, 1))
    value = people + weight * shift
    low, high = _ends(value, sums - weight * help_sums, labelled_groups, weight)
    n = int(known.sum())
    return Mean(
        n, len(judge) - n, naive, value, low, high, weight, people, len(sums), labelled_groups
    )


def _centred(values: Any, mask: Any, share: Any) -> tuple[float, Any]:
    """Weighted mean of the masked rows, and what each row (n,) adds to its error."""
    np = numpy()
    weights = np.where(mask, share, 0.0)
    weights = weights / weights.sum()
    held = np.where(mask, values, 0.0)
    mean = float((weights * held).sum())
    return mean, weights * (held - mean)


def two_levels(judge: Any, human: Any) -> Mean | None:
    """Share of the upper level (labels 0 or 1, judge's verdicts 0 or 1), by the judge's errors.

    None where people gave only one level, or the judge is no better than chance.
    """
    np = numpy()
    judge, human = np.asarray(judge, float), np.asarray(human, float)
    known = np.isfinite(human)
    up, down = known & (human == 1), known & (human == 0)
    ups, downs, more = int(up.sum()), int(down.sum()), int((~known).sum())
    if not ups or not downs or not more:
        return None
    # Agresti & Coull: a cell of 0 errors must not count as certain.
    sure, clear = (judge[up].sum() + 1) / (ups + 2), 1 - (judge[down].sum() + 1) / (downs + 2)
    youden = sure + clear - 1
    if youden <= 0.05:
        return None
    seen = judge[~known].mean()
    value = float(np.clip((seen + clear - 1) / youden, 0, 1))
    variance = (
        seen * (1 - seen) / more
        + value**2 * sure * (1 - sure) / (ups + 2)
        + (1 - value) ** 2 * clear * (1 - clear) / (downs + 2)
    ) / youden**2
    half = float(scipy_stats().norm.ppf((1 + LEVEL) / 2) * np.sqrt(variance))
    low, high = max(0.0, value - half), min(1.0, value + half)
    people = float(human[known].mean())
    n = ups + downs
    return Mean(
        n, more, float(judge.mean()), value, low, high, float(youden), people, len(judge), n
    )
