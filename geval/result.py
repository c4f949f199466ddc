"""The judgement of one criterion of one sample, the overall judgement, and their result lines."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from geval.distribution import Distribution, Reading
from geval.judges.base import METHODS, Usage
from geval.reading.answer import Failure
from geval.scale import Scale
from geval.template import Template

OVERALL = "overall"
Status = Literal["scored", "unscored", "not_applicable"]


@dataclass(frozen=True)
class Score:
    """The judgement of one criterion of one sample.

    `score` is in units of the scale, None unless `status` is "scored". `failure` says why a row
    is unscored. `raw_score` is the score before calibration. `jurors` are the scores of each
    judge by its spec, where there were several, and `spread` their standard deviation. `units` are
    the verdicts that a template with units rests on; then there is no distribution, `scale` is the
    criterion's, and `se` the standard error of the score.
    """

    id: str
    criterion: str
    status: Status
    distribution: Distribution | None = None
    failure: Failure | None = None
    score: float | None = None
    raw_score: float | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    prompt_sha256: str = ""
    repeat: int = 0
    reading: Reading | None = None
    jurors: tuple[tuple[str, Score], ...] = ()
    spread: float | None = None
    units: tuple[UnitScore, ...] = ()
    scale: Scale | None = None
    se: float | None = None

    @property
    def normalized(self) -> float | None:
        """The score on 0..1 of its own scale; the overall score is on 0..1 already."""
        scale = self.distribution.scale if self.distribution else self.scale
        if self.score is None or scale is None:
            return self.score
        return scale.normalize(self.score)


@dataclass(frozen=True)
class UnitScore:
    """One unit of a sample: its text, the field it is part of, and what was judged of it."""

    text: str
    of: str
    against: str
    score: Score


def overall(template: Template, scores: Sequence[Score]) -> Score:
    """The weighted mean of the normalised criteria of one sample, with caps.

    Its `score` is on 0..1. Unscored where a criterion with a weight is; a criterion that is not
    applicable leaves the weights; not applicable where all of them are.
    """
    by_name: Mapping[str, Score] = {s.criterion: s for s in scores}
    first = scores[0]
    weighted = [c for c in template.criteria if c.weight > 0]
    failed = [c.name for c in weighted if by_name[c.name].status == "unscored"]
    base = Score(first.id, OVERALL, "unscored", repeat=first.repeat)
    if failed:
        inner = [by_name[name].failure for name in failed]
        return replace(
            base,
            failure=Failure(
                "criterion_unscored",
                f"unscored: {', '.join(failed)}",
                retryable=any(f is not None and f.retryable for f in inner),
            ),
        )
    counted = [(c.weight, n) for c in weighted if (n := by_name[c.name].normalized) is not None]
    if not counted:
        return replace(base, status="not_applicable")
    value = math.fsum(w * n for w, n in counted) / math.fsum(w for w, _ in counted)
    warnings = []
    for cap in template.front.cap:
        scale = template.criterion(cap.criterion).scale
        own = by_name[cap.criterion].score
        limit = scale.normalize(cap.max)
        if own is not None and own < cap.below and value > limit:
            value = limit
            warnings.append(f"capped_by_{cap.criterion}")
    return replace(base, status="scored", score=value, raw_score=value, warnings=tuple(warnings))


def overall_with_raw(template: Template, scores: Sequence[Score]) -> Score:
    """The overall score; its raw score is that of the uncalibrated criteria."""
    whole = overall(template, scores)
    if whole.score is None or not template.front.calibration:
        return whole
    raw = overall(template, [replace(s, score=s.raw_score) for s in scores])
    return replace(whole, raw_score=raw.score)


def failure_record(failure: Failure | None) -> dict[str, Any] | None:
    """The `error` of a result line."""
    if failure is None:
        return None
    return {"kind": failure.kind, "message": failure.message, "retryable": failure.retryable}


def result_record(
    score: Score,
    *,
    fingerprint: str,
    judge: str,
    source: Mapping[str, Any],
    revision: str | None = None,
) -> dict[str, Any]:
    """The line of results.jsonl for a score: finite numbers and null only."""
    d, r = score.distribution, score.reading
    read = d or r
    units = [_unit(u) for u in score.units]
    methods = {u["method"] for u in units} - {None}
    covered = [u["coverage"] for u in units if u["coverage"] is not None]
    alone = d is not None and d.method == "single"
    return {
        "id": score.id,
        "criterion": score.criterion,
        "status": score.status,
        "score": score.score,
        "normalized": score.normalized,
        # One answer without alternatives tells neither a spread nor a coverage.
        "sd": d.sd if d and score.score is not None and d.method != "single" else None,
        "levels": list(d.scale.values) if d else list(score.scale.values) if score.scale else None,
        "probs": [round(p, 9) for p in d.probs] if d else None,
        "mode": d.mode if d and score.score is not None else None,
        "method": d.method if d else _least_exact(methods),
        "coverage": round(read.coverage, 6) if read and not alone else min(covered, default=None),
        "ambiguous": round(read.ambiguous, 6) if read else None,
        "assumed": round(read.assumed, 6) if read else None,
        "outside": round(read.outside, 6) if read else None,
        "unseen": round(read.unseen, 6) if read else None,
        "not_applicable": round(d.not_applicable, 6) if d else None,
        "n_samples": d.n_samples if d else None,
        "se": d.se if d else score.se,
        "unit": None,
        "units": units or None,
        "n_units": len(units) or None,
        "repeat": score.repeat,
        "raw_score": score.raw_score,
        "spread": score.spread,
        "jurors": [_juror(name, own) for name, own in score.jurors] or None,
        "reason": score.reason,
        "warnings": list(score.warnings),
        "numbers_unmatched": None,
        "error": failure_record(score.failure),
        "usage": score.usage.to_dict(),
        "prompt_sha256": score.prompt_sha256 or None,
        "fingerprint": fingerprint,
        "judge": judge,
        "revision": revision,
        "source": dict(source),
    }


def _least_exact(methods: Collection[str]) -> str | None:
    """One name for the methods of units; a warning tells where they are mixed."""
    return next((m for m in reversed(METHODS) if m in methods), None)


def _unit(unit: UnitScore) -> dict[str, Any]:
    """One unit on the line of its criterion; `p` is its verdict on 0..1."""
    score, d = unit.score, unit.score.distribution
    alone = d is not None and d.method == "single"
    read = d or score.reading
    return {
        "text": unit.text,
        "of": unit.of,
        "against": unit.against,
        "status": score.status,
        "p": score.normalized,
        "score": score.score,
        "sd": d.sd if d and score.score is not None and not alone else None,
        "probs": [round(p, 9) for p in d.probs] if d else None,
        "coverage": round(read.coverage, 6) if read and not alone else None,
        "method": d.method if d else None,
        "jurors": [_juror(name, own) for name, own in score.jurors] or None,
        "reason": score.reason,
        "error": None if score.failure is None else score.failure.message,
        "prompt_sha256": score.prompt_sha256 or None,
    }


def _juror(name: str, score: Score) -> dict[str, Any]:
    """What one judge of several said."""
    d = score.distribution
    return {
        "judge": name,
        "status": score.status,
        "score": score.score,
        "sd": d.sd if d and score.score is not None else None,
        "probs": [round(p, 9) for p in d.probs] if d else None,
        "method": d.method if d else None,
        "coverage": round(d.coverage, 6) if d else None,
        "reason": score.reason,
        "error": None if score.failure is None else score.failure.message,
    }
