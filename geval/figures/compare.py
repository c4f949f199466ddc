"""Whether two figures say the same value."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from geval.figures.model import (
    APPROXIMATE,
    DOUBLE_NEGATIVE,
    SIGN_AMBIGUOUS,
    SIGN_CONFLICT,
    Figure,
    Match,
    When,
)

_WIDE = Context(prec=80)
_HUNDRED = Decimal(100)
EQUAL, DIFFERENT = Match("equal"), Match("different")
_COUNTERS = [
    {"명", "인"},
    {"개사", "곳", "사", "개", "개소"},
    {"회", "번", "차례"},
    {"종", "종목", "개"},
    {"세", "살"},
]


def compare(a: Figure, b: Figure) -> Match:
    """Whether `a` and `b` are the same value, at the coarser of their resolutions.

    Half-up; a value that equals the other when cut off is equal with the note "truncated".
    """
    if a.when is not None or b.when is not None:
        return _days(a, b) if a.when is None or b.when is None else compare_dates(a.when, b.when)
    if a.dimension != b.dimension:
        return _across(a, b)
    if a.dimension == "count" and not _same_thing(a.counter, b.counter):
        return Match("incomparable", "counter")
    return _by_value(a, b)


def _by_value(a: Figure, b: Figure) -> Match:
    if a.upper is not None or b.upper is not None:
        return _ranges(a, b)
    doubtful = {DOUBLE_NEGATIVE, SIGN_CONFLICT} & {a.note, b.note}
    if doubtful:
        if a.note == b.note and _same(a.value, b.value, a, b) == "equal":
            return EQUAL
        same = _same(abs(a.value), abs(b.value), a, b) in ("equal", "truncated")
        return Match("incomparable", doubtful.pop()) if same else DIFFERENT
    if SIGN_AMBIGUOUS in (a.note, b.note):
        same = _same(abs(a.value), abs(b.value), a, b) in ("equal", "truncated")
        return Match("equal_with_note", SIGN_AMBIGUOUS) if same else DIFFERENT
    if a.qualifier != b.qualifier:
        return _bounds(a, b)
    outcome = _same(a.value, b.value, a, b)
    if outcome == "different":
        return DIFFERENT
    note = outcome if outcome == "truncated" else _note(a, b)
    return Match("equal_with_note", note) if note else EQUAL


def _note(a: Figure, b: Figure) -> str | None:
    """A note that makes an equality less than plain."""
    noted = [f.note for f in (a, b) if f.note and f.note != APPROXIMATE]
    if noted:
        return noted[0]
    return APPROXIMATE if a.rough != b.rough and a.resolution != b.resolution else None


def _same(x: Decimal, y: Decimal, a: Figure, b: Figure) -> str:
    """ "equal", "truncated" or "different" at the coarser resolution."""
    if x == y:
        return "equal"
    step = max(a.resolution, b.resolution)
    if step <= 0 or abs(x - y) > step or ((x < 0) != (y < 0) and x and y):
        return "different"
    if _rounded(x, step) == _rounded(y, step):
        return "equal"
    coarse, fine = (x, y) if a.resolution >= b.resolution else (y, x)
    return (
        "truncated"
        if _WIDE.divide(fine, step).to_integral_value(ROUND_DOWN) * step == coarse
        else "different"
    )


def _rounded(value: Decimal, step: Decimal) -> Decimal:
    return _WIDE.divide(value, step).to_integral_value(ROUND_HALF_UP)


def _ranges(a: Figure, b: Figure) -> Match:
    if a.upper is not None and b.upper is not None:
        low, high = _same(a.value, b.value, a, b), _same(a.upper, b.upper, a, b)
        return EQUAL if low == high == "equal" and a.qualifier == b.qualifier else DIFFERENT
    one, several = (a, b) if a.upper is None else (b, a)
    assert several.upper is not None
    ends = (several.value, several.upper)
    if any(_same(one.value, end, a, b) == "equal" for end in ends):
        return Match("equal_with_note", "end_of_range")
    return DIFFERENT


def _bounds(a: Figure, b: Figure) -> Match:
    """A bound is part of the value; an exact value within it, of the same digits, fits it."""
    if a.qualifier and b.qualifier:
        return Match("different", "bound")
    exact, bound = (a, b) if b.qualifier else (b, a)
    if exact.value == bound.value:
        return Match("different", "bound")
    above = bound.qualifier in ("at_least", "more_than")
    if (exact.value > bound.value) is not above:
        return Match("different", "bound")
    step = max(_digit(bound), bound.resolution)
    near = abs(exact.value - bound.value) < step
    return Match("equal_with_note", "bound") if near else Match("different", "bound")


def _digit(figure: Figure) -> Decimal:
    exponent = figure.value.normalize().as_tuple().exponent
    return Decimal(1).scaleb(exponent) if figure.value and isinstance(exponent, int) else Decimal(0)


def _across(a: Figure, b: Figure) -> Match:
    """Figures of two dimensions: where a unit is unstated, and "1.5배" beside "50% 증가"."""
    kinds = {a.dimension.partition(":")[0], b.dimension.partition(":")[0]}
    if kinds == {"money"}:
        if "money:" in (a.dimension, b.dimension):
            return _noted(_by_value(a, b), "currency_unstated")
        return Match("incomparable", "currency")
    if "number" in kinds and not kinds & {"rank", "time"}:
        return _unstated(a, b)
    if kinds == {"multiple", "percent"}:
        times, percent = (a, b) if a.dimension == "multiple" else (b, a)
        share = _of_hundred(times, Decimal(0))
        for candidate in (share, _of_hundred(times, _HUNDRED)):
            found = _by_value(candidate, percent)
            if found.held:
                return Match("equal_with_note", "multiple")
        return DIFFERENT
    return Match("incomparable", "dimension")


def _of_hundred(figure: Figure, less: Decimal) -> Figure:
    from dataclasses import replace

    return replace(
        figure,
        value=figure.value * _HUNDRED - less,
        resolution=figure.resolution * _HUNDRED,
        dimension="percent",
        upper=None,
    )


def _unstated(a: Figure, b: Figure) -> Match:
    """A bare number beside one with a unit: its digits must be the same, and three or more."""
    bare, full = (a, b) if a.dimension == "number" else (b, a)
    if bare.upper is not None or full.upper is not None:
        return Match("incomparable", "dimension")
    scaled = abs(bare.value) != abs(bare.written)
    found = _by_value(a, b)
    if found.held and (scaled or len(bare.written.as_tuple().digits) >= 3):
        return _noted(found, "unit_unstated")
    if not scaled and bare.written == full.written and len(bare.written.as_tuple().digits) >= 3:
        same_sign = (bare.value < 0) == (full.value < 0)
        return Match("equal_with_note", "unit_unstated") if same_sign else DIFFERENT
    return Match("incomparable", "dimension")


def _noted(match: Match, note: str) -> Match:
    return Match("equal_with_note", match.note or note) if match.held else match


def _same_thing(a: str | None, b: str | None) -> bool:
    """Whether two counters may count the same; words of two languages may."""
    if a is None or b is None or a == b or a.isascii() or b.isascii():
        return True
    return any(a in group and b in group for group in _COUNTERS)


def _days(a: Figure, b: Figure) -> Match:
    """A day of a month beside a number of days: "30일" may be either."""
    date, other = (a, b) if a.when is not None else (b, a)
    assert date.when is not None
    if other.dimension == "days" and date.when.parts() == {"day": int(other.value)}:
        return Match("equal_with_note", "day_or_days")
    return Match("incomparable", "dimension")


def compare_dates(a: When, b: When) -> Match:
    """Dates are equal where every part that both state is, and both state the same parts."""
    left, right = a.parts(), b.parts()
    common = left.keys() & right.keys()
    if any(left[name] != right[name] for name in common):
        return DIFFERENT
    if not common:
        return Match("incomparable", "period")
    if left.keys() == right.keys():
        return EQUAL if a.fiscal == b.fiscal else Match("equal_with_note", "fiscal")
    if left.keys() < right.keys() or right.keys() < left.keys():
        if "quarter_to" in left.keys() ^ right.keys():
            return Match("different", "cumulative")
        return Match("equal_with_note", "less_precise")
    return Match("different", "period")
