"""Correlations at other levels than all rows: within groups, and between systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geval.agreement.pairs import Pairs
from geval.agreement.resample import in_chunks, ratio
from geval.stats import numpy


def group_values(p: Pairs, name: str) -> Any:
    """The correlation within each group (G,); NaN for a constant one."""
    return p.kept(f"within {name}", None, lambda _: _WITHIN[name](p))


def _pearson_within(p: Pairs, judge: Any = None, human: Any = None) -> Any:
    """Of values (n,) in the rows' order; of the scores where none are given."""
    np = numpy()
    sides = []
    size = p.by_group(np.ones(p.n))
    for values in (p.judge if judge is None else judge, p.human if human is None else human):
        flat = np.maximum.reduceat(values, p.starts) == np.minimum.reduceat(values, p.starts)
        centred = values - (p.by_group(values) / size)[p.group]
        sides.append((flat, centred, p.by_group(centred**2)))
    (flat, x, xx), (still, y, yy) = sides
    with np.errstate(divide="ignore", invalid="ignore"):
        r = p.by_group(x * y) / np.sqrt(xx * yy)
    return np.where(flat | still, np.nan, np.clip(r, -1, 1))


def _spearman_within(p: Pairs) -> Any:
    return _pearson_within(p, *(_ranks_within(p, v) for v in (p.judge, p.human)))


def _ranks_within(p: Pairs, values: Any) -> Any:
    """Mean ranks (n,) among the rows of the same group."""
    np = numpy()
    order = np.lexsort((values, p.group))
    group, sorted_values = p.group[order], values[order]
    new = np.r_[True, (group[1:] != group[:-1]) | (sorted_values[1:] != sorted_values[:-1])]
    start = np.flatnonzero(new)
    end = np.r_[start[1:], len(values)]
    ranks = np.empty(len(values))
    ranks[order] = ((start + end - 1) / 2)[np.cumsum(new) - 1] - p.starts[group] + 1
    return ranks


def _kendall_within(p: Pairs) -> Any:
    np = numpy()
    found = np.full(p.groups, np.nan)
    for g, (judge, human) in enumerate(p.parts):
        a = np.sign(judge[:, None] - judge[None, :])
        b = np.sign(human[:, None] - human[None, :])
        own, people = np.abs(a).sum(), np.abs(b).sum()
        if own and people:
            found[g] = (a * b).sum() / np.sqrt(own * people)
    return found


_WITHIN: dict[str, Callable[[Pairs], Any]] = {
    "pearson": _pearson_within,
    "spearman": _spearman_within,
    "kendall_b": _kendall_within,
}


def per_group(p: Pairs, w: Any, name: str) -> Any:
    """Mean of the groups' correlations, constant groups left out."""
    np = numpy()
    values = group_values(p, name)
    kept = np.isfinite(values)
    return ratio(w @ np.where(kept, values, 0.0), w @ kept.astype(float))


def system(p: Pairs, w: Any, name: str) -> Any:
    """Correlation of the systems' means; of at least 3 systems in a draw."""
    np = numpy()
    _, number = np.unique(p.system, return_inverse=True)
    mine = (number[:, None] == np.arange(int(number.max()) + 1)).astype(float)
    sums = [p.total(w, mine * v[:, None]) for v in (np.ones(p.n), p.judge, p.human)]

    def chunk(some: Any) -> Any:
        n, judge, human = np.split(some, 3, axis=1)
        ok = n > 0
        a, b = (_centred_means(v, n, ok, name) for v in (judge, human))
        axes = (1, 2) if a.ndim == 3 else (1,)
        r = ratio((a * b).sum(axes), np.sqrt((a * a).sum(axes) * (b * b).sum(axes)))
        return np.where(ok.sum(axis=1) > 2, np.clip(r, -1, 1), np.nan)

    return in_chunks(chunk, np.concatenate(sums, axis=1), mine.shape[1] ** 2)


def _centred_means(sums: Any, n: Any, ok: Any, name: str) -> Any:
    """What is multiplied in a correlation of means (draws, S); 0 where a system has no row."""
    np = numpy()
    mean = np.divide(sums, n, out=np.zeros_like(sums), where=ok)
    if name == "pearson":
        middle = mean.sum(axis=1, keepdims=True) / np.maximum(ok.sum(axis=1, keepdims=True), 1)
        return np.where(ok, mean - middle, 0.0)
    gap = mean[:, :, None] - mean[:, None, :]
    # Means that differ in their last digits only are ties.
    sign = np.where(np.abs(gap) > 1e-9, np.sign(gap), 0.0) * (ok[:, :, None] & ok[:, None, :])
    return sign if name == "kendall_b" else sign.sum(axis=2)
