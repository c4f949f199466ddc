"""Dates and periods: "2025.9.30", "'25.9.30", "3Q25", "2025년 3분기", "third quarter of 2025"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from geval.figures.model import When

_MONTHS = {
    name: i
    for i, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}  # fmt: skip
_WORD = {"first": 1, "second": 2, "third": 3, "fourth": 4, "final": 4}
_Y4 = r"(?P<y>(?:19|20)[0-9]{2})"
_YY = r"(?P<y>(?:(?:19|20)[0-9]{2}|[0-9]{2}))"
_APO = r"['’‘`]"
_NAME = (
    r"(?P<name>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_D = r"(?P<d>[0-3]?[0-9])"
_M = r"(?P<m>1[0-2]|0?[1-9])"
_B = r"(?<![0-9A-Za-z.,])"
_E = r"(?![0-9A-Za-z%])"
_FY = r"(?P<fy>FY ?|fiscal (?:year )?)"
_PART = r"(?P<n>[1-4])(?P<k>[QH])"
_NPART = r"(?P<k>[QH])(?P<n>[1-4])"
_BUNGI = (
    r"(?:제 ?)?(?P<n>[1-4])(?: ?[~-] ?(?P<to>[1-4]))?(?:/4)? ?(?P<k>분기)(?! ?(?:연속|째|만에))"
)
_WORDS = r"(?P<w>first|second|third|fourth|final)[- ](?P<k>quarter|half)"

_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        rf"(?<![0-9.,-]){_Y4} ?[.\-/] ?{_M} ?[.\-/] ?{_D}(?![0-9])",
        rf"(?:{_APO}|(?<![0-9.,A-Za-z'-]))(?P<y>[0-9]{{2}})\.{_M}\.{_D}(?![0-9]|\.[0-9])",
        rf"(?<![0-9.,]){_APO}?{_YY}년도? ?{_M}월(?: ?{_D}일)?",
        rf"(?<![0-9.,]){_M}월 ?{_D}일",
        rf"(?<![0-9.,]){_APO}?{_YY}년도? ?{_BUNGI}",
        rf"(?<![0-9.,]){_Y4} ?{_BUNGI}",
        rf"(?<![0-9.,]){_BUNGI}",
        rf"(?<![0-9.,]){_APO}?{_YY}년도? ?(?P<k>상반기|하반기)",
        rf"(?:(?<![0-9.,]){_Y4} ?)?(?P<k>상반기|하반기)",
        rf"{_B}{_FY}?{_APO}?{_YY}[. ]?{_PART}{_E}",
        rf"{_B}{_FY}?{_APO}?{_YY} ?{_NPART}{_E}",
        rf"{_B}{_PART} ?(?:of )?{_FY}{_APO}?{_YY}{_E}",
        rf"{_B}{_PART} ?(?:of )?{_Y4}{_E}",
        rf"{_B}{_PART}(?: ?{_APO})?(?P<y>[0-9]{{2}})?{_E}",
        rf"{_B}{_NPART} ?(?:of )?{_FY}{_APO}?{_YY}{_E}",
        rf"{_B}{_NPART} ?(?:of )?{_Y4}{_E}",
        rf"{_B}{_NPART}(?: ?{_APO}(?P<y>[0-9]{{2}}))?{_E}",
        rf"(?i:\b{_WORDS})(?i:,? (?:of )?(?:the )?{_FY}?{_Y4}\b)?",
        rf"{_B}{_Y4}(?:'s|’s)? (?i:{_WORDS}\b)",
        rf"\b{_NAME} {_D}(?:st|nd|rd|th)?(?:,? {_Y4})?{_E}",
        rf"{_B}{_D}(?:st|nd|rd|th)?(?: of)? {_NAME},?(?: {_Y4})?{_E}",
        rf"\b{_NAME},? {_Y4}{_E}",
        rf"{_B}(?i:{_FY}){_APO}?{_YY}{_E}",
        rf"(?<![0-9.,]){_Y4}년? ?(?P<fy>회계연도|회계년도|사업연도)",
        rf"(?<![0-9.,]){_Y4} ?년(?!간)(?:도|말|초)?",
        rf"(?<![0-9.,]){_APO}(?P<y>[0-9]{{2}})년(?:도|말|초)?",
        rf"(?<![0-9.,-]){_Y4}[.-](?P<m>0[1-9]|1[0-2])월?(?![0-9]|[.-][0-9]|%)",
        r"(?<![0-9.,])(?P<m>1[0-2]|0?[1-9])월(?!드)",
    )
]
_SLASHED = re.compile(
    r"(?<![0-9.,/])(?P<a>[0-3]?[0-9])/(?P<b>[0-3]?[0-9])/(?P<y>(?:19|20)[0-9]{2})(?![0-9/])"
)


def dates(
    text: str, taken: bytearray, locale: str | None = None
) -> Iterator[tuple[int, int, When]]:
    """(start, end, date) of every date in `text`; what is found is marked in `taken`.

    "9/30/2025" is read month first, and day first with the locale en-GB or where it must be.
    """
    for pattern in (*_PATTERNS, _SLASHED):
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(taken[start:end]):
                continue
            when = _slashed(match, locale) if pattern is _SLASHED else _when(match)
            if when is not None:
                taken[start:end] = b"\x01" * (end - start)
                yield start, end, when


def _when(match: re.Match[str]) -> When | None:
    groups = {k: v for k, v in match.groupdict().items() if v}
    year = _year(groups.get("y"))
    month = int(groups["m"]) if "m" in groups else None
    if "name" in groups:
        month = _MONTHS[groups["name"][:3].lower()]
    day = int(groups["d"]) if "d" in groups else None
    if day is not None and not 1 <= day <= 31:
        return None
    kind = groups.get("k", "").lower()
    part = int(groups["n"]) if "n" in groups else _WORD.get(groups.get("w", "").lower())
    if kind in ("상반기", "하반기"):
        return When(year, half=1 if kind == "상반기" else 2)
    if kind in ("h", "half"):
        return None if part is None or part > 2 else When(year, half=part, fiscal="fy" in groups)
    to = int(groups["to"]) if "to" in groups else None
    return When(year, month, day, part, to, None, "fy" in groups)


def _year(digits: str | None) -> int | None:
    if digits is None:
        return None
    return int(digits) if len(digits) == 4 else 2000 + int(digits)


def _slashed(match: re.Match[str], locale: str | None) -> When | None:
    month, day = int(match["a"]), int(match["b"])
    if month > 12 or (locale or "").replace("_", "-").casefold() == "en-gb":
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return When(int(match["y"]), month, day)
