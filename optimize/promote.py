"""Which candidate goes on to the test: the cheapest that is as good as the best.

Only candidates that were evaluated to the end can be compared; of those within one standard
error of the best loss (paired over groups) the one with the fewest tokens a row is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geval.stats import numpy

CHEAPER = 0.05
"""Costs that differ by less than this share count as the same."""


@dataclass(frozen=True)
class Candidate:
    """A fully evaluated candidate: losses by dev group (G,) and tokens a row."""

    number: int
    losses: Any
    tokens: float


def promote(candidates: Sequence[Candidate], weights: Any) -> tuple[int, dict[int, float]]:
    """Number of the promoted candidate, and the standard error of each one's gap to the best.

    `weights` (G,) are rows of each group.
    """
    np = numpy()
    weights = np.asarray(weights, float) / np.sum(weights)
    loss = {c.number: float(weights @ c.losses) for c in candidates}
    best = min(candidates, key=lambda c: (loss[c.number], c.tokens, c.number))
    errors = {}
    for one in candidates:
        gap = one.losses - best.losses
        spread = (weights**2 * (gap - weights @ gap) ** 2).sum()
        errors[one.number] = float(np.sqrt(spread * len(gap) / max(1, len(gap) - 1)))
    near = [c for c in candidates if loss[c.number] - loss[best.number] <= errors[c.number]]
    cheapest = min(c.tokens for c in near)
    near = [c for c in near if c.tokens <= cheapest * (1 + CHEAPER)]
    chosen = min(near, key=lambda c: (loss[c.number], c.number))
    return chosen.number, errors
