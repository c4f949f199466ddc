"""What `agree` finds: figures by criterion, and how run and labels were joined."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One statistic: None as `value` where it has none (constant scores)."""

    metric: str
    level: str
    read: str
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    groups_used: int
    groups_skipped: int


@dataclass
class CriterionAgreement:
    """Agreement on one criterion. `ceiling` is that of people among themselves, or None."""

    criterion: str
    n: int
    groups: int
    levels: list[float] | None
    figures: list[Figure] = field(default_factory=list)
    gain: dict[str, Any] | None = None
    corrected: dict[str, Any] | None = None
    contradicted: dict[str, Any] | None = None
    ceiling: dict[str, float | int | None] | None = None
    confusion: list[list[int]] | None = None
    reliability: list[dict[str, float]] | None = None
    people: dict[str, Any] | None = None
    by_system: dict[str, dict[str, Any]] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    by_group: dict[str, dict[str, Any]] = field(default_factory=dict)
    points: list[tuple[float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    every_row: Any = field(default=None, repr=False, compare=False)
    """(judge, people, group) of all scored rows, (n,) each; people NaN where nobody said anything.

    Not in `Agreement.to_dict`."""

    def value(self, metric: str, read: str = "score", level: str = "pooled") -> float | None:
        """The value of one figure. Raises KeyError where it was not taken."""
        for f in self.figures:
            if (f.metric, f.read, f.level) == (metric, read, level):
                return f.value
        raise KeyError((metric, read, level))


@dataclass
class Agreement:
    """Agreement of a run with people, by criterion, and how the two were joined."""

    run: str
    judge: str
    template: str
    locale: str
    join: dict[str, Any]
    criteria: dict[str, CriterionAgreement]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: finite numbers, texts and None."""
        told = asdict(self)
        for one in told["criteria"].values():
            del one["every_row"]
        return dict(_finite(told))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
