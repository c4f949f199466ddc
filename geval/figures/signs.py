"""Signs, directions and bounds: "△12", "(12)", "12% 감소", "net loss of", "5% 초과", "약"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from geval.figures.model import Bound
from geval.figures.units import CURRENCY, PREFIX

_WINDOW = 48
_LETTER = re.compile(r"[A-Za-z가-힣]")
_TELLS = re.compile(r"[^\W0-9]|[-+~.$₩€£¥△▲▼▽]")

_MINUS = re.compile(
    r"(?:(?<![0-9A-Za-z가-힣)%\]])-|(?<![0-9])[△▽▼] ?|마이너스 ?|(?i:\b(?:minus|negative) ))$"
)
_PLUS = re.compile(r"(?:(?<![0-9])\+ ?|(?i:\bplus ))$")
_TRIANGLE = re.compile(r"▲ ?$")
_ROUGH_BEFORE = re.compile(
    r"(?:(?<![가-힣])(?:약|대략|대체로|거의|어림잡아) ?|~ ?|(?i:\b(?:about|around"
    r"|approximately|approx\.?|"
    r"roughly|nearly|almost|some|circa|c\.) ))$"
)
_ROUGH_AFTER = re.compile(
    r" ?(?:여(?![가-힣]|$)|여(?=원|건|명|개| )|가량|내외|안팎|정도|쯤|남짓|수준)"
)
_BEFORE_BOUND: dict[Bound, re.Pattern[str]] = {
    "at_least": re.compile(
        r"(?:(?i:\b(?:at least|no less than|not less than|a minimum of))|최소한?|적어도) ?$"
    ),
    "at_most": re.compile(
        r"(?:(?i:\b(?:no more than|not more than|at most|up to|a maximum of|maximum of))|최대) ?$"
    ),
    "more_than": re.compile(
        r"(?i:\b(?:more than|greater than|exceed(?:s|ed|ing)?|in excess of|over|above"
        r"|higher than)) ?$"
    ),
    "less_than": re.compile(r"(?i:\b(?:less than|fewer than|lower than|under|below)) ?$"),
}
_AFTER_BOUND: dict[Bound, re.Pattern[str]] = {
    "at_least": re.compile(r" ?(?:을|를)? ?이상(?!하|한|적)| or more\b| or higher\b|\+(?![0-9])"),
    "more_than": re.compile(r" ?(?:을|를|가|이)? ?(?:초과|넘[는어은게었]|상회|웃돌|웃도)"),
    "at_most": re.compile(r" ?(?:을|를)? ?이하| or less\b| or lower\b"),
    "less_than": re.compile(r" ?(?:에|을|를)? ?(?:미만|못 ?미치|하회|밑돌|밑도)"),
}

_TAIL = r"(?: ?\([^()\n]{1,30}\))?"
_GLUE = r" ?(?:가까이|가량|정도|만큼|이나|씩|이|가|나|을|를|여)? ?(?:더|크게|소폭|대폭|가까이)? ?"
_KO_DOWN = (
    r"(?:감소|하락|줄[어었이인였은며]|줄(?=고)|축소|떨어|내[려리린렸](?!서)|둔화|급락|급감|낮[아은았춰]|"
    r"역성장|하향|인하|위축|빠[졌진지]|뒷걸음|감축|삭감|후퇴)"
)
_KO_UP = (
    r"(?:증가|상승|늘[어었린려은며]|늘(?=고)|확대|올[라랐려린]|오[르른]|성장|급등|급증|높[아은았]|인상|상향|"
    r"신장|불어|증액|반등)"
)
_EN_DOWN = (
    r"(?:decreases?|declines?|drops?|falls?|reductions?|lower|down|less|fewer|contraction|cuts?|"
    r"decreased|declined)\b"
)
_EN_UP = (
    r"(?:increases?|rises?|gains?|growth|higher|up|jumps?|more|expansion|increased|rose)\b"
    r"(?! than [0-9])"
)
_AFTER = [
    (re.compile(_TAIL + _GLUE + _KO_DOWN), -1, False),
    (re.compile(_TAIL + _GLUE + _KO_UP), 1, False),
    (re.compile(rf"{_TAIL}[ -](?:net |overall |year-on-year |yoy )?(?i:{_EN_DOWN})"), -1, False),
    (re.compile(rf"{_TAIL}[ -](?:net |overall |year-on-year |yoy )?(?i:{_EN_UP})"), 1, False),
    (re.compile(r"(?:의| )? ?(?:[가-힣]{0,5}손실(?! ?충당)|[가-힣]{0,3}적자)"), -1, True),
    (re.compile(r"(?:의| )? ?(?:[가-힣]{0,5}(?<!손)이익(?!률)|[가-힣]{0,3}흑자)"), 1, True),
    (re.compile(r"[ -](?:(?:net|operating|pre-?tax|trading) )?(?i:loss|deficit)\b"), -1, True),
    (
        re.compile(r"[ -](?:(?:net|operating|pre-?tax|trading) )?(?i:profit|income|surplus)\b"),
        1,
        True,
    ),
]
_ROUGHLY = (
    r"(?:by |of )?(?:about |around |approximately |roughly |nearly |almost |some |only |just )?"
)
_HOW = r"(?:sharply |slightly |further |significantly |another )?"
_BEFORE = [
    (
        re.compile(
            r"(?:감소|하락|축소|인하|둔화|삭감)(?:율|률|폭|액|분|규모| ?금액| ?비율)(?:은|는"
            r"|이|가|도)? ?[:|=]? ?$"
            r"|(?:줄어든|감소한|하락한|떨어진) (?:금액|폭|규모|비율|액수)(?:은|는|이|가)? ?$"
        ),
        -1,
        False,
    ),
    (
        re.compile(
            r"(?:증가|상승|인상|성장)(?:율|률|폭|액|분|규모| ?금액| ?비율)(?:은|는|이|가"
            r"|도)? ?[:|=]? ?$"
            r"|(?:늘어난|증가한|상승한|오른) (?:금액|폭|규모|비율|액수)(?:은|는|이|가)? ?$"
        ),
        1,
        False,
    ),
    (
        re.compile(
            r"(?i:\b(?:fell|falls?|falling|decreas(?:ed|es|ing)|declin(?:ed|es|ing)|dropp(?:ed|ing)|"
            rf"drops|down|shrank|slid|reduced|lower|contracted|cut|lost) {_HOW}{_ROUGHLY})$"
            rf"|(?i:\b(?:decrease|decline|drop|fall|reduction) of {_ROUGHLY})$"
        ),
        -1,
        False,
    ),
    (
        re.compile(
            r"(?i:\b(?:rose|ris(?:es|ing)|grew|grow(?:s|ing)|increas(?:ed|es|ing)|gained|climbed|"
            rf"jumped|up|higher|expanded) {_HOW}{_ROUGHLY})$"
            rf"|(?i:\b(?:increase|rise|gain|growth) of {_ROUGHLY})$"
        ),
        1,
        False,
    ),
    (
        re.compile(
            r"(?:손실|적자)(?:액|폭|규모|금액)?(?:은|는|이|가|을|를|도)? ?[:|=\t]? ?(?:약 )?$"
            r"|(?i:\b(?:loss|losses|deficit) (?:of|was|were|is|totall?ed|came to|amounted to) "
            rf"{_ROUGHLY})$|(?i:\b(?:loss|deficit) ?[:|\t]? ?)$"
            r"|(?i:\bloss (?:widened|narrowed|grew|shrank|rose|fell|increased|decreased) to )$"
        ),
        -1,
        True,
    ),
]
ITEM = re.compile(
    r"(?:이익|손익|손실|실적|적자|현금흐름|수지|증감|(?i:\b(?:income|profit|loss|earnings|EBITDA|EBIT|"
    r"cash flows?|result)))(?:률|율)? ?(?:은|는|이|가)?\s?[:|=]?\s?$"
)
_UP_LEGEND = re.compile(
    r"▲ ?(?:[은는:=]|표시는|기호는)? ?(?:는 )?(?:상승|증가|플러스|오름|up\b|increase)"
)
_DOWN_LEGEND = re.compile(
    r"▲ ?(?:[은는:=]|표시는|기호는)? ?(?:는 )?(?:하락|감소|손실|적자|음수|마이너스|부\(-\)"
    r"|down\b|decrease|loss)"
)


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before a numeral: `sign` is -1, 1, 0 (none) or 2 (▲); `start` of it all."""

    start: int
    sign: int = 0
    currency: str | None = None
    rough: bool = False
    bound: Bound | None = None
    bracket: bool = False
    """Whether a parenthesis opens right before it."""


def before(text: str, start: int) -> Front:
    """Sign, currency, "about" and bounds before the numeral at `start`, in any order."""
    base = max(0, start - _WINDOW)
    head = text[base:start]
    sign, currency, rough = 0, None, False
    bound: Bound | None = None
    front = len(head)
    bracket = False
    for _ in range(5):
        rest = head[:front]
        if not _TELLS.search(rest[-2:]):
            break  # most numerals have nothing before them that matters
        if not currency and (found := PREFIX.search(rest)):
            currency = CURRENCY[found[0].strip()]
        elif not sign and (found := _MINUS.search(rest)):
            sign = -1
        elif not sign and (found := _TRIANGLE.search(rest)):
            sign = 2
        elif not sign and (found := _PLUS.search(rest)):
            sign = 1
        elif not rough and (found := _ROUGH_BEFORE.search(rest)):
            rough = True
        else:
            break
        front = found.start()
    if head[:front].endswith("("):
        bracket = True
        outer = PREFIX.search(head[: front - 1])
        if outer and not currency:
            currency = CURRENCY[outer[0].strip()]
    else:
        for kind, pattern in _BEFORE_BOUND.items() if _LETTER.search(head[:front][-2:]) else ():
            if found := pattern.search(head[:front]):
                bound, front = kind, found.start()
                break
    return Front(base + front, sign, currency, rough, bound, bracket)


def bound_after(text: str, end: int) -> tuple[Bound | None, int]:
    """A bound behind a figure that ends at `end`, and where it ends."""
    for kind, pattern in _AFTER_BOUND.items():
        if found := pattern.match(text, end):
            return kind, found.end()
    return None, end


def rough_after(text: str, end: int) -> int:
    """Where "가량" or the like behind a figure ends, or `end`."""
    found = _ROUGH_AFTER.match(text, end)
    return found.end() if found else end


def direction(text: str, start: int, end: int) -> tuple[int, bool]:
    """(-1, 0 or 1; whether a loss or profit says so) from the words around a figure."""
    for pattern, way, noun in _AFTER:
        if pattern.match(text, end):
            return way, noun
    head = text[max(0, start - _WINDOW) : start]
    if not _LETTER.search(head[-4:]):
        return 0, False
    for pattern, way, noun in _BEFORE:
        if pattern.search(head):
            return way, noun
    return 0, False


def triangle(text: str) -> int:
    """The sign of ▲ in `text`: by its legend, or up where ▼ stands beside it; 0 is unknown."""
    if _DOWN_LEGEND.search(text):
        return -1
    return 1 if _UP_LEGEND.search(text) or "▼" in text else 0
