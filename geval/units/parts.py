"""Units: the parts of a sample that are judged one by one, and how verdicts become one score.

    units: {of: answer, by: claims, against: contexts}
    unit_aggregate: mean

A unit's verdict is a probability-weighted score on 0..1 (with the default levels no and yes it is
P(yes)), so every aggregate is soft: it is what counting would give on average. The standard error
takes the verdicts as independent, each with its own variance (P(1 - P) for no and yes), and
carries them through the aggregate by its derivatives (delta method):

    se**2 = sum over units of (d aggregate / d p_i)**2 * variance_i

Units are split by `geval.units.split`, judged by `geval.units.scoring`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict

from geval.errors import nearest

By = Literal["claims", "item", "sentences"]

MOST_UNITS = 500
"""Units of one sample; a judge that lists more claims than this is running away."""


class UnitSpec(BaseModel):
    """One set of units: the field they are parts of, how it is split, what each is held against.

    `by: claims` asks the judge for the claims of a text; `atomicity` high puts one fact into each,
    low lets facts that belong together stay together; `coverage` high takes every fact, low only
    what the text is about. `by: item` takes each item of a list (a text is one item) in its order,
    `by: sentences` each sentence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str
    by: By = "claims"
    against: str
    atomicity: Literal["low", "high"] = "high"
    coverage: Literal["low", "high"] = "high"

    @property
    def source(self) -> tuple[str, ...]:
        """What decides the split: sets with the same source are split once."""
        return (self.of, self.by, self.atomicity, self.coverage)


@dataclass(frozen=True, slots=True)
class Unit:
    """One part of a sample: `index` counts over all sets of the sample, `rank` within its set."""

    text: str
    spec: UnitSpec
    index: int
    rank: int


@dataclass(frozen=True, slots=True)
class Soft:
    """An aggregate: its value on 0..1 and its derivative by each verdict, set by set."""

    value: float
    slopes: tuple[tuple[float, ...], ...]

    def se(self, variances: Sequence[Sequence[float]]) -> float:
        """Standard error from the variance of each verdict, by the delta method."""
        return math.sqrt(
            math.fsum(
                slope * slope * variance
                for slopes, own in zip(self.slopes, variances, strict=True)
                for slope, variance in zip(slopes, own, strict=True)
            )
        )


Verdicts = Sequence[Sequence[float]]
"""Verdicts on 0..1, a list for each set of units, none of them empty."""


def mean(sets: Verdicts, **_: float) -> Soft:
    """The expected share of units that hold: sum(p) / n."""
    (p,) = sets
    return Soft(math.fsum(p) / len(p), ((1 / len(p),) * len(p),))


def least(sets: Verdicts, **_: float) -> Soft:
    """The verdict of the weakest unit; its standard error is that unit's own."""
    (p,) = sets
    worst = min(range(len(p)), key=lambda i: p[i])
    return Soft(p[worst], (tuple(float(i == worst) for i in range(len(p))),))


def precision(sets: Verdicts, **_: float) -> Soft:
    """Of the first set (claims of the answer) the expected share that holds: TP / (TP + FP).

    TP = sum(p), FP = sum(1 - p).
    """
    return mean(sets[:1])


def recall(sets: Verdicts, **_: float) -> Soft:
    """Of the last set (claims of the reference) the expected share that holds: TP / (TP + FN).

    TP = sum(q), FN = sum(1 - q).
    """
    return mean(sets[-1:])


def f_beta(sets: Verdicts, beta: float = 1.0) -> Soft:
    """F-beta of the expected counts of both sets.

    Claims of the answer give precision P = TP / (TP + FP), claims of the reference recall
    R = TP / (TP + FN), each by its own count, so a text that is split finer does not weigh more:

        F = (1 + b) P R / (b P + R),  b = beta**2;  0 where P = R = 0

    Where every true claim of one side is one claim of the other it is the usual
    (1 + b) TP / ((1 + b) TP + b FN + FP).
    """
    p, q = sets
    b = beta * beta
    one, two = math.fsum(p) / len(p), math.fsum(q) / len(q)
    below = b * one + two
    if below == 0:
        return Soft(0.0, ((0.0,) * len(p), (0.0,) * len(q)))
    by_one = (1 + b) * (two / below) ** 2
    by_two = (1 + b) * b * (one / below) ** 2
    return Soft(
        (1 + b) * one * two / below,
        ((by_one / len(p),) * len(p), (by_two / len(q),) * len(q)),
    )


def average_precision(sets: Verdicts, **_: float) -> Soft:
    """Average precision of a ranking whose items are relevant with probability p_k.

    With R relevant items, average precision is (1 / R) sum_k rel_k (rel_1 + ... + rel_k) / k, and
    0 where R = 0. This is its mean over all ways in which the items can be relevant,

        sum_k p_k / k * E[(1 + before_k) / (1 + before_k + after_k)]

    where before_k and after_k count the relevant items before and after k. Because
    1 / (1 + m) is the integral of t**m over 0..1, the mean is the integral of a polynomial,

        Q(t) * sum_k r_k / k * (1 + t * sum_{j<k} r_j),
        q_j = 1 - p_j + p_j t,  Q = product of q_j,  r_j = p_j / q_j,

    which Gauss-Legendre nodes, half as many as there are items, give exactly. A plain weighting of
    precision by p_k would call a single item with p = .01 perfect.
    """
    (p,) = sets
    n = len(p)
    value, slopes = 0.0, [0.0] * n
    for t, weight in _nodes(n // 2 + 1):
        q = [1 - x + x * t for x in p]
        whole = math.prod(q)
        r = [x / y for x, y in zip(p, q, strict=True)]
        before = [0.0] * n
        after = [0.0] * n
        for k in range(1, n):
            before[k] = before[k - 1] + r[k - 1]
            after[n - 1 - k] = after[n - k] + r[n - k] / (n - k + 1)
        total = math.fsum(r[k] / (k + 1) * (1 + t * before[k]) for k in range(n))
        value += weight * whole * total
        for k in range(n):
            by_r = (1 + t * before[k]) / (k + 1) + t * after[k]
            slopes[k] += weight * whole * (by_r / q[k] - (1 - t) * total) / q[k]
    return Soft(min(1.0, max(0.0, value)), (tuple(slopes),))


def noise_sensitivity(sets: Verdicts, **_: float) -> Soft:
    """The expected share of claims that the documents led astray: lower is better.

    p_i: the documents support claim i; r_i: the reference does. sum(p (1 - r)) / n.
    """
    p, r = sets
    n = len(p)
    return Soft(
        math.fsum(x * (1 - y) for x, y in zip(p, r, strict=True)) / n,
        (tuple((1 - y) / n for y in r), tuple(-x / n for x in p)),
    )


@lru_cache(maxsize=64)
def _nodes(n: int) -> tuple[tuple[float, float], ...]:
    """Nodes and weights of Gauss-Legendre quadrature on 0..1: exact to degree 2n - 1."""
    found = []
    for i in range(n):
        x = math.cos(math.pi * (i + 0.75) / (n + 0.5))
        slope = 1.0
        for _ in range(100):
            last, value = 0.0, 1.0
            for k in range(1, n + 1):
                last, value = value, ((2 * k - 1) * x * value - (k - 1) * last) / k
            slope = n * (x * value - last) / (x * x - 1)
            step = value / slope
            x -= step
            if abs(step) < 1e-15:
                break
        found.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A way from verdicts to a score: which sets it reads, and which parameters it takes."""

    compute: Callable[..., Soft]
    sets: tuple[int, ...] = (1,)
    parameters: tuple[str, ...] = ()
    pick: int | None = None

    def reads(self, n: int) -> tuple[int, ...]:
        """Which of `n` sets are judged."""
        return tuple(range(n)) if self.pick is None else (self.pick % n,)


AGGREGATES: Mapping[str, Aggregate] = {
    "mean": Aggregate(mean),
    "min": Aggregate(least),
    "precision": Aggregate(precision, (1, 2), pick=0),
    "recall": Aggregate(recall, (1, 2), pick=-1),
    "f1": Aggregate(f_beta, (2,)),
    "f_beta": Aggregate(f_beta, (2,), ("beta",)),
    "average_precision": Aggregate(average_precision),
    "noise_sensitivity": Aggregate(noise_sensitivity, (2,)),
}


def aggregate_faults(
    units: Sequence[UnitSpec], name: str, parameters: Mapping[str, float]
) -> Iterator[str]:
    """What is wrong with an aggregate for these sets of units."""
    if name not in AGGREGATES:
        yield f"unit_aggregate: unknown aggregate {name!r}. {nearest(name, AGGREGATES)}"
        return
    aggregate = AGGREGATES[name]
    if len(units) not in aggregate.sets:
        wanted = " or ".join(map(str, aggregate.sets))
        yield f"unit_aggregate: {name} takes {wanted} set of units, `units` has {len(units)}"
    for key, value in parameters.items():
        if key not in aggregate.parameters:
            known = ", ".join(aggregate.parameters) or "none"
            yield f"unit_aggregate: {name} has no parameter {key!r} (it has: {known})"
        elif not math.isfinite(value) or value <= 0:
            yield f"unit_aggregate: {key} is {value:g}; it must be more than 0"
    if name == "noise_sensitivity" and len({spec.source for spec in units}) > 1:
        yield "unit_aggregate: noise_sensitivity holds the same units against two fields"
    if name in ("f1", "f_beta") and len(units) == 2:
        one, two = units
        if (one.of, one.against) != (two.against, two.of):
            yield f"unit_aggregate: {name} needs two sets that are held against each other"
