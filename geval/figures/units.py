"""Units: what may follow or precede a numeral, and what a table's header says of its cells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_CODES = [
    "KRW",
    "USD",
    "EUR",
    "JPY",
    "GBP",
    "CNY",
    "RMB",
    "CHF",
    "HKD",
    "SGD",
    "TWD",
    "INR",
    "AUD",
    "CAD",
    "NZD",
    "SEK",
    "NOK",
    "DKK",
    "THB",
    "VND",
    "IDR",
    "MYR",
    "PHP",
    "BRL",
    "MXN",
    "ZAR",
    "AED",
    "SAR",
    "ILS",
    "PLN",
    "CZK",
    "HUF",
    "TRY",
    "RUB",
]
_SYMBOLS = {
    "US$": "USD", "HK$": "HKD", "NT$": "TWD", "A$": "AUD", "C$": "CAD", "S$": "SGD", "$": "USD",
    "₩": "KRW", "￦": "KRW", "€": "EUR", "£": "GBP", "¥": "JPY",
}  # fmt: skip
_NAMES = {
    "원": "KRW", "미국 달러": "USD", "미 달러": "USD", "홍콩달러": "HKD", "홍콩 달러": "HKD",
    "싱가포르달러": "SGD", "호주달러": "AUD", "캐나다달러": "CAD", "달러": "USD", "불": "USD",
    "유로": "EUR", "엔": "JPY", "위안": "CNY", "파운드": "GBP",
    "won": "KRW", "dollars": "USD", "dollar": "USD", "euros": "EUR", "euro": "EUR", "yen": "JPY",
    "yuan": "CNY", "renminbi": "CNY", "pounds": "GBP", "pence": "GBp",
}  # fmt: skip
CURRENCY = {**_SYMBOLS, **_NAMES, **{code: code for code in _CODES}, "RMB": "CNY"}


def _any(words: dict[str, str] | list[str]) -> str:
    return "|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))


PREFIX = re.compile(rf"(?:(?<![A-Za-z])(?:{_any(_CODES)}) ?|(?:{_any(_SYMBOLS)}) ?)$")
GLUED_CURRENCY = rf"(?:{_any(_CODES)}|US|HK|NT)"

_MAGNITUDE = {
    "thousand": 3, "k": 3, "million": 6, "millions": 6, "mn": 6, "mln": 6, "mm": 6, "m": 6,
    "billion": 9, "billions": 9, "bn": 9, "bln": 9, "b": 9, "trillion": 12, "trillions": 12,
    "trn": 12, "tn": 12, "t": 12,
}  # fmt: skip
_ENGLISH_MAGNITUDE = re.compile(
    r"[ -]?(?P<word>(?i:thousand|millions?|mln|mn|billions?|bln|bn|trillions?|trn|tn)|MM)"
    r"(?![A-Za-z])|(?P<letter>[kKmMbBtT])(?![A-Za-z0-9])"
)

_KO_NEXT = r"(?![가-힣])"
_FORMS: list[tuple[str, str, int]] = [
    # pattern, dimension, power of ten
    (
        r"% ?p(?![A-Za-z])|% ?P(?![A-Za-z])|% ?포인트|퍼센트 ?포인트|%-points?"
        r"|[ -]?(?i:percentage[ -]points?|per cent points?|pct\.? ?points?)\b| ?(?:pps?|ppts?"
        r"|pts)\b",
        "percent_point", 0,
    ),
    (r" ?(?:bps?\b|bp(?![A-Za-z])|(?i:basis[ -]points?)\b|베이시스 ?포인트)", "percent_point", -2),
    (r" ?%| ?퍼센트| ?프로(?![가-힣])|[ -]?(?i:percent|per cent)\b| ?pct\b", "percent", 0),
    (r" ?배(?!럴|당|송|분|열|치|터|포|정|우)|[ -](?i:times)\b|[xX](?![A-Za-z0-9])"
     r"|[ -]?fold\b", "multiple", 0),
    (r" ?위(?!원|해|안|험|치|기|반|탁|성|스)|번째| 번째|(?:st|nd|rd|th)\b", "rank", 0),
    (r" ?(?:시간)| ?hours?\b|[ -]hour\b", "minutes:60", 0),
    (r" ?분(?!기|야|할|류|석|배|양|쟁|기)(?:간)?| ?min(?:ute)?s?\b", "minutes:1", 0),
    (r" ?개년|년(?!도|대|말|초)(?:간)?| 년(?=간|[^가-힣]|$)|[ -]years?\b", "months:12", 0),
    (r" ?개월(?:간)?|[ -]months?\b", "months:1", 0),
    (r" ?개 ?분기|분기(?= ?(?:연속|째|만에))|[ -]quarters\b", "months:3", 0),
    (r" ?주(?:일|간)(?:간)?|주(?= ?(?:동안|만에|연속|째))|[ -]weeks?\b", "days:7", 0),
    (r"일(?:간|(?= ?(?:동안|이내|만에|연속)))|[ -]days?\b", "days:1", 0),
    (r" ?(?:포인트|pt\b|points?\b)", "unit:point", 0),
]  # fmt: skip
_PHYSICAL = {
    "킬로그램": "kg", "kg": "kg", "톤": "t", "tons": "t", "tonnes": "t", "km": "km", "㎞": "km",
    "킬로미터": "km", "㎡": "m2", "m²": "m2", "m2": "m2", "제곱미터": "m2", "평": "py", "MW": "MW",
    "GW": "GW", "kW": "kW", "MWh": "MWh", "GWh": "GWh", "TWh": "TWh", "kWh": "kWh", "배럴": "bbl",
    "barrels": "bbl", "bbl": "bbl", "리터": "l", "TEU": "TEU", "GB": "GB", "TB": "TB", "MB": "MB",
    "℃": "degC", "°C": "degC", "nm": "nm", "mm": "mm", "cm": "cm",
}  # fmt: skip
COUNTERS = [
    "건", "개사", "개국", "개소", "개", "명", "주", "대", "곳", "회", "차례", "인", "종목",
    "종", "가지",
    "세대", "가구", "점포", "척", "사", "권", "편", "팀", "개점", "세", "살", "점", "채",
    "필지", "번", "차",
]  # fmt: skip
_COUNTER = re.compile(
    rf" ?(?P<ko>{'|'.join(sorted(COUNTERS, key=len, reverse=True))})(?!요|최|장|력|만(?=[0-9]))"
)
_CURRENCY_AFTER = re.compile(
    rf" ?(?P<c>{_any(_NAMES)})(?!s?[a-z])| ?(?P<code>{_any(_CODES)})(?![A-Za-z])| ?(?P<s>[₩€£¥])"
)
_ENGLISH_NOUN = re.compile(r" (?:[a-z]{2,14} )?(?P<noun>[a-z]{3,20}s)\b")
_NO_NOUN = {
    "was", "is", "has", "this", "its", "plus", "less", "versus", "across", "minus", "sales",
    "earnings", "results", "thus", "profits", "revenues", "losses",
}  # fmt: skip
SKIPPED = re.compile(
    r" ?(?:호(?!실|텔|조|전|황)|항(?!공|만)|조(?= ?제)|번지|층|쪽|페이지|학년|기(?=[ ,.)]|$"
    r"|의|와|는))"
)
"""Units of what is no figure: paragraphs, floors, pages, terms."""

_UNIT_RES = [(re.compile(pattern), dim, power) for pattern, dim, power in _FORMS]
_PHYSICAL_RE = re.compile(rf" ?(?P<u>{_any(_PHYSICAL)})(?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that was read: its dimension, the factor to its base unit, and where it ends."""

    dimension: str
    factor: Decimal
    end: int
    counter: str | None = None
    magnitude: bool = False


def after(text: str, end: int, currency: str | None) -> Unit:
    """The unit behind a numeral that ends at `end`; `currency` was read before it.

    The dimension is "number" where nothing is said.
    """
    factor, magnitude = Decimal(1), False
    big = _ENGLISH_MAGNITUDE.match(text, end)
    if big and (big["word"] or currency or big["letter"] not in "tT"):
        word = big["word"] or big["letter"]
        factor, end, magnitude = Decimal(10) ** _MAGNITUDE[word.lower()], big.end(), True
    if currency:
        named = _CURRENCY_AFTER.match(text, end)
        stop = named.end() if named and (named["c"] or named["code"]) else end
        return Unit(f"money:{currency}", factor, stop, None, magnitude)
    if not magnitude or text[end : end + 1] in " 배%":
        for pattern, dimension, power in _UNIT_RES:
            if found := pattern.match(text, end):
                name, _, scale = dimension.partition(":")
                if scale.isdigit():
                    return Unit(name, factor * int(scale), found.end())
                return Unit(dimension, factor.scaleb(power), found.end(), None, magnitude)
    if found := _CURRENCY_AFTER.match(text, end):
        code = CURRENCY[found["c"] or found["code"] or found["s"]]
        return Unit(f"money:{code}", factor, found.end(), None, magnitude)
    if found := _PHYSICAL_RE.match(text, end):
        return Unit(f"unit:{_PHYSICAL[found['u']]}", factor, found.end(), None, magnitude)
    if found := _COUNTER.match(text, end):
        return Unit("count", factor, found.end(), found["ko"], magnitude)
    found = _ENGLISH_NOUN.match(text, end)
    if found and found["noun"] not in _NO_NOUN:
        return Unit("count", factor, end, found["noun"], magnitude)
    return Unit("number", factor, end, None, magnitude)


_KO_DECLARED = re.compile(
    rf"단위 ?[:;=]? ?(?P<scale>십|백|천)?(?P<big>만|억|조)? ?(?P<unit>{_any(_NAMES)}"
    rf"|{_any(_CODES)}|%|건|명|주|개)"
)
_KO_HEADER = re.compile(
    r"\((?P<scale>십|백|천)?(?P<big>만|억|조)? ?(?P<unit>원|미국 달러|달러|유로|엔|위안)\)"
)
_EN_DECLARED = re.compile(
    rf"(?P<open>\(|\b)(?:(?:amounts? |figures? |all )?in )?(?P<c>{_any(_SYMBOLS)}|{_any(_CODES)})?"
    r" ?(?:in )?(?P<scale>(?i:thousands?|millions?|billions?)|mn|bn|m|k)"
    rf"(?: (?:of )?(?P<c2>{_any(_CODES)}|won|dollars|euros|yen|pounds|U\.?S\.? dollars))?"
    r"(?P<close>[,)])"
)
_IN_MILLIONS = re.compile(
    rf"\bin (?:(?P<c>{_any(_SYMBOLS)}|{_any(_CODES)}) ?)?(?P<scale>thousands|millions|billions)"
    rf"(?: of (?P<c2>{_any(_CODES)}|won|dollars|euros|yen|pounds))?\b"
)


def declared(text: str) -> list[tuple[int, int, str, Decimal]]:
    """(start, end, dimension, factor) of every unit that a table declares for its cells."""
    found = []
    for match in (*_KO_DECLARED.finditer(text), *_KO_HEADER.finditer(text)):
        place = {"십": 10, "백": 100, "천": 1000}.get(match["scale"] or "", 1)
        big = {"만": 10**4, "억": 10**8, "조": 10**12}.get(match["big"] or "", 1)
        unit = match["unit"]
        dimension = f"money:{CURRENCY[unit]}" if unit in CURRENCY else "count"
        found.append((*match.span(), "percent" if unit == "%" else dimension, Decimal(place * big)))
    for match in (*_EN_DECLARED.finditer(text), *_IN_MILLIONS.finditer(text)):
        named = match["c"] or match["c2"]
        if match.re is _EN_DECLARED and (
            not match["open"] or (match["close"] == ")" and not named and len(match["scale"]) < 3)
        ):
            continue
        code = CURRENCY.get((named or "").removeprefix("U.S. ").removeprefix("US "))
        power = _MAGNITUDE[match["scale"].lower().rstrip("s")]
        found.append((*match.span(), f"money:{code}" if code else "money:", Decimal(10) ** power))
    return sorted(found)
