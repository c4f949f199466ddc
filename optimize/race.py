"""When a candidate is given up: the signed-rank test over groups, against the best so far.

Optuna's WilcoxonPruner makes the same decision; with ties and few groups its test counts through
permutations and takes a second a look, so the normal approximation is taken here (eight groups
and more).
"""

from __future__ import annotations

from collections.abc import Mapping

from geval.stats import numpy, scipy_stats

LEVEL = 0.03
"""Given up where the candidate is worse at this one-sided level."""

LEAST_GROUPS = 8
"""Groups before a candidate may be given up."""


def give_up(losses: Mapping[int, float], best: Mapping[int, float]) -> bool:
    """Whether mean losses by group are worse than the best candidate's on the same groups."""
    np = numpy()
    both = [place for place in losses if place in best]
    if len(both) < LEAST_GROUPS:
        return False
    gap = np.array([losses[place] - best[place] for place in both])
    if gap.mean() <= 0 or not gap.any():
        return False
    test = scipy_stats().wilcoxon(
        gap, alternative="greater", zero_method="zsplit", method="asymptotic"
    )
    return bool(test.pvalue < LEVEL)
