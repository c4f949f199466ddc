"""Numerals: "1,234", "1조 2,345억", "1천2백34억", "천이백삼십사억", "twelve".

Every pattern is bounded or possessive, so that a text of any shape is read in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

DIGITS = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3}(?![0-9]))++(?:\.[0-9]++)?+|[0-9]++(?:\.[0-9]++)?+|\.[0-9]{1,9}+)"
)
LONGEST = 24
"""Digits of the longest numeral that is a figure; a longer one is an identifier."""

_HANGUL_DIGIT = {c: i for i, c in enumerate("영일이삼사오육칠팔구")}
_PLACE = {"십": 10, "백": 100, "천": 1000}
_BIG = {"만": 10**4, "억": 10**8, "조": 10**12, "경": 10**16}
_PART = re.compile(
    rf"(?P<digits>{DIGITS})|(?P<hangul>[일이삼사오육칠팔구])"
    r"|(?P<place>십(?!자)|백(?!화|신|업)|천(?!안|연))"
    r"|(?P<big>만(?!에 하나|찬|족|성|나|들)|억(?!제|류)"
    r"|조(?!각|건|항|직|합|례|사|선|업|정|치|약)|경(?!기|영|제|쟁|우|비|로))"
)
_START = re.compile(r"[0-9]|\.[0-9]")
_SPACED_BIG = re.compile(r" [백천]?[만억조](?![가-힣])| [백천]?[만억조](?=원|달러|유로|엔|위안|불)")
_MONEY_OR_BIG = re.compile(
    rf" {DIGITS}(?:[십백천]{{0,2}}[만억조]|[천백]|\s?(?:원|달러|유로|엔|위안))"
)
HANGUL_RUN = re.compile(
    r"(?<![가-힣0-9A-Za-z])[일이삼사오육칠팔구십백천만억조](?:[일이삼사오육칠팔구십백천만억조]"
    r"| (?=[일이삼사오육칠팔구십백천]{1,8}[만억조]))"
    r"{1,23}+(?= ?(?:원|달러|유로|엔|위안|퍼센트|%|명|건|개|주|배|대)(?:[^가-힣]|$"
    r"|이|가|은|는|을|를|의|에|으|로|도|만|과|와|여|가량|포인트|이상|이하|초과|미만))"
)
_NOT_NUMERALS = {"구조", "이사", "사이", "조사", "일조", "천만", "만이", "이만", "구천", "오이"}


@dataclass(frozen=True, slots=True)
class Numeral:
    """A numeral: its value, the place value of its last digit, and where it ends."""

    value: Decimal
    resolution: Decimal
    written: Decimal
    end: int
    big: bool = False
    plain: bool = False
    """Digits without thousands marks and decimals."""

    def times(self, factor: Decimal) -> Numeral:
        """The numeral in a unit `factor` times as large."""
        return Numeral(
            self.value * factor, self.resolution * factor, self.written, self.end, True, False
        )


def _decimals(digits: str) -> int:
    return len(digits.partition(".")[2])


def read(text: str, start: int) -> Numeral | None:
    """The numeral that begins at `start`; None where it is none, or too long to be a figure."""
    total, section = Decimal(0), Decimal(0)
    current: Decimal | None = None
    decimals, fine, resolution = 0, Decimal(1), Decimal(1)
    last_place, last_big = 10**4, 10**20
    numbers = 0
    written = Decimal(0)
    position, seen_big, seen_place, first = start, False, False, ""
    for _ in range(24):
        part = _PART.match(text, position)
        if part is None and current is not None and _SPACED_BIG.match(text, position):
            part = _PART.match(text, position + 1)
        elif part is None and current is None and seen_big and text[position : position + 1] == " ":
            if not _MONEY_OR_BIG.match(text, position) and not _hangul_goes_on(text, position):
                break
            part = _PART.match(text, position + 1)
        if part is None:
            break
        token = part[0]
        if part["digits"] or part["hangul"]:
            if current is not None:
                break
            if part["digits"]:
                if len(token) > LONGEST:
                    return None
                current, decimals = Decimal(token.replace(",", "")), _decimals(token)
                fine = Decimal(1).scaleb(-decimals)
            else:
                current, decimals, fine = Decimal(_HANGUL_DIGIT[token]), 0, Decimal(1)
            if seen_big and current >= last_big:
                current = None
                break
            resolution = fine
            numbers, written, first = numbers + 1, current, first or token
        elif part["place"]:
            place = _PLACE[token]
            if place >= last_place:
                break
            number = Decimal(1) if current is None else current
            section += number * place
            # "35천원" counts thousands; in "1천2백" the place words only name the digits.
            resolution = fine * place if number >= 10 or decimals else Decimal(1)
            current, last_place, seen_place = None, place, True
            fine, decimals = Decimal(1), 0
            if number >= 10:
                last_place = 10**4 if place > 10 else 10
        else:
            big = _BIG[token]
            if big >= last_big or (current is None and not section and not seen_big and numbers):
                break
            if current is None and not section:
                if seen_big or numbers:
                    break
                current = Decimal(1)
            section += current or 0
            total += section * big
            resolution = resolution * big
            section, current, seen_big = Decimal(0), None, True
            last_place, last_big, fine, decimals = 10**4, big, Decimal(1), 0
        position = part.end()
    value = total + section + (current or 0)
    if position == start:
        return None
    several = numbers != 1 or not (seen_big or seen_place)
    return Numeral(
        value,
        resolution,
        value if several else written,
        position,
        seen_big or seen_place,
        first.isdigit() and not (seen_big or seen_place),
    )


def _hangul_goes_on(text: str, position: int) -> bool:
    return (
        re.match(r" [일이삼사오육칠팔구십백천]{1,8}[만억]", text[position : position + 12])
        is not None
    )


def read_hangul(text: str, start: int, end: int) -> Numeral | None:
    """The numeral written in Hangul alone from `start` to `end`, where it is one."""
    run = text[start:end]
    if run in _NOT_NUMERALS or not any(c in _PLACE or c in _BIG for c in run):
        return None
    found = read(text, start)
    return found if found is not None and found.end == end else None


_UNITS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {w: i for i, w in enumerate(_UNITS, 1)} | {w: 10 * i for i, w in enumerate(_TENS, 2)}
ENGLISH_RUN = re.compile(
    rf"(?<![A-Za-z0-9-])(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS[:9])}))?"
    rf"|{'|'.join(sorted(_UNITS, key=len, reverse=True))})"
    r"(?=[ -](?:percent|per cent|percentage point|basis point|thousand|million|billion|trillion"
    r"|times|years?|months?|weeks?|days?|hours?)\b)",
    re.IGNORECASE,
)


def read_english(words: str, end: int) -> Numeral:
    """The value of number words ("twenty-one") that end at `end`."""
    value = Decimal(sum(_WORDS[w] for w in re.split(r"[- ]", words.lower())))
    return Numeral(value, Decimal(1), value, end)
