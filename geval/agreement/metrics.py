"""Statistics of agreement: each takes `Pairs` and weights (draws, G) and gives (draws,).

NaN where a draw has no value (constant scores). `METRICS` says at which level each is taken and
what it needs; a further one is a function and a line there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from geval.agreement.levels import per_group, system
from geval.agreement.pairs import Pairs
from geval.agreement.resample import in_chunks, ratio
from geval.stats import numpy, scipy_stats

Level = Literal["pooled", "per_group", "system"]
Fn = Callable[[Pairs, Any], Any]
MAX_SIGN_GROUPS = 2_000
"""Groups up to which rank pairs are counted by pairs of groups (memory: 24 bytes a pair)."""
MAX_SIGN_ROWS = 30_000


@dataclass(frozen=True)
class Metric:
    """One statistic: `needs` are of scale, two_levels, probs, groups, systems."""

    fn: Fn
    level: Level = "pooled"
    needs: tuple[str, ...] = ()
    correlation: bool = False


def pearson(p: Pairs, w: Any) -> Any:
    """Product-moment correlation."""
    np = numpy()
    # Centred first: sums of squares of scores far from 0 would lose their digits.
    x, y = p.judge - p.judge.mean(), p.human - p.human.mean()
    n, sx, sy, sxx, syy, sxy = p.total(
        w, np.stack([np.ones(p.n), x, y, x * x, y * y, x * y], axis=1)
    ).T
    vx, vy = n * sxx - sx * sx, n * syy - sy * sy
    flat = (vx <= 1e-12 * np.maximum(1, n * sxx)) | (vy <= 1e-12 * np.maximum(1, n * syy))
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (n * sxy - sx * sy) / np.sqrt(vx * vy)
    return np.where(flat, np.nan, np.clip(r, -1, 1))


def _weighted_ranks(values: Any, w: Any) -> Any:
    """Mean ranks (draws, n) of `values` where row i stands w[:, i] times."""
    np = numpy()
    _, number = np.unique(values, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(int(number.max()) + 1))
    mass = np.add.reduceat(w[:, order], starts, axis=1)
    upto = np.cumsum(mass, axis=1)
    return (upto - mass / 2 + 0.5)[:, number]


def spearman(p: Pairs, w: Any) -> Any:
    """Rank correlation, ties at their mean rank; ranks are those of each draw."""
    if p.orders.possible:
        return p.orders.spearman(w)
    return in_chunks(partial(_spearman, p), w, p.n)


def _spearman(p: Pairs, w: Any) -> Any:
    np = numpy()
    rows = w[:, p.group]
    n = rows.sum(axis=1)
    a, b = _weighted_ranks(p.judge, rows), _weighted_ranks(p.human, rows)
    middle = ((n + 1) / 2)[:, None]
    a -= middle
    b -= middle
    wa = rows * a
    va, vb = (wa * a).sum(axis=1), (rows * b * b).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (wa * b).sum(axis=1) / np.sqrt(va * vb)
    return np.where((va <= 1e-9) | (vb <= 1e-9), np.nan, np.clip(r, -1, 1))


def _kendall(p: Pairs, w: Any, variant: str) -> Any:
    np = numpy()
    if p.orders.possible:
        both, own, people = p.orders.kendall(w)
    elif p.groups <= MAX_SIGN_GROUPS and p.n <= MAX_SIGN_ROWS:
        both, own, people = (np.einsum("bg,bg->b", w @ m, w) for m in p.signs)
    elif len(w) > 1:  # the interval costs the square of the rows; the value does not
        return np.full(len(w), np.nan)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = scipy_stats().kendalltau(p.judge, p.human, variant=variant).statistic
        return np.array([value])
    if variant == "b":
        return ratio(both, np.sqrt(own * people))
    m = min(len(np.unique(p.judge)), len(np.unique(p.human)))
    n = p.count(w)
    return ratio(both * m, n * n * (m - 1)) if m > 1 else np.full(len(w), np.nan)


def mean_bias(p: Pairs, w: Any) -> Any:
    """Judge minus people: above 0 the judge is mild."""
    return p.total(w, p.judge - p.human) / p.count(w)


def mae(p: Pairs, w: Any) -> Any:
    """Mean absolute difference."""
    return p.total(w, abs(p.judge - p.human)) / p.count(w)


def rmse(p: Pairs, w: Any) -> Any:
    """Root of the mean squared difference."""
    return numpy().sqrt(p.total(w, (p.judge - p.human) ** 2) / p.count(w))


def exact(p: Pairs, w: Any) -> Any:
    """Share of rows on the same level."""
    return p.total(w, (p.level_of(p.judge) == p.level_of(p.human)).astype(float)) / p.count(w)


def within_one(p: Pairs, w: Any) -> Any:
    """Share of rows at most one level apart."""
    apart = abs(p.level_of(p.judge) - p.level_of(p.human))
    return p.total(w, (apart <= 1).astype(float)) / p.count(w)


def base_rate(p: Pairs, w: Any) -> Any:
    """Share of the people's commonest level: what saying always the same would reach."""
    t = p.table(w)
    return ratio(t.sum(axis=2).max(axis=1), t.sum(axis=(1, 2)))


def _kappa(p: Pairs, w: Any, power: float) -> Any:
    """Weighted kappa (Cohen 1968) over levels numbered 0..K-1."""
    np = numpy()
    t = p.table(w)
    k = t.shape[1]
    cost = np.abs(np.arange(k)[:, None] - np.arange(k)[None, :]) ** power
    n = t.sum(axis=(1, 2))
    chance = np.einsum("bi,bj,ij->b", t.sum(axis=2), t.sum(axis=1), cost)
    return 1 - ratio((t * cost).sum(axis=(1, 2)) * n, chance)


def _alpha(p: Pairs, w: Any, kind: str) -> Any:
    """Krippendorff's alpha of judge and people, from the table of levels."""
    np = numpy()
    t = p.table(w)
    met = t + t.transpose(0, 2, 1)
    return alpha_of(met, np.asarray(p.levels), kind)


def alpha_of(met: Any, values: Any, kind: str) -> Any:
    """Alpha from coincidences (draws, K, K) of the levels `values` (Krippendorff 2011)."""
    np = numpy()
    of = met.sum(axis=2)
    n = of.sum(axis=1)
    if kind == "nominal":
        apart = np.broadcast_to(1.0 - np.eye(len(values)), met.shape)
    elif kind == "interval":
        apart = np.broadcast_to((values[:, None] - values[None, :]) ** 2, met.shape)
    else:  # ordinal: how many values lie between two, half of each end
        middle = np.cumsum(of, axis=1) - of / 2
        apart = (middle[:, :, None] - middle[:, None, :]) ** 2
    seen = (met * apart).sum(axis=(1, 2))
    chance = np.einsum("bi,bj,bij->b", of, of, apart)
    return 1 - ratio(seen * (n - 1), chance)


def _two(p: Pairs, w: Any, wanted: str) -> Any:
    """AUC, or average precision, of the higher of the two labels."""
    np = numpy()
    if wanted == "auc" and p.orders.possible and len(p.orders.levels) == 2:
        return p.orders.auc(w)
    positive = p.human == p.human.max()
    _, number = np.unique(-p.judge, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(int(number.max()) + 1))

    def chunk(weights: Any) -> Any:
        rows = weights[:, p.group]
        pos = np.add.reduceat((rows * positive)[:, order], starts, axis=1)
        neg = np.add.reduceat((rows * ~positive)[:, order], starts, axis=1)
        found, all_pos, all_neg = pos.cumsum(axis=1), pos.sum(axis=1), neg.sum(axis=1)
        if wanted == "auc":
            below = all_neg[:, None] - neg.cumsum(axis=1) + neg / 2
            return ratio((pos * below).sum(axis=1), all_pos * all_neg)
        taken = found + neg.cumsum(axis=1)
        precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
        return np.where(all_neg > 0, ratio((pos * precision).sum(axis=1), all_pos), np.nan)

    return in_chunks(chunk, w, p.n)


def pair_accuracy(p: Pairs, w: Any) -> Any:
    """Share of pairs within a group that the judge orders as people do; a tie counts half."""
    np = numpy()
    right, pairs = np.zeros(p.groups), np.zeros(p.groups)
    for g, (judge, human) in enumerate(p.parts):
        b = np.sign(human[:, None] - human[None, :])
        a = np.sign(judge[:, None] - judge[None, :])
        pairs[g] = np.abs(b).sum()
        right[g] = (pairs[g] + (a * b).sum()) / 2
    return ratio(w @ right, w @ pairs)


def rps(p: Pairs, w: Any) -> Any:
    """Ranked probability score: mean squared distance of the cumulated probabilities, over K - 1.

    0 is best; an even bet on the two ends of the scale scores .25 (Epstein 1969).
    """
    np = numpy()
    k = p.probs.shape[1]
    upto = p.probs.cumsum(axis=1)[:, :-1]
    human = (np.arange(k - 1)[None, :] >= p.level_of(p.human)[:, None]).astype(float)
    return p.total(w, ((upto - human) ** 2).sum(axis=1) / (k - 1)) / p.count(w)


BINS = 10


def _confidence(p: Pairs) -> tuple[Any, Any, Any]:
    np = numpy()
    top = p.probs.argmax(axis=1)
    sure = p.probs[np.arange(p.n), top]
    right = (top == p.level_of(p.human)).astype(float)
    return np.minimum((sure * BINS).astype(int), BINS - 1), sure, right


def ece(p: Pairs, w: Any) -> Any:
    """Expected calibration error: |how sure - how often right| of the likeliest level, 10 bins."""
    np = numpy()
    bins, sure, right = _confidence(p)
    gap = p.total(w, (bins[:, None] == np.arange(BINS)) * (sure - right)[:, None])
    return np.abs(gap).sum(axis=1) / p.count(w)


def reliability(p: Pairs) -> list[dict[str, float]]:
    """Per bin of confidence: rows, mean confidence, share right."""
    bins, sure, right = _confidence(p)
    return [
        {
            "from": b / BINS,
            "to": (b + 1) / BINS,
            "n": int((bins == b).sum()),
            "confidence": float(sure[bins == b].mean()),
            "right": float(right[bins == b].mean()),
        }
        for b in range(BINS)
        if (bins == b).any()
    ]


_SCALE, _TWO = ("scale",), ("two_levels",)

METRICS: dict[str, Metric] = {
    "spearman": Metric(spearman, correlation=True),
    "pearson": Metric(pearson, correlation=True),
    "kendall_b": Metric(partial(_kendall, variant="b"), correlation=True),
    "kendall_c": Metric(partial(_kendall, variant="c"), correlation=True),
    "mean_bias": Metric(mean_bias, needs=_SCALE),
    "mae": Metric(mae, needs=_SCALE),
    "rmse": Metric(rmse, needs=_SCALE),
    "exact": Metric(exact, needs=_SCALE),
    "within_one": Metric(within_one, needs=_SCALE),
    "base_rate": Metric(base_rate, needs=_SCALE),
    "kappa_quadratic": Metric(partial(_kappa, power=2), needs=_SCALE),
    "kappa_linear": Metric(partial(_kappa, power=1), needs=_SCALE),
    "alpha_nominal": Metric(partial(_alpha, kind="nominal"), needs=_SCALE),
    "alpha_ordinal": Metric(partial(_alpha, kind="ordinal"), needs=_SCALE),
    "alpha_interval": Metric(partial(_alpha, kind="interval"), needs=_SCALE),
    "auc": Metric(partial(_two, wanted="auc"), needs=_TWO),
    "average_precision": Metric(partial(_two, wanted="ap"), needs=_TWO),
    "pair_accuracy": Metric(pair_accuracy, "per_group", ("groups",)),
    "rps": Metric(rps, needs=("scale", "probs")),
    "ece": Metric(ece, needs=("scale", "probs")),
} | {
    f"{name}@{level}": Metric(partial(fn, name=name), level, (need,), True)  # type: ignore[arg-type]
    for level, need, fn in (("per_group", "groups", per_group), ("system", "systems", system))
    for name in ("spearman", "pearson", "kendall_b")
}


def krippendorff(ratings: Any, kind: str = "interval") -> float:
    """Alpha of raters (rows, raters) with NaN where one said nothing; NaN where undefined.

    `kind` is nominal, ordinal or interval.
    """
    np = numpy()
    ratings = np.asarray(ratings, float)
    ratings = ratings[np.isfinite(ratings).sum(axis=1) > 1]
    values = np.unique(ratings[np.isfinite(ratings)])
    if len(values) < 2:
        return float("nan")
    counts = (ratings[:, :, None] == values).sum(axis=1).astype(float)
    share = 1 / (counts.sum(axis=1) - 1)
    met = np.einsum("i,ia,ib->ab", share, counts, counts) - np.diag(share @ counts)
    return float(alpha_of(met[None], values, kind)[0])


def leave_one_out(ratings: Any) -> float:
    """Mean Spearman of each annotator against the mean of the others; NaN where undefined."""
    np = numpy()
    ratings = np.asarray(ratings, float)
    found = []
    for r in range(ratings.shape[1]):
        rest = np.delete(ratings, r, axis=1)
        ok = np.isfinite(ratings[:, r]) & np.isfinite(rest).any(axis=1)
        if ok.sum() > 2:
            one = Pairs(ratings[ok, r], np.nanmean(rest[ok], axis=1))
            found.append(float(spearman(one, one.ones)[0]))
    kept = [v for v in found if np.isfinite(v)]
    return float(np.mean(kept)) if kept else float("nan")
