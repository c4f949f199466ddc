"""The levels a judge prefers whatever it reads, estimated without labels.

Batch calibration (Zhou et al. 2024): the mean of the distributions of a run. Where the share of
good answers is not even, that takes some of it for the judge's taste: `strength` under 1 takes
less. With a second run of the same rows, whose template names the levels in another order, only
what the order moves is taken for taste.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from geval.errors import DataError

FLOOR = 1e-3
"""Least prior of a level: one the judge never uses must not be blown up."""
LEAST_ROWS = 10


def batch_prior(probs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean distribution over rows (n, K), each level at least `FLOOR`, summing to 1.

    Raises DataError for fewer than 10 rows.
    """
    if len(probs) < LEAST_ROWS:
        raise DataError(
            f"{len(probs)} rows with a distribution; a level prior needs at least {LEAST_ROWS}"
        )
    return _normal([math.fsum(p[i] for p in probs) / len(probs) for i in range(len(probs[0]))])


def order_prior(
    probs: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]
) -> tuple[float, ...]:
    """What naming the levels in this order adds, by rows judged in both orders.

    Both map ids to probabilities from the lowest level up. Dividing `probs` by it gives about the
    mean over the two orders.
    """
    both = [i for i in probs if i in other]
    one = batch_prior([probs[i] for i in both])
    pooled = batch_prior(
        [[(a + b) / 2 for a, b in zip(probs[i], other[i], strict=True)] for i in both]
    )
    return _normal([a / b for a, b in zip(one, pooled, strict=True)])


def _normal(values: Sequence[float]) -> tuple[float, ...]:
    whole = math.fsum(values)
    raised = [max(v / whole, FLOOR) for v in values]
    whole = math.fsum(raised)
    return tuple(round(v / whole, 6) for v in raised)
