"""From a judge's reply to probabilities over the levels of a scale.

Five ways of asking (`geval.judges.base.Method`) end in one `Distribution`. The rules and their
numbers are those of G-Eval (Liu et al. 2023, expected value over the score token), made exact:
an answer is found by its place and never by its text, spellings of one level are merged, levels
of several tokens are followed, and the probability that is not on a level stays visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from geval.judges.base import Method
from geval.scale import NA, Scale

MIN_COVERAGE = 0.90
MAX_AMBIGUOUS = 0.02
MAX_ASSUMED = 0.20


@dataclass(frozen=True)
class Distribution:
    """Probabilities over the levels of `scale`, and how they were got.

    `probs[i]` belongs to `scale.levels[i]`; they sum to 1. Before normalisation the judge's
    probability was: `coverage` on levels (and the not-applicable answer), `ambiguous` on text
    that could still become one level or another, `outside` on other text, `unseen` not told.
    `assumed` (part of coverage) lay on a beginning that only one level has. `not_applicable` is
    the share of the coverage on that answer. `se` is the standard error of `mean` in units of
    the scale, for samples; None where the distribution was read whole.
    """

    scale: Scale
    probs: tuple[float, ...]
    method: Method
    coverage: float = 1.0
    ambiguous: float = 0.0
    assumed: float = 0.0
    outside: float = 0.0
    unseen: float = 0.0
    not_applicable: float = 0.0
    n_samples: int | None = None
    se: float | None = None

    @property
    def mean(self) -> float:
        """Expected value, in units of the scale."""
        return math.fsum(p * v for p, v in zip(self.probs, self.scale.values, strict=True))

    @property
    def sd(self) -> float:
        """Standard deviation over the levels, in units of the scale."""
        mean = self.mean
        squares = (p * (v - mean) ** 2 for p, v in zip(self.probs, self.scale.values, strict=True))
        return math.sqrt(max(0.0, math.fsum(squares)))

    @property
    def mode(self) -> float:
        """Value of the likeliest level (the lower one of equals)."""
        return self.scale.values[max(range(len(self.probs)), key=lambda i: (self.probs[i], -i))]

    @property
    def normalized(self) -> float:
        """Expected value on 0..1."""
        return self.scale.normalize(self.mean)


@dataclass
class Reading:
    """Probability as it was read, not yet divided by the coverage. The parts sum to 1."""

    scale: Scale
    levels: list[float] = field(default_factory=list)
    not_applicable: float = 0.0
    ambiguous: float = 0.0
    assumed: float = 0.0
    outside: float = 0.0
    unseen: float = 0.0

    def __post_init__(self) -> None:
        self.levels = self.levels or [0.0] * len(self.scale.levels)

    @property
    def coverage(self) -> float:
        """Probability on levels and on the not-applicable answer."""
        return math.fsum(self.levels) + self.not_applicable

    def add(self, index: int, mass: float) -> None:
        """Put `mass` on the level `index`, or on not-applicable."""
        if index == NA:
            self.not_applicable += mass
        else:
            self.levels[index] += mass

    def assume(self, reach: Iterable[int], mass: float) -> None:
        """`mass` on a beginning: of one level it counts as assumed, of several as ambiguous."""
        targets = set(reach)
        if len(targets) == 1:
            self.add(targets.pop(), mass)
            self.assumed += mass
        else:
            self.ambiguous += mass

    def accepted(
        self,
        *,
        min_coverage: float = MIN_COVERAGE,
        max_ambiguous: float = MAX_AMBIGUOUS,
        max_assumed: float = MAX_ASSUMED,
    ) -> bool:
        """Whether enough of the probability lies on levels to speak of a score."""
        tiny = 1e-9  # .9 + .1 - .1 must not fail by rounding
        return (
            self.coverage >= min_coverage - tiny
            and self.ambiguous <= max_ambiguous + tiny
            and self.assumed <= max_assumed + tiny
        )

    def distribution(self, method: Method) -> Distribution:
        """Divide by the probability on levels. Raises ValueError when there is none."""
        on_levels = math.fsum(self.levels)
        coverage = self.coverage
        if coverage <= 0:
            raise ValueError("no probability on any level")
        if on_levels > 0:
            probs = tuple(p / on_levels for p in self.levels)
        else:  # all of it on not-applicable: no level is likelier than another
            probs = tuple(1 / len(self.levels) for _ in self.levels)
        return Distribution(
            self.scale,
            probs,
            method,
            coverage=coverage,
            ambiguous=self.ambiguous,
            assumed=self.assumed,
            outside=self.outside,
            unseen=self.unseen,
            not_applicable=self.not_applicable / coverage,
        )


def from_counts(counts: Sequence[int], scale: Scale, *, not_applicable: int = 0) -> Distribution:
    """Counts per level of independent samples: p = counts / n, with a standard error of the mean.

    The posterior of the level probabilities is Dirichlet with 1/K added to each of the K counts;
    `se` is the posterior standard deviation of the expected value.
    """
    n = sum(counts)
    total = n + not_applicable
    if total <= 0:
        raise ValueError("no samples")
    probs = tuple(c / n for c in counts) if n else tuple(1 / len(counts) for _ in counts)
    return Distribution(
        scale,
        probs,
        "samples",
        not_applicable=not_applicable / total,
        n_samples=total,
        se=posterior_se(counts, scale),
    )


def posterior_se(counts: Sequence[int], scale: Scale) -> float:
    """Posterior standard deviation of the mean under Dirichlet(counts + 1/K), scale units."""
    k = len(counts)
    alpha = [c + 1 / k for c in counts]
    a0 = math.fsum(alpha)
    values = scale.values
    mean = math.fsum(a * v for a, v in zip(alpha, values, strict=True)) / a0
    second = math.fsum(a * v * v for a, v in zip(alpha, values, strict=True)) / a0
    return math.sqrt(max(0.0, second - mean * mean) / (a0 + 1))


def from_levels(probabilities: Sequence[float], scale: Scale) -> Reading:
    """Probabilities per level, lowest first, as a decision endpoint gives them."""
    if len(probabilities) != len(scale.levels):
        raise ValueError(f"{len(probabilities)} probabilities for {len(scale.levels)} levels")
    if any(not math.isfinite(p) or p < 0 for p in probabilities):
        raise ValueError(f"not probabilities: {list(probabilities)}")
    total = math.fsum(probabilities)
    if total > 1.0 + 1e-3:
        raise ValueError(f"probabilities sum to {total:.4f}")
    scaled = [p / total for p in probabilities] if total > 1 else list(probabilities)
    return Reading(scale, levels=scaled, unseen=max(0.0, 1.0 - math.fsum(scaled)))


def certain(index: int, scale: Scale) -> Distribution:
    """One answer without alternatives: all probability on it (method `single`)."""
    if index == NA:
        uniform = tuple(1 / len(scale.levels) for _ in scale.levels)
        return Distribution(scale, uniform, "single", not_applicable=1.0, n_samples=1)
    probs = tuple(float(i == index) for i in range(len(scale.levels)))
    return Distribution(scale, probs, "single", n_samples=1)
