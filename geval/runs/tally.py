"""Counts and sums over result lines: the summary of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geval.result import OVERALL

_ROUNDING = 1e-9  # a score at the threshold may fall short of it by rounding


@dataclass
class Tally:
    """Counts and sums of a run, fed one result record at a time; memory does not grow with rows."""

    n: dict[str, dict[str, int]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    methods: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    repeats: int = 1
    worst: float = 0.0
    repeated: dict[str, list[float]] = field(default_factory=dict)
    threshold: float | None = None
    passed: int = 0
    failed: int = 0

    @classmethod
    def of_run(cls, manifest: Mapping[str, Any]) -> Tally:
        """An empty tally for a run, by its manifest or identity."""
        aggregate = manifest.get("template", {}).get("unit_aggregate") or {}
        lower_is_better = "noise_sensitivity" in aggregate
        repeats = manifest.get("settings", {}).get("repeat", 1)
        rescored = manifest.get("rescored")
        threshold = rescored.get("threshold") if isinstance(rescored, dict) else None
        worst = 1.0 if lower_is_better else 0.0
        return cls(repeats=repeats, worst=worst, threshold=threshold)

    def passes(self, value: float | None) -> bool | None:
        """Whether an overall score reaches the threshold; None where one of them is missing.

        Where a lower score is better, it must not be above.
        """
        if value is None or self.threshold is None:
            return None
        over = value - self.threshold
        return (-over if self.worst else over) >= -_ROUNDING

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one result line."""
        name = record["criterion"]
        counts = self.n.setdefault(name, {"scored": 0, "unscored": 0, "not_applicable": 0})
        counts[record["status"]] += 1
        value = record["normalized"]
        if value is not None:
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.least[name] = min(value, self.least.get(name, value))
            self.most[name] = max(value, self.most.get(name, value))
        for warning in record["warnings"]:
            self.warnings[warning] = self.warnings.get(warning, 0) + 1
        if name == OVERALL:
            passed = self.passes(value)
            if passed is not None:
                self.passed += passed
                self.failed += not passed
            if self.repeats > 1 and value is not None:
                self.repeated.setdefault(record["id"], []).append(value)
            return
        if record["error"]:
            kind = record["error"]["kind"]
            self.failures[kind] = self.failures.get(kind, 0) + 1
        if record["method"]:
            self.methods[record["method"]] = self.methods.get(record["method"], 0) + 1
        for key, number in record["usage"].items():
            self.usage[key] = self.usage.get(key, 0) + number

    def mean(self, name: str = OVERALL) -> float | None:
        """Mean of the normalised scores over scored rows; None where there is none."""
        scored = self.n.get(name, {}).get("scored", 0)
        return self.sums[name] / scored if scored else None

    def pessimistic(self, name: str = OVERALL) -> float | None:
        """The mean with every unscored row at the bad end of the scale (`worst`, 0 or 1)."""
        counts = self.n.get(name, {})
        rows = counts.get("scored", 0) + counts.get("unscored", 0)
        unscored = self.worst * counts.get("unscored", 0)
        return (self.sums.get(name, 0.0) + unscored) / rows if rows else None

    def to_dict(self) -> dict[str, Any]:
        """The `summary` of a manifest."""
        criteria = {
            name: {**counts, "mean": self.mean(name), "pessimistic_mean": self.pessimistic(name)}
            for name, counts in self.n.items()
        }
        scores = criteria.pop(OVERALL, {"scored": 0, "unscored": 0, "not_applicable": 0})
        told = {
            "overall": scores,
            "criteria": criteria,
            "failures": self.failures,
            "methods": self.methods,
            "warnings": self.warnings,
            "usage": self.usage,
            "narrow": self.narrow(),
            "noise": self.noise() if self.repeats > 1 else None,
        }
        if self.threshold is not None:
            told["passed"] = {
                "threshold": self.threshold,
                "passed": self.passed,
                "failed": self.failed,
                "unscored": scores["unscored"],
            }
        return told

    def noise(self, threshold: float | None = None) -> dict[str, Any]:
        """The judge's own noise over repeats of the same rows, on the overall score (0..1).

        `sd` is the root mean square of the rows' standard deviations; `flip_rate` the share of
        rows whose repeats lie on both sides of `threshold` (default: the run's own, else 0.5).
        """
        if threshold is None:
            threshold = 0.5 if self.threshold is None else self.threshold
        several = [v for v in self.repeated.values() if len(v) > 1]
        if not several:
            return {"rows": 0, "sd": None, "flip_rate": None, "threshold": threshold}
        flips = sum(min(v) < threshold <= max(v) for v in several)
        return {
            "rows": len(several),
            "sd": math.sqrt(math.fsum(statistics.variance(v) for v in several) / len(several)),
            "flip_rate": flips / len(several),
            "threshold": threshold,
        }

    def narrow(self) -> list[str]:
        """Criteria whose scores sit in under 5 % of the range: they tell rows hardly apart."""
        return [
            name
            for name in self.least
            if self.n[name]["scored"] >= 10 and self.most[name] - self.least[name] < 0.05
        ]
