"""Result lines scored anew by another template, through the functions that scored them first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from geval.calibration import apply
from geval.distribution import Distribution
from geval.errors import RunError
from geval.reading.answer import Failure
from geval.result import OVERALL, Score, failure_record, overall_with_raw
from geval.runs.listing import damaged
from geval.runs.run import Run
from geval.scale import Scale
from geval.template import Criterion, Template
from geval.units.parts import Unit, UnitSpec
from geval.units.scoring import combine_units

Record = dict[str, Any]
Sides = tuple[str, str]
"""The field that units are part of, and the one they were held against."""


def sides_of(unit: Any) -> Sides:
    """The sides of a unit as a result line has it."""
    if not isinstance(unit, dict):
        return "", ""
    return str(unit.get("of")), str(unit.get("against"))


class Again:
    """Result lines of one row after another, scored by the new template."""

    def __init__(self, run: Run, old: Template, new: Template) -> None:
        self.run, self.new = run, new
        self.reaggregated = bool(old.front.units) and (
            old.front.unit_aggregate != new.front.unit_aggregate
        )
        before, after = old.front.calibration or {}, new.front.calibration or {}
        self.recalibrated = {
            c.name for c in new.criteria if before.get(c.name) != after.get(c.name)
        }
        self.specs = {(s.of, s.against): s for s in new.front.unit_sets} if new.front.units else {}

    def row(self, lines: Sequence[Record]) -> list[Record]:
        """The lines of a row, its overall line last."""
        by_name = {r["criterion"]: r for r in lines}
        lost = [c.name for c in self.new.criteria if c.name not in by_name]
        if lost:
            raise RunError(
                f"row {lines[-1]['id']!r} has no line for {', '.join(lost)}",
                where=str(self.run.folder),
                hint="Restore the lines as geval wrote them, or score the rows again.",
            )
        records, scores = [], []
        for criterion in self.new.criteria:
            record = by_name[criterion.name]
            try:
                record = self._record(record, criterion)
                scores.append(_score(record, criterion.scale))
            except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
                raise damaged(self.run, record, error) from None
            records.append(record)
        old = by_name[OVERALL]
        whole = overall_with_raw(self.new, scores)
        kept = [w for w in old["warnings"] if not str(w).startswith("capped_by_")]
        new = {**old, **_outcome(whole), "warnings": [*whole.warnings, *kept]}
        return [*records, new]

    def _record(self, record: Record, criterion: Criterion) -> Record:
        if self.reaggregated and record.get("units"):
            return self._by_units(record, criterion)
        if criterion.name not in self.recalibrated or record["status"] != "scored":
            return record
        raw = record["raw_score"]
        probs = record.get("probs")
        plain = _score(record, criterion.scale)
        if probs:
            read = Distribution(criterion.scale, tuple(probs), record["method"])
            plain = replace(plain, distribution=read)
        return {**record, **_outcome(apply(self.new, replace(plain, score=raw, raw_score=raw)))}

    def _by_units(self, record: Record, criterion: Criterion) -> Record:
        again = bool(record["error"] and record["error"].get("retryable"))
        verdicts = []
        for index, one in enumerate(record["units"]):
            spec = self.specs.get(sides_of(one))
            if spec is not None:  # of two sets the new aggregate may read one
                verdicts.append(_verdict(one, index, spec, criterion.scale, record, again))
        score = combine_units(self.new, criterion, verdicts)
        return {**record, **_outcome(apply(self.new, score)), "se": score.se}


def _outcome(score: Score) -> Record:
    return {
        "status": score.status,
        "score": score.score,
        "normalized": score.normalized,
        "raw_score": score.raw_score,
        "error": failure_record(score.failure),
    }


def _score(record: Mapping[str, Any], scale: Scale) -> Score:
    """The score that a line tells, as far as the overall score rests on it."""
    error = record["error"]
    value, raw = record["score"], record["raw_score"]
    if record["status"] == "scored" and not _finite(value, raw):
        raise ValueError(f"a scored line without numbers: {value!r}, {raw!r}")
    return Score(
        record["id"],
        record["criterion"],
        record["status"],
        score=value,
        raw_score=raw,
        failure=Failure(error["kind"], error["message"], bool(error["retryable"]))
        if error
        else None,
        repeat=record["repeat"],
        scale=scale,
    )


def _finite(*values: Any) -> bool:
    return all(isinstance(v, int | float) and math.isfinite(v) for v in values)


def _verdict(
    one: Mapping[str, Any], index: int, spec: UnitSpec, scale: Scale, record: Record, again: bool
) -> tuple[Unit, Score]:
    method, probs = one.get("method"), one.get("probs")
    # What samples add to the variance is not on the line, so their standard error is not known.
    known = bool(probs) and method not in (None, "single", "samples")
    score = Score(
        record["id"],
        record["criterion"],
        one["status"],
        Distribution(scale, tuple(probs or ()), method) if known and method else None,
        Failure("unit_unscored", str(one.get("error") or ""), again)
        if one["status"] == "unscored"
        else None,
        score=one["score"],
        raw_score=one["score"],
        reason=one.get("reason"),
        repeat=record["repeat"],
        scale=scale,
    )
    return Unit(str(one["text"]), spec, index, index), score
