"""A sample judged by its units: split once, each unit judged by the panel, then one score.

Each unit comes through the same path as a whole sample (`geval.scoring.score_criterion`), with
any method and any panel. A unit that is unscored makes its criterion unscored: the mean of those
that went well would flatter or harm without a trace. A unit for which the criterion is not
applicable leaves the aggregate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from geval.judges.base import Usage
from geval.reading.answer import Failure
from geval.result import Score, UnitScore
from geval.sample import Sample
from geval.scoring import Asker
from geval.settings import Settings
from geval.template import Criterion, Template
from geval.units.parts import AGGREGATES, Unit
from geval.units.split import split

Judge = Callable[[Unit], Awaitable[list[Score]]]
"""Scores of one unit, one for each criterion, in their order."""


class Splitter(Protocol):
    """Who is asked for claims (a juror)."""

    @property
    def asker(self) -> Asker:
        """How it is asked."""
        ...

    @property
    def settings(self) -> Settings:
        """How long its replies may be."""
        ...


async def score_by_units(
    template: Template,
    sample: Sample,
    splitters: Sequence[Splitter],
    judge: Judge,
    *,
    serial: bool,
    repeat: int = 0,
) -> list[Score]:
    """One score for each criterion of a sample whose template has units.

    The first of `splitters` that can splits, so all judges of a panel judge the same units.
    `serial` judges one unit after the other, so that each prompt finds its beginning evaluated.
    """
    usage, warnings = Usage(), list[str]()
    units: list[Unit] | Failure = Failure("no_units", "nobody to split the sample")
    for juror in splitters:
        units, spent, told = await split(template, sample, juror.asker, juror.settings, repeat)
        usage += spent
        warnings += told
        if not isinstance(units, Failure) or units.kind == "no_claims":
            break
    if isinstance(units, Failure):
        failed = [
            Score(
                sample.id,
                c.name,
                "unscored",
                failure=units,
                warnings=tuple(warnings),
                repeat=repeat,
                scale=c.scale,
            )
            for c in template.criteria
        ]
        return [replace(failed[0], usage=usage), *failed[1:]]
    if serial:
        verdicts = [await judge(unit) for unit in units]
    else:
        verdicts = list(await asyncio.gather(*(judge(unit) for unit in units)))
    scores = [
        combine_units(template, criterion, list(zip(units, own, strict=True)))
        for criterion, own in zip(template.criteria, zip(*verdicts, strict=True), strict=True)
    ]
    # The split is paid once; it stands with the first criterion.
    first = replace(scores[0], usage=usage + scores[0].usage)
    first = replace(first, warnings=tuple(dict.fromkeys((*warnings, *first.warnings))))
    return [first, *scores[1:]]


def combine_units(
    template: Template, criterion: Criterion, verdicts: Sequence[tuple[Unit, Score]]
) -> Score:
    """The score of a criterion from the verdicts on its units (at least one for each set)."""
    first = verdicts[0][1]
    scale = criterion.scale
    base = Score(
        first.id,
        criterion.name,
        "unscored",
        usage=sum((s.usage for _, s in verdicts), Usage()),
        warnings=tuple(dict.fromkeys(w for _, s in verdicts for w in s.warnings)),
        prompt_sha256=first.prompt_sha256,
        repeat=first.repeat,
        scale=scale,
        units=tuple(UnitScore(u.text, u.spec.of, u.spec.against, s) for u, s in verdicts),
        reason=_reasons(verdicts),
    )
    failed = [(u, s) for u, s in verdicts if s.status == "unscored"]
    if failed:
        return replace(base, failure=_failure(failed, len(verdicts)))
    front = template.front
    sets = [[s for u, s in verdicts if u.spec == spec] for spec in front.unit_sets]
    if front.aggregate_name == "noise_sensitivity":  # a claim is judged against both, or not
        judged = [all(s.status == "scored" for s in of_one) for of_one in zip(*sets, strict=True)]
        sets = [[s for s, kept in zip(own, judged, strict=True) if kept] for own in sets]
    else:
        sets = [[s for s in own if s.status == "scored"] for own in sets]
    if not all(sets):
        return replace(base, status="not_applicable")
    values = [[s.normalized or 0.0 for s in own] for own in sets]
    soft = AGGREGATES[front.aggregate_name].compute(values, **front.aggregate_parameters)
    variances = [[_variance(s) for s in own] for own in sets]
    known = [[v for v in own if v is not None] for own in variances]
    certain = all(len(a) == len(b) for a, b in zip(known, sets, strict=True))
    value = scale.low + soft.value * (scale.high - scale.low)
    return replace(
        base,
        status="scored",
        score=value,
        raw_score=value,
        se=soft.se(known) * (scale.high - scale.low) if certain else None,
    )


def _variance(score: Score) -> float | None:
    """Of a verdict on 0..1: its spread over the levels, and what sampling adds; None untold."""
    d = score.distribution
    if d is None or d.method == "single":
        return None
    width = d.scale.high - d.scale.low
    return (d.sd / width) ** 2 + ((d.se or 0.0) / width) ** 2


def _failure(failed: Sequence[tuple[Unit, Score]], n: int) -> Failure:
    named = []
    for unit, score in failed[:3]:
        text = unit.text if len(unit.text) <= 40 else unit.text[:39] + "…"
        cause = score.failure.message if score.failure else ""
        named.append(f"{unit.spec.of} {unit.rank + 1} ({text!r}: {cause})")
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return Failure(
        "unit_unscored",
        f"{len(failed)} of {n} units unscored: {'; '.join(named)}{more}",
        retryable=any(s.failure is not None and s.failure.retryable for _, s in failed),
    )


def _reasons(verdicts: Sequence[tuple[Unit, Score]]) -> str | None:
    """The reasons of the units that do not hold; of all where each of them does."""
    given = [(u, s) for u, s in verdicts if s.reason]
    low = [(u, s) for u, s in given if s.normalized is not None and s.normalized < 0.5]
    return "\n".join(f"- {u.text}: {s.reason}" for u, s in low or given) or None
