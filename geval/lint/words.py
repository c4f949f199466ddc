"""Checks of lint on words: numbers, order of reason and score, language, injection, particles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from geval.lint.subject import Subject
from geval.reading.language import mismatch
from geval.yaml import Fault


def numbers_outside(subject: Subject) -> Iterator[Fault]:
    """A text speaks of a score that the scale does not have."""
    numbers = subject.says("scores")
    scales = {c.name: c.scale for c in subject.template.criteria}
    for text in subject.texts:
        own = [scales[text.criterion]] if text.criterion else list(scales.values())
        for match in numbers.finditer(text.text):
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
        for match in numbers.finditer(words):
            for number in (n for n in match.groups() if n):
                if not any(s.low <= float(number) <= s.high for s in scales.values()):
                    yield Fault(
                        line, f"the body speaks of the score {number}, outside every scale",
                        "warning",
                    )  # fmt: skip


def reason_order(subject: Subject) -> Iterator[Fault]:
    """A text or the body asks for the other order of score and reason than `output`."""
    output = subject.template.front.output
    pattern, other = (
        (subject.says("score_first"), "the score first")
        if output.order == "reason_first"
        else (subject.says("reason_first"), "the reason first")
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


def other_language(subject: Subject) -> Iterator[Fault]:
    """A text in another language than `locale`, told by script."""
    locale = subject.template.locale
    places = [(subject.line(t.where), t.text) for t in subject.texts]
    for line, text in [*places, *subject.printed()]:
        seen = mismatch(text, locale, subject.locales)
        if seen and sum(map(str.isalpha, text)) >= LETTERS:
            yield Fault(
                line, f"the locale is {locale.code}, but this text is {seen}: {_short(text)}",
                "warning",
            )  # fmt: skip


_CODE = re.compile(
    r"__\w+__|\b__import__\b|\b(?:os|sys|subprocess)\.\w+|\b(?:eval|exec)\s*\(|\.mro\b"
    r"|^\s*import\s+\w+\s*$|<\s*script\b|javascript:",
    re.IGNORECASE | re.MULTILINE,
)


def injection(subject: Subject) -> Iterator[Fault]:
    """Marks of code or of orders to the judge, in the body, the texts and the demos."""
    orders = subject.says("orders")
    for line, text in subject.body_lines():
        for match in _CODE.finditer(text):
            yield Fault(line, f"{match[0].strip()!r} looks like injected code", "warning")
        for match in orders.finditer(text):
            yield Fault(line, f"{match[0]!r} looks like an order to the judge", "warning")
    head = subject.lines[: subject.template.body_line - 1]
    for number, text in enumerate(head, start=1):
        if text.lstrip().startswith("#"):
            continue
        for match in _CODE.finditer(text):
            yield Fault(number, f"{match[0].strip()!r} looks like injected code", "warning")
        for match in orders.finditer(text):
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
    if "Hangul" in subject.template.locale.scripts:
        yield from glued(subject.body_lines())


def glued(lines: Iterable[tuple[int, str]]) -> Iterator[Fault]:
    """Particles right behind an inserted word in numbered lines of Jinja."""
    for line, text in lines:
        for match in _GLUED.finditer(text):
            if "josa" in match["inside"]:
                continue
            pair = _PARTICLES[match["particle"]]
            yield Fault(
                line,
                f"`{match[0]}`: which of {pair} fits depends on the inserted word; write "
                f"{{{{ {match['inside']} | josa('{pair}') }}}}",
                "warning",
                "particles",
            )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 50 else f"{line[:47]}...")
