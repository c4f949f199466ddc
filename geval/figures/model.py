"""What a figure in a text is, and how two of them compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

Bound = Literal["at_least", "more_than", "at_most", "less_than"]
Outcome = Literal["equal", "equal_with_note", "different", "incomparable"]

DOUBLE_NEGATIVE = "double_negative"
SIGN_CONFLICT = "sign_conflict"
SIGN_TWICE = "sign_twice"
SIGN_AMBIGUOUS = "sign_ambiguous"
APPROXIMATE = "approximate"
DERIVABLE = "derivable"


@dataclass(frozen=True, slots=True)
class When:
    """A date or period, as far as it is stated. `quarter_to` is the end of "1~3분기"."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    quarter: int | None = None
    quarter_to: int | None = None
    half: int | None = None
    fiscal: bool = False

    def parts(self) -> dict[str, int]:
        """The stated parts by name, `fiscal` left out."""
        named = {
            "year": self.year,
            "month": self.month,
            "day": self.day,
            "quarter": self.quarter,
            "quarter_to": self.quarter_to,
            "half": self.half,
        }
        return {name: value for name, value in named.items() if value is not None}

    @property
    def number(self) -> Decimal:
        """yyyymmdd with the first month of a quarter or half, 0 for what is not stated."""
        month = self.month or (self.quarter or 0) * 3 or (self.half or 0) * 6
        return Decimal((self.year or 0) * 10000 + month * 100 + (self.day or 0))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as it stands in a text.

    `value` is in the base unit of `dimension`: "money:KRW" (or another currency code), "percent",
    "percent_point", "multiple", "rank", "count", "date", "time" (minutes), "months", "days",
    "minutes", "unit:kg" and the like, or "number" where no unit is stated. `resolution` is the
    place value of the last stated digit, in the same unit. `span` are character offsets of `text`.
    `qualifier` is a stated bound. `note` says what makes the figure less than certain. `upper` is
    the end of a range, `counter` the thing counted, `written` the numeral before its magnitude.
    """

    value: Decimal
    dimension: str
    resolution: Decimal
    span: tuple[int, int]
    text: str
    qualifier: Bound | None = None
    note: str | None = None
    upper: Decimal | None = None
    counter: str | None = None
    written: Decimal = Decimal(0)
    when: When | None = None
    rough: bool = field(default=False)
    """Whether "about" or the like was said: the resolution is that of the last digit but zero."""


@dataclass(frozen=True, slots=True)
class Match:
    """The outcome of a comparison and, where it is not plain, why."""

    outcome: Outcome
    note: str | None = None

    @property
    def held(self) -> bool:
        """Whether the two say the same value."""
        return self.outcome in ("equal", "equal_with_note")
