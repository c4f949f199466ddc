"""Figures in text, Korean and English: read, compared, and looked up in the sources of an answer.

    figures("매출 1,234억원은 12.3% 증가")   # money:KRW 123400000000, percent 12.3
    compare(figures("0.1234조원")[0], figures("KRW 123.4 billion")[0])   # equal
    unmatched("매출은 1,243억원이다.", ["매출은 1,234억원이다."])   # 1,243억원

What counts as equal:

* Values are compared at the coarser of their stated resolutions, half-up; a value that was cut off
  is equal with the note "truncated". "약", "여", "가량", "about" relax to the last digit but zero.
* A bound (이상, 초과, 이하, 미만, at least, ...) is part of the value.
* A direction is a sign: "12% 감소", "fell by 12%" are -12 %; "영업손실 12억원" is -12억원. A minus
  and a word for it ("-12% 감소") are a double negative: nothing but the same words equals it.
  With a loss ("영업손실 △12억원") the two are one sign, noted "sign_twice".
* ▲ is up or down by its legend or with ▼ beside it, else its sign is open ("sign_ambiguous").
  Parentheses are a minus in statements and tables, never around counts or in prose.
* Currencies are not converted. A bare 억 or 조 is won where the words around are of money.
* A bare number equals one with a unit by its digits, three or more of them ("unit_unstated").
* Names with digits (005930, IFRS 17, 제3조, addresses, versions, list markers) are no figures.

It is a check beside the score and never the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Context, Decimal, DecimalException
from functools import lru_cache

from geval.figures.compare import compare, compare_dates
from geval.figures.extract import extract
from geval.figures.model import DERIVABLE, Bound, Figure, Match, When

__all__ = ["Bound", "Figure", "Match", "When", "compare", "figures", "unmatched"]

DERIVED_FROM = 12
"""Different source values of one dimension up to which derived values are looked for.

Two hundred figures have a growth rate for every percentage there is: a find would mean nothing.
"""

_WIDE = Context(prec=40)
_cached = lru_cache(maxsize=128)(extract)


def figures(text: str, locale: str | None = None) -> list[Figure]:
    """The figures of `text` in the order they stand.

    Both languages are read whatever `locale` is; "en-GB" reads "9/10/2025" day first.
    """
    return list(_cached(text, locale))


def unmatched(answer: str, sources: Iterable[str], locale: str | None = None) -> list[Figure]:
    """Figures of `answer` that no text of `sources` holds, in the order they stand.

    One that is the difference, sum, ratio or growth rate of two source figures of one dimension
    comes with the note "derivable"; that is looked for among at most `DERIVED_FROM` values.
    """
    asked = figures(answer, locale)
    if not asked:
        return []
    held = list(dict.fromkeys(f for text in sources for f in _cached(text, locale)))
    years = {f.when.year for f in held if f.when is not None and f.when.year is not None}
    by_kind: dict[str, list[Figure]] = {}
    for figure in held:
        by_kind.setdefault(_kind(figure), []).append(figure)
    found = []
    for figure in asked:
        if any(_holds(source, figure, years) for source in _candidates(figure, by_kind)):
            continue
        if figure.upper is not None and _both_ends(figure, by_kind, years):
            continue
        found.append(replace(figure, note=DERIVABLE) if _derivable(figure, by_kind) else figure)
    return found


def _kind(figure: Figure) -> str:
    return figure.dimension.partition(":")[0]


_ACROSS = {
    "multiple": ("percent",),
    "percent": ("multiple",),
    "days": ("date",),
    "date": ("days",),
}


def _candidates(figure: Figure, by_kind: dict[str, list[Figure]]) -> Iterable[Figure]:
    kind = _kind(figure)
    if kind == "number":
        for group in by_kind.values():
            yield from group
        return
    for name in (kind, "number", *_ACROSS.get(kind, ())):
        yield from by_kind.get(name, ())


def _holds(source: Figure, figure: Figure, years: set[int]) -> bool:
    """Whether a source figure says what the answer's does; a date must not say less."""
    if source.when is None or figure.when is None:
        return compare(source, figure).held
    if not compare_dates(source.when, figure.when).held:
        return False
    missing = figure.when.parts().keys() - source.when.parts().keys()
    return not missing or (missing == {"year"} and figure.when.year in years)


def _both_ends(figure: Figure, by_kind: dict[str, list[Figure]], years: set[int]) -> bool:
    assert figure.upper is not None
    ends = (replace(figure, upper=None), replace(figure, value=figure.upper, upper=None))
    return all(any(_holds(s, end, years) for s in _candidates(end, by_kind)) for end in ends)


def _derivable(figure: Figure, by_kind: dict[str, list[Figure]]) -> bool:
    """Whether simple arithmetic with two source figures of one dimension gives `figure`."""
    if figure.when is not None or figure.upper is not None:
        return False
    for group in by_kind.values():
        of_one: dict[str, dict[Decimal, Figure]] = {}
        for source in group:
            if source.when is None and source.upper is None:
                of_one.setdefault(source.dimension, {}).setdefault(source.value, source)
        for values in of_one.values():
            if 1 < len(values) <= DERIVED_FROM and _from_pairs(figure, list(values.values())):
                return True
    return False


def _from_pairs(figure: Figure, values: Sequence[Figure]) -> bool:
    for a in values:
        for b in values:
            if a is not b and any(_fits(figure, *made) for made in _made(a, b, figure)):
                return True
    return False


def _made(a: Figure, b: Figure, figure: Figure) -> Iterable[tuple[Decimal, Decimal]]:
    """(value, resolution) of what `a` and `b` give in the dimension of `figure`."""
    step = max(a.resolution, b.resolution)
    if figure.dimension == a.dimension:
        yield a.value + b.value, step
        if a.dimension != "percent":
            yield a.value - b.value, step
    if a.dimension == "percent" and figure.dimension == "percent_point":
        yield a.value - b.value, step
    if figure.dimension in ("percent", "multiple") and a.dimension != "percent" and b.value:
        try:
            ratio = _WIDE.divide(a.value, b.value)
        except DecimalException:
            return
        if figure.dimension == "multiple":
            yield ratio, figure.resolution
        elif b.value > 0:
            yield ratio * 100, figure.resolution
            yield (ratio - 1) * 100, figure.resolution


def _fits(figure: Figure, value: Decimal, resolution: Decimal) -> bool:
    made = replace(
        figure, value=value, resolution=resolution, note=None, qualifier=figure.qualifier
    )
    return compare(made, figure).held
