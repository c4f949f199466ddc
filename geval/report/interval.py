"""Intervals of means over rows or groups of rows, where numpy is there."""

from __future__ import annotations

import math
from typing import Any

from geval.errors import ConfigError
from geval.report.collect import Clusters

DRAWS = 2000
SEED = 0
MOST_DRAWN = 2000
"""Clusters up to which a bootstrap is drawn; with more, the normal interval is the same."""

Intervals = dict[str, tuple[float, float]]


def intervals(clusters: Clusters) -> tuple[Intervals, str | None]:
    """95 % interval of each mean on 0..1, and how: "bootstrap", "normal"; None without numpy.

    A criterion with fewer than two clusters has none.
    """
    try:
        from geval.agreement.resample import draw_weights, interval
        from geval.stats import numpy

        np = numpy()
    except (ConfigError, ImportError):
        return {}, None
    found: Intervals = {}
    drawn = clusters.n <= MOST_DRAWN
    weights = draw_weights(clusters.n, DRAWS, SEED) if drawn and clusters.n > 1 else None
    for name in clusters.names:
        sums = np.asarray(clusters.sums[name], dtype=float)
        counts = np.asarray(clusters.counts[name], dtype=float)
        if (counts > 0).sum() < 2:
            continue
        if weights is not None:
            with np.errstate(invalid="ignore", divide="ignore"):
                span = interval((weights @ sums) / (weights @ counts))
        else:
            span = _normal(sums, counts)
        if span is not None:
            found[name] = span
    return found, "bootstrap" if drawn else "normal"


def _normal(sums: Any, counts: Any) -> tuple[float, float]:
    """Of a ratio of sums over clusters, linearised."""
    total, n = float(counts.sum()), int((counts > 0).sum())
    mean = float(sums.sum()) / total
    rest = sums - mean * counts
    half = 1.959964 * math.sqrt(float((rest**2).sum()) * n / (n - 1)) / total
    return mean - half, mean + half
