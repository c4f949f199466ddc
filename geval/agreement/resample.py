"""Bootstrap over groups: a draw is how often each group was taken, so all draws are one matrix.

Rows of one document are not independent, so documents are drawn, not rows (Field & Welsh 2007,
"Bootstrapping clustered data"). A statistic takes weights of shape (draws, groups) and gives
(draws,); with ones it is the statistic of the data itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geval.stats import numpy

Weights = Any
"""Array (draws, groups) of how often each group was drawn."""
Statistic = Callable[[Weights], Any]

CELLS = 4_000_000
"""Cells of a (draws, rows) array that are held at once."""


def draw_weights(groups: int, draws: int, seed: int) -> Weights:
    """Multinomial counts (draws, groups): each draw takes `groups` groups with replacement."""
    np = numpy()
    rng = np.random.default_rng(seed)
    return rng.multinomial(groups, np.full(groups, 1 / groups), size=draws).astype(float)


def in_chunks(statistic: Statistic, weights: Weights, rows: int) -> Any:
    """`statistic` over blocks of draws, so that memory does not grow with their number."""
    np = numpy()
    step = max(1, CELLS // max(1, rows))
    parts = [statistic(weights[i : i + step]) for i in range(0, len(weights), step)]
    return np.concatenate(parts)


def interval(draws: Any, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval; None where under half of the draws have a value."""
    np = numpy()
    kept = draws[np.isfinite(draws)]
    if not len(draws) or len(kept) * 2 < len(draws):
        return None
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def sign_p(draws: Any) -> float | None:
    """Two-sided p that the statistic is 0, from the draws on either side of it."""
    np = numpy()
    kept = draws[np.isfinite(draws)]
    if not len(kept):
        return None
    side = min(int((kept <= 0).sum()), int((kept >= 0).sum()))
    return float(min(1.0, 2 * (side + 1) / (len(kept) + 1)))


def ratio(a: Any, b: Any) -> Any:
    """a / b, NaN where b is 0."""
    np = numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(b) > 1e-12, a / np.where(b == 0, np.nan, b), np.nan)
