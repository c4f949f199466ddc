"""From a text to its figures, in the order they stand."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from geval.figures import signs, units
from geval.figures.dates import dates
from geval.figures.model import (
    APPROXIMATE,
    DOUBLE_NEGATIVE,
    SIGN_AMBIGUOUS,
    SIGN_CONFLICT,
    SIGN_TWICE,
    Bound,
    Figure,
    When,
)
from geval.figures.numerals import (
    ENGLISH_RUN,
    HANGUL_RUN,
    LONGEST,
    Numeral,
    read,
    read_english,
    read_hangul,
)
from geval.figures.plain import ADDRESSES, IDENTIFIERS, KOREAN_TIME, TIME, plain

_NEXT = re.compile(r"[0-9]|(?<![0-9A-Za-z가-힣])\.[0-9]")
_RUN = re.compile(r"[0-9.,]*+")
_RANGE = re.compile(r" ?(?:(?P<tilde>~)|(?P<dash>-)|(?P<to>to )) ?(?=[$€£₩]?[0-9])[$€£₩]?")
_YEARS = range(1990, 2050)
_MONEY = re.compile(
    r"매출|이익|손실|손익|금액|자산|부채|자본|비용|원가|배당|수주|투자|예산|시가총액|대금|잔액|현금|차입|예금|대출|"
    r"[만억조]원|수익|지출|수입|지급|순이자|판관비|영업"
)
_WORDS = [
    (re.compile(r"절반|(?<![A-Za-z-])[Hh]alf (?=of|the|its)"), "percent", None),
    (re.compile(r"(?P<n>첫|두|세|네|다섯) ?번째"), "rank", None),
    (re.compile(r"(?P<n>두|세|네|다섯) ?배(?!럴|당|송|우|터)"), "multiple", None),
    (
        re.compile(
            r"(?i:\brank(?:ed|s|ing)? )(?P<n>first|second|third|fourth|fifth)\b"
            r"|\b(?P<l>second|third|fourth|fifth)[- ](?=largest|biggest|highest|lowest"
            r"|smallest|place)"
        ),
        "rank",
        None,
    ),
    (re.compile(r"\bNo\. ?(?P<d>[0-9]{1,3})(?![0-9.,-])"), "rank", None),
]
_ORDER = {
    "첫": 1, "두": 2, "세": 3, "네": 4, "다섯": 5,
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5,
}  # fmt: skip
_SIGNED = ("money", "percent", "percent_point", "number", "count", "unit", "multiple")
_DAY = re.compile(r"일(?!부터 [0-9]|본|반|정|시적|평균)")
_MORE = re.compile(r" ?[십백천]?[만억조]")
_PLACES = {"십": 10, "백": 100, "천": 1000, "만": 10**4, "억": 10**8, "조": 10**12}
_FIGURE_ENDS = re.compile(r"(?:[0-9%원명건개주배위p]|조|억) ?$")


def extract(text: str, locale: str | None = None) -> tuple[Figure, ...]:
    """The figures of `text`; identifiers, addresses and list markers are left out."""
    return _Reading(text, locale).figures()


class _Reading:
    """One text while it is read; `taken` marks the characters that belong to something."""

    def __init__(self, text: str, locale: str | None) -> None:
        self.source = text
        self.text, self.offsets = plain(text)
        self.locale = locale
        self.taken = bytearray(len(self.text))
        self.triangle = signs.triangle(self.text) if "▲" in self.text else 0
        self.open_triangle = 1 if "▽" in self.text else -1
        self.units = units.declared(self.text)
        self.unit_starts = [start for start, *_ in self.units]

    def figures(self) -> tuple[Figure, ...]:
        for pattern in ADDRESSES:
            self._mark(pattern)
        found = [self._dated(*at) for at in dates(self.text, self.taken, self.locale)]
        found += self._times()
        for pattern in IDENTIFIERS:
            self._mark(pattern)
        for start, end, *_ in self.units:
            self.taken[start:end] = b"\x01" * (end - start)
        found += self._words()
        found += self._numerals()
        return tuple(sorted(found, key=lambda f: f.span))

    def _mark(self, pattern: re.Pattern[str]) -> None:
        for match in pattern.finditer(self.text):
            start, end = match.span()
            if not any(self.taken[start:end]):
                self.taken[start:end] = b"\x01" * (end - start)

    def _free(self, start: int, end: int) -> bool:
        if any(self.taken[start:end]):
            return False
        self.taken[start:end] = b"\x01" * (end - start)
        return True

    def _place(self, start: int, end: int) -> tuple[tuple[int, int], str]:
        if self.offsets is not None:
            start, end = self.offsets[start], self.offsets[end]
        return (start, end), self.source[start:end]

    def _dated(self, start: int, end: int, when: When) -> Figure:
        span, text = self._place(start, end)
        return Figure(when.number, "date", Decimal(1), span, text, written=when.number, when=when)

    def _times(self) -> Iterator[Figure]:
        for pattern in (TIME, KOREAN_TIME):
            for match in pattern.finditer(self.text):
                if not self._free(*match.span()):
                    continue
                hour, minute = int(match["h"]), int(match["m"] or 0)
                if pattern is KOREAN_TIME and match["half"] == "오후" and hour < 12:
                    hour += 12
                span, text = self._place(*match.span())
                value = Decimal(60 * hour + minute)
                yield Figure(value, "time", Decimal(1), span, text, written=value)

    def _words(self) -> Iterator[Figure]:
        """Figures without a numeral: "절반", "두 번째", "ranked third"."""
        for pattern, dimension, _ in _WORDS:
            for match in pattern.finditer(self.text):
                if not self._free(*match.span()):
                    continue
                groups = [g for g in match.groups() if g]
                span, text = self._place(*match.span())
                if not groups:
                    yield Figure(
                        Decimal(50), dimension, Decimal(10), span, text, note=APPROXIMATE,
                        written=Decimal(50), rough=True,
                    )  # fmt: skip
                    continue
                word = groups[0].lower()
                value = Decimal(_ORDER.get(word) or int(word))
                yield Figure(value, dimension, Decimal(1), span, text, written=value)

    def _numerals(self) -> Iterator[Figure]:
        for match in HANGUL_RUN.finditer(self.text):
            start, end = match.span()
            number = read_hangul(self.text, start, end)
            if number is not None and not any(self.taken[start:end]):
                yield from self._built(start, number)
        for match in ENGLISH_RUN.finditer(self.text):
            if not any(self.taken[match.start() : match.end()]):
                yield from self._built(match.start(), read_english(match[0], match.end()))
        position = 0
        while match_ := _NEXT.search(self.text, position):
            start = match_.start()
            if self.taken[start]:
                free = self.taken.find(0, start)
                position = free if free >= 0 else len(self.text)
                continue
            run = _RUN.match(self.text, start)
            stop = run.end() if run else start + 1
            number = None if stop - start > 4 * LONGEST else read(self.text, start)
            if number is None:
                position = max(stop, start + 1)
                continue
            if self.text[start] == "0" and self.text[start + 1 : start + 2].isdigit():
                position = number.end  # a code with leading zeros
                continue
            end = number.end
            for figure in self._built(start, number):
                end = max(end, self._end)
                yield figure
            position = end

    _end = 0

    def _built(self, start: int, number: Numeral) -> Iterator[Figure]:
        """The figure around one numeral; `_end` is where reading goes on."""
        text = self.text
        self._end = number.end
        front = signs.before(text, start)
        number, rough = self._odd(number)
        number, upper = self._range(number, front.currency)
        end = upper.end if upper else number.end
        closed = front.bracket and text[end : end + 1] == ")"
        if closed and (big := _MORE.match(text, end + 1)):  # "(12)억원"
            factor = _product(big[0])
            number = replace(number.times(factor), end=big.end())
            end = big.end() - 1
        unit = units.after(text, end + closed, front.currency)
        if units.SKIPPED.match(text, end) and unit.dimension in ("number", "count"):
            return
        if unit.dimension == "number" and not closed:
            letter = text[end : end + 1]
            if not unit.magnitude and letter.isascii() and letter.isalpha():
                return  # a name: 5G, 12x34
            if self._is_year(number, front, end):
                span, said = self._place(start, end)
                when = When(int(number.value))
                self._end = end
                yield Figure(
                    when.number, "date", Decimal(1), span, said, written=number.value, when=when
                )
                return
            if (day := self._day(number, start, end)) is not None:
                self._end = day.end
                yield self._dated(start, day.end, When(day=int(number.value)))
                return
        if (
            unit.dimension == "number"
            and text[max(0, start - 1) : start].isalpha()
            and text[start - 1].isascii()
        ):
            return
        dimension, factor, magnitude = unit.dimension, unit.factor, unit.magnitude or number.big
        end = unit.end if unit.end > end + closed or not closed else end
        closed_after = front.bracket and not closed and text[end : end + 1] == ")"
        if dimension == "number" and not magnitude and (cell := self._cell(start)):
            dimension, factor = cell
        elif dimension == "number" and number.big and not unit.magnitude:
            around = text[max(0, start - 60) : end + 40]
            if _MONEY.search(around):
                dimension = "money:KRW"
        after_rough = signs.rough_after(text, end)
        rough, end = rough or front.rough or after_rough > end, after_rough
        bound, end = (front.bound, end) if front.bound else signs.bound_after(text, end)
        if upper is not None and bound is None:
            bound, end = signs.bound_after(text, end)
        value, resolution = number.value * factor, number.resolution * factor
        sign, note = self._sign(dimension, front, start, end, closed or closed_after, unit)
        stop = (
            end + 1 if sign[1] and (closed or closed_after) and text[end : end + 1] == ")" else end
        )
        first = front.start - 1 if sign[1] and front.bracket else front.start
        if rough:
            resolution = max(resolution, _last_digit(value))
            note = note or APPROXIMATE
        span, said = self._place(first, stop)
        self._end = max(stop, self._end)
        yield Figure(
            value * sign[0],
            dimension,
            resolution,
            span,
            said,
            bound,
            note,
            upper.value * factor * sign[0] if upper else None,
            unit.counter,
            number.written,
            None,
            rough,
        )

    def _odd(self, number: Numeral) -> tuple[Numeral, bool]:
        """The numeral with what follows "여" ("1,200여억"); whether it was there."""
        if self.text[number.end : number.end + 1] != "여":
            return number, False
        more = _MORE.match(self.text, number.end + 1)
        if more is None:
            return replace(number, end=number.end + 1), True
        return replace(number.times(_product(more[0])), end=more.end()), True

    def _range(self, number: Numeral, currency: str | None) -> tuple[Numeral, Numeral | None]:
        """(first, last or None) of "10~12%", "10%~12%", "$1.0-1.2bn", "10 to 12%"."""
        text, end = self.text, number.end
        match = _RANGE.match(text, end)
        unit = None
        if match is None:
            unit = units.after(text, end, currency)
            match = _RANGE.match(text, unit.end)
            if unit.dimension == "number" or match is None or not match["tilde"]:
                return number, None
        if self.taken[match.end()]:
            return number, None
        second = read(text, match.end())
        if second is None or second.value <= 0:
            return number, None
        last = units.after(text, second.end, currency)
        if last.dimension == "number" and not second.big and not match["tilde"]:
            return number, None
        if unit is not None and unit.dimension != last.dimension:
            return number, None
        if second.big and not number.big and second.written:
            number = number.times(second.value / second.written)
        if second.value < number.value:
            return number, None
        return number, second

    def _is_year(self, number: Numeral, front: signs.Front, end: int) -> bool:
        following = self.text[end : end + 1]
        return (
            number.plain
            and number.value in _YEARS
            and not front.currency
            and front.sign == 0
            and following not in (":", "/")
        )

    def _day(self, number: Numeral, start: int, end: int) -> Numeral | None:
        """ "30일" is a day of a month; "30일간" was read as a duration before."""
        match = _DAY.match(self.text, end)
        if match is None or not number.plain or not 1 <= number.value <= 31:
            return None
        return replace(number, end=match.end())

    def _cell(self, start: int) -> tuple[str, Decimal] | None:
        """Dimension and factor of a bare number under a declared unit."""
        index = bisect_right(self.unit_starts, start) - 1
        if index < 0:
            return None
        _, _, dimension, factor = self.units[index]
        return dimension, factor

    def _sign(
        self,
        dimension: str,
        front: signs.Front,
        start: int,
        end: int,
        closed: bool,
        unit: units.Unit,
    ) -> tuple[tuple[int, bool], str | None]:
        """((1 or -1, whether brackets say it), note) of a figure."""
        if dimension.partition(":")[0] not in _SIGNED:
            return (1, False), None
        way, noun = signs.direction(self.text, front.start, end)
        sign = front.sign
        if sign == -1 and self.text[front.start : start].lstrip()[:1] == "△":
            sign = self.open_triangle
        brackets = sign == 0 and closed and front.bracket and self._negative(front, dimension)
        if brackets:
            sign, end = -1, end + 1
            way, noun = signs.direction(self.text, front.start - 1, end)
        if sign == 2:
            if self.triangle:
                return (self.triangle, False), None
            return (way or 1, False), None if way else SIGN_AMBIGUOUS
        if sign == -1 and way == -1:
            return (-1, brackets), SIGN_TWICE if noun else DOUBLE_NEGATIVE
        if sign == -1 and way == 1 and not noun:
            return (-1, brackets), SIGN_CONFLICT
        return (sign or way or 1, brackets), None

    def _negative(self, front: signs.Front, dimension: str) -> bool:
        """Whether a bracketed figure is a negative one: in a statement, not in prose."""
        if dimension == "count":
            return False
        head = self.text[max(0, front.start - 33) : front.start - 1]
        if _FIGURE_ENDS.search(head):
            return False
        if signs.ITEM.search(head) or self._cell(front.start):
            return True
        line = self.text[self.text.rfind("\n", 0, front.start) + 1 :][:400].partition("\n")[0]
        return "\t" in line or "|" in line


def _product(places: str) -> Decimal:
    factor = Decimal(1)
    for c in places.strip():
        factor *= _PLACES[c]
    return factor


def _last_digit(value: Decimal) -> Decimal:
    """Place value of the last digit that is not zero."""
    exponent = value.normalize().as_tuple().exponent
    return Decimal(1).scaleb(exponent) if value and isinstance(exponent, int) else Decimal(0)


__all__ = ["Bound", "extract"]
