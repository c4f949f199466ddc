"""Checks of lint on words: numbers, order of reason and score, language, injection, particles."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from geval.lint.subject import Subject
from geval.yaml import Fault

_NUMBERS = re.compile(
    r"""
      (?<![\w.,])(?P<ko>\d{1,3})\s*점(?!\s*(?:차|대|포인트))             # 9점, 10점 만점
    | \b(?:score|rating|grade)s?\s+(?:of|is|=)\s*(?P<of>\d{1,3})\b       # a score of 9
    | \bfrom\s+(?P<low>\d{1,3})\s+to\s+(?P<high>\d{1,3})\b               # from 1 to 10
    | \bscale\s+of\s+(?P<a>\d{1,3})\s*(?:to|-|–)\s*(?P<b>\d{1,3})\b      # a scale of 1 to 10
    | (?<![\w.,])(?P<c>\d{1,3})\s*[~∼-]\s*(?P<d>\d{1,3})\s*점            # 1~10점
    | \bout\s+of\s+(?P<max>\d{1,3})\s+points?\b                          # out of 10 points
    | (?<![\w.,])(?P<points>\d{1,3})\s+points?\b                         # 9 points
    """,
    re.VERBOSE | re.IGNORECASE,
)


def numbers_outside(subject: Subject) -> Iterator[Fault]:
    """A text speaks of a score that the scale does not have."""
    scales = {c.name: c.scale for c in subject.template.criteria}
    for text in subject.texts:
        own = [scales[text.criterion]] if text.criterion else list(scales.values())
        for match in _NUMBERS.finditer(text.text):
            for number in (n for n in match.groups() if n):
                if all(s.low <= float(number) <= s.high for s in own):
                    continue
                whose = f"criterion {text.criterion!r}" if text.criterion else "the template"
                low, high = min(s.low for s in own), max(s.high for s in own)
                yield Fault(
                    subject.line(text.where, number),
                    f"{whose} speaks of the score {number}, outside its scale {low:g} to {high:g}",
                    "warning",
                )
    for line, words in subject.printed():
        for match in _NUMBERS.finditer(words):
            for number in (n for n in match.groups() if n):
                if not any(s.low <= float(number) <= s.high for s in scales.values()):
                    yield Fault(
                        line, f"the body speaks of the score {number}, outside every scale",
                        "warning",
                    )  # fmt: skip


_REASON_FIRST = re.compile(
    r"(?:first|before)\W+(?:\w+\W+){0,3}?(?:explain|reason|justify|think)"
    r"|(?:explain|reason|justify|justification|rationale|think)\b[^.\n]{0,50}?"
    r"\b(?:first|before\s+(?:you\s+)?(?:scor|giv|assign|decid|rat)|then\s+(?:give|write|assign|choose)\b)"
    r"|이유[^.\n]{0,20}?(?:먼저|쓴\s*뒤|적은\s*뒤|밝힌\s*뒤|쓴\s*다음|적은\s*다음|설명한\s*(?:뒤|다음))"
    r"|(?:먼저|우선)[^.\n]{0,15}?이유",
    re.IGNORECASE,
)
_SCORE_FIRST = re.compile(
    r"\b(?:score|verdict|rating|number)\b[^.\n]{0,30}?\b(?:first|before\s+the\s+reason)"
    r"|\bfirst\W+(?:\w+\W+){0,3}?(?:score|verdict|rating)\b"
    r"|(?:점수|판정)[^.\n]{0,15}?(?:먼저|쓴\s*뒤|적은\s*뒤)|(?:먼저|우선)[^.\n]{0,10}?(?:점수|판정)",
    re.IGNORECASE,
)


def reason_order(subject: Subject) -> Iterator[Fault]:
    """A text or the body asks for the other order of score and reason than `output`."""
    output = subject.template.front.output
    pattern, other = (
        (_SCORE_FIRST, "the score first")
        if output.order == "reason_first"
        else (_REASON_FIRST, "the reason first")
    )
    places = [(subject.line(t.where, m[0].split("\n")[0]), m[0]) for t in subject.texts
              if (m := pattern.search(t.text))]  # fmt: skip
    places += [(line, m[0]) for line, words in subject.printed() if (m := pattern.search(words))]
    for line, said in places:
        yield Fault(
            line,
            f"{said!r} asks for {other}, but the output is `order: {output.order}`: "
            "change one of the two",
            "warning",
        )


LETTERS = 12
"""Letters from which on the language of a text can be told."""


def _share_of_hangul(text: str) -> tuple[int, float]:
    letters = [char for char in text if char.isalpha()]
    hangul = sum(unicodedata.name(char, "").startswith("HANGUL") for char in letters)
    return len(letters), hangul / len(letters) if letters else 0.0


def other_language(subject: Subject) -> Iterator[Fault]:
    """A text in another language than `locale`, told by script."""
    korean = subject.template.front.locale == "ko"
    places = [(t.where, t.text) for t in subject.texts]
    found = [(subject.line(where), text) for where, text in places]
    found += list(subject.printed())
    for line, text in found:
        letters, share = _share_of_hangul(text)
        if letters >= LETTERS and (share < 0.2 if korean else share > 0.2):
            seen = "no Korean" if korean else "Korean"
            yield Fault(
                line,
                f"the locale is {subject.template.front.locale}, but this text is {seen}: "
                f"{_short(text)}",
                "warning",
            )


_CODE = re.compile(
    r"__\w+__|\b__import__\b|\b(?:os|sys|subprocess)\.\w+|\b(?:eval|exec)\s*\(|\.mro\b"
    r"|^\s*import\s+\w+\s*$|<\s*script\b|javascript:",
    re.IGNORECASE | re.MULTILINE,
)
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget)\s+(?:\w+\s+){0,3}?(?:instructions?|rubrics?|above|rules?)"
    r"|\byou\s+are\s+now\b|\bsystem\s+prompt\b"
    r"|(?:이전|앞의?|위의?|기존)\s*(?:모든\s*)?(?:지시|명령|지침|프롬프트)\S*\s*(?:을|를|은|는)?\s*(?:모두\s*)?(?:무시|잊)",
    re.IGNORECASE,
)


def injection(subject: Subject) -> Iterator[Fault]:
    """Marks of code or of orders to the judge, in the body, the texts and the demos."""
    for line, text in subject.body_lines():
        for match in _CODE.finditer(text):
            yield Fault(line, f"{match[0].strip()!r} looks like injected code", "warning")
        for match in _ORDERS.finditer(text):
            yield Fault(line, f"{match[0]!r} looks like an order to the judge", "warning")
    head = subject.lines[: subject.template.body_line - 1]
    for number, text in enumerate(head, start=1):
        if text.lstrip().startswith("#"):
            continue
        for match in _CODE.finditer(text):
            yield Fault(number, f"{match[0].strip()!r} looks like injected code", "warning")
        for match in _ORDERS.finditer(text):
            yield Fault(number, f"{match[0]!r} looks like an order to the judge", "warning")


def jinja_in_texts(subject: Subject) -> Iterator[Fault]:
    """Jinja in a text of the front matter, which is printed and never rendered."""
    for text in subject.texts:
        if "{{" in text.text or "{%" in text.text:
            mark = "{{" if "{{" in text.text else "{%"
            yield Fault(
                subject.line(text.where, mark),
                f"`{mark}` in a text of the front matter is printed as it stands: "
                "only the body is rendered",
                "warning",
            )


_PARTICLES = {
    "은(는)": "은/는", "는(은)": "은/는", "은": "은/는", "는": "은/는", "이(가)": "이/가",
    "가(이)": "이/가", "이": "이/가", "가": "이/가", "을(를)": "을/를", "를(을)": "을/를",
    "을": "을/를", "를": "을/를", "과": "과/와", "와": "과/와", "와(과)": "과/와",
    "으로": "으로/로", "로": "으로/로", "(으)로": "으로/로",
}  # fmt: skip
_GLUED = re.compile(
    r"\{\{-?\s*(?P<inside>[^{}]*?)\s*-?\}\}(?P<particle>"
    + "|".join(re.escape(p) for p in sorted(_PARTICLES, key=len, reverse=True))
    + r")(?![가-힣(])"
)


def particles(subject: Subject) -> Iterator[Fault]:
    """A Korean particle glued to an inserted word, whose ending decides which one fits."""
    if subject.template.front.locale != "ko":
        return
    for line, text in subject.body_lines():
        for match in _GLUED.finditer(text):
            if "josa" in match["inside"]:
                continue
            pair = _PARTICLES[match["particle"]]
            yield Fault(
                line,
                f"`{match[0]}`: which of {pair} fits depends on the inserted word; write "
                f"{{{{ {match['inside']} | josa('{pair}') }}}}",
                "warning",
            )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 50 else f"{line[:47]}...")
