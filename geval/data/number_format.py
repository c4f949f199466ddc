"""Numbers of a workbook as its reader sees them: 0.123 in the format `0.0%` is 12.3%.

A cell holds a bare number; percent signs, leading zeros, thousands, signs such as △ and units stand
in its format (ECMA-376 part 1, 18.8.31). Where a format is a date or one that is not known here,
None is returned and the number is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import NamedTuple

BUILT_IN: Mapping[int, str] = {
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    37: "#,##0 ;(#,##0)",
    38: "#,##0 ;[Red](#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;[Red](#,##0.00)",
}
"""Formats that a workbook names by number alone; those of dates and of text are left out."""

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|_.|\*.|\[(?P<bracket>[^\]]*)\]|(?P<mark>[0#?.,%])'
    r"|(?P<other>.)",
    re.DOTALL,
)
_CONDITION = re.compile(r"(<=|>=|<>|=|<|>)\s*(-?[0-9.]+)")
_LITERAL = frozenset(" ()+-/:;$₩￦€£¥△▲▼▽원건개회명점배주년월일억만천백조%,'")


class _Section(NamedTuple):
    """One of the up to four parts of a format."""

    before: str
    after: str
    zeros: int  # digits shown at least
    places: int  # digits behind the point at most
    fixed: int  # and at least
    grouped: bool
    scale: int  # power of ten the number is multiplied by
    digits: bool
    condition: tuple[str, Decimal] | None


def show(value: float, form: str) -> str | None:
    """The text of a number in a format; None where the format says nothing to apply.

    None also for General, dates, fractions and powers of ten.
    """
    sections = _sections(form)
    if sections is None:
        return None
    number = Decimal(repr(value))
    section, signed = _choose(sections, number)
    if not section.digits:
        return section.before
    shown = (abs(number) * Decimal(10) ** section.scale).quantize(
        Decimal(1).scaleb(-section.places), ROUND_HALF_UP
    )
    whole, _, part = format(shown, "f").partition(".")
    while len(part) > section.fixed and part.endswith("0"):
        part = part[:-1]
    whole = whole.lstrip("0").rjust(section.zeros, "0")
    if section.grouped:
        whole = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", whole)
    minus = "-" if signed and shown else ""
    return f"{minus}{section.before}{whole}{'.' if part else ''}{part}{section.after}".strip()


def _choose(sections: tuple[_Section, ...], number: Decimal) -> tuple[_Section, bool]:
    """The section for a number, and whether its minus sign is to be written."""
    for section in sections:
        if section.condition and _holds(number, *section.condition):
            return section, number < 0
    if any(section.condition for section in sections):
        return sections[-1], number < 0
    if number < 0 and len(sections) > 1:
        return sections[1], False
    if not number and len(sections) > 2:
        return sections[2], False
    return sections[0], number < 0


def _holds(number: Decimal, sign: str, limit: Decimal) -> bool:
    equal, less = number == limit, number < limit
    return {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": not less and not equal,
        ">=": not less,
    }[sign]


@lru_cache(maxsize=512)
def _sections(form: str) -> tuple[_Section, ...] | None:
    if form.strip().casefold() in ("", "general", "@"):
        return None
    found = []
    for text in _split(form)[:3]:
        section = _section(text)
        if section is None:
            return None
        found.append(section)
    return tuple(found)


def _split(form: str) -> list[str]:
    """Sections of a format: parted by semicolons that are not quoted."""
    parts, quoted, escaped = [""], False, False
    for char in form:
        if char == ";" and not quoted and not escaped:
            parts.append("")
            continue
        quoted ^= char == '"' and not escaped
        escaped = char == "\\" and not escaped
        parts[-1] += char
    return parts


def _section(text: str) -> _Section | None:
    """One section, or None where it is no plain number (a date, a fraction, General)."""
    before = after = marks = ""
    percents = 0
    condition = None
    for match in _TOKEN.finditer(text):
        literal = ""
        if match["bracket"] is not None:
            bracket = match["bracket"]
            if limit := _CONDITION.fullmatch(bracket):
                condition = (limit[1], Decimal(limit[2]))
            elif bracket.startswith("$"):  # [$₩-412]: a currency sign and a language
                literal = bracket[1:].partition("-")[0]
            elif re.fullmatch(r"[hms]+", bracket, re.IGNORECASE):
                return None
        elif match["quoted"] is not None or match["escaped"] is not None:
            literal = match["quoted"] or match["escaped"] or ""
        elif match["mark"] == "%":
            percents += 1
            literal = "%"
        elif match["mark"]:
            if after:
                return None  # digits on both sides of a text, as in 000-0000
            marks += match["mark"]
        elif match["other"]:
            if match["other"] not in _LITERAL:
                return None
            literal = match["other"]
        if marks:
            after += literal
        else:
            before += literal
    if marks.count(".") > 1:
        return None
    whole, _, part = marks.rstrip(",").partition(".")
    thousands = len(marks) - len(marks.rstrip(","))
    return _Section(
        before,
        after,
        zeros=whole.count("0"),
        places=len(part.replace(",", "")),
        fixed=part.count("0"),
        grouped="," in whole,
        scale=2 * percents - 3 * thousands,
        digits=any(mark in "0#?" for mark in marks),
        condition=condition,
    )
