"""A panel of judges: one score from several, each judge's own beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from geval.distribution import Distribution
from geval.judges.base import Usage
from geval.reading.answer import Failure
from geval.result import Score

Pool = Literal["mean", "median"]


def combine(verdicts: Sequence[tuple[str, Score]], pool: Pool = "mean") -> Score:
    """One score from those of several judges, each with its spec (two may share one).

    The distribution is the mean of the judges' distributions; the score is its expected value, or
    with `median` the median of the judges' scores. A judge that failed on the row is left out;
    unscored only where all failed. `spread` is the standard deviation over the judges' scores, in
    units of the scale.
    """
    scores = [score for _, score in verdicts]
    first = scores[0]
    usage = sum((s.usage for s in scores), Usage())
    base = replace(
        first,
        distribution=None,
        failure=None,
        score=None,
        raw_score=None,
        reason=None,
        warnings=(),
        usage=usage,
        reading=None,
        jurors=tuple(verdicts),
    )
    judged = [s for s in scores if s.status == "scored" and s.distribution is not None]
    inapplicable = [s for s in scores if s.status == "not_applicable"]
    failed = [name for name, s in verdicts if s.status == "unscored"]
    warnings = tuple(f"juror_failed_{name}" for name in failed)
    if not judged and not inapplicable:
        causes = "; ".join(f"{n}: {s.failure.message}" for n, s in verdicts if s.failure)
        again = any(s.failure is not None and s.failure.retryable for s in scores)
        return replace(
            base,
            status="unscored",
            failure=Failure("every_judge_failed", causes, again),
            warnings=warnings,
        )
    if len(inapplicable) > len(judged):
        return replace(
            base,
            status="not_applicable",
            distribution=inapplicable[0].distribution,
            warnings=warnings,
        )
    mixed = _mixture([s.distribution for s in judged if s.distribution is not None])
    own = [s.score for s in judged if s.score is not None]
    value = mixed.mean if pool == "mean" else statistics.median(own)
    nearest = min(judged, key=lambda s: (s.reason is None, abs((s.score or 0.0) - value)))
    return replace(
        base,
        status="scored",
        distribution=mixed,
        score=value,
        raw_score=value,
        reason=nearest.reason,
        warnings=warnings + tuple(w for w in nearest.warnings if w.startswith("reason_language")),
        spread=statistics.pstdev(own) if len(own) > 1 else 0.0,
    )


def _mixture(parts: list[Distribution]) -> Distribution:
    n = len(parts)
    scale = parts[0].scale

    def mean(values: list[float]) -> float:
        return math.fsum(values) / n

    return Distribution(
        scale,
        tuple(mean([p.probs[i] for p in parts]) for i in range(len(scale.levels))),
        parts[0].method,
        coverage=mean([p.coverage for p in parts]),
        ambiguous=mean([p.ambiguous for p in parts]),
        assumed=mean([p.assumed for p in parts]),
        outside=mean([p.outside for p in parts]),
        unseen=mean([p.unseen for p in parts]),
        not_applicable=mean([p.not_applicable for p in parts]),
    )
