"""Where in a reply the answer stands, and which level a plain text answer is.

The answer is found by its place (scoring.md, reader rule 1): first thing of the reply, after the
last answer label, or the value of the top-level score key of a JSON object. A number anywhere
else, in a reason, a quotation or a reasoning block, is never looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from geval.reading.wording import Wording, wording
from geval.scale import Scale, fold

Order = Literal["score_only", "score_first", "reason_first"]

_CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_OPENING = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_LINE_START = r"^[\s>*#\-]*"
# A reply of one line that ends in its verdict: "Final score: 4.", "a score of 4.", "It fits. 4"
_CLOSING_SENTENCE = re.compile(
    r"""(?:(?:score|rating)\b\W{0,2}(?:\s*(?:of|is|as)\b)*[\s:=*]*|(?<=[.!?])["'”]?\s+)
    (?P<level>\d{1,3}(?:\.\d+)?)(?:\s*/\s*\d+)?(?:\s+for\s+[a-z\s]{1,30})?[.*\s"')]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_SCORE_NAMED = re.compile(r"(?:score|rating)\b\D{0,20}\d", re.IGNORECASE)
_QUOTES = ('"', "'", "“", "‘", "`", "「", "『", "<")
_WORD_ALONE = re.compile(r"[\s*_\"'`]*[^\W\d]+[.*_\"'`]*[ \t]*\n")
_OWN_OBJECT = re.compile(r"(?:^[ \t>*_]*|[:：]\s*|```[a-z]*\s*)(?P<object>\{)", re.MULTILINE)
_FENCE = re.compile(r"\s*```[A-Za-z]*[ \t]*\n?")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no score: `kind` for programs, `message` for people.

    `retryable`: whether the same row may well be scored by running it again.
    """

    kind: str
    message: str
    retryable: bool = False


def locate(
    text: str, order: Order, labels: Sequence[str] = (), says: Wording | None = None
) -> int | Failure:
    """Character of `text` at which the answer begins (blanks and marks before it included).

    `labels` are the words after which a reason-first answer stands ("Final score"); those of
    `says`, by default of the shipped locales, are always known.
    """
    says = says or wording()
    start = _after_reasoning(text)
    if isinstance(start, Failure):
        return start
    if not text[start:].strip():
        return Failure("empty_answer", "the judge returned an empty answer")
    if order == "reason_first":
        return _after_label(text, start, labels, says)
    fence = _FENCE.match(text, start)
    body = fence.end() if fence else start
    if text[body:].lstrip().startswith("{"):
        spot = _json_value(text, body, says)
        if spot is not None:
            return spot
        return Failure("unparseable", f"no score key in the JSON reply {_shown(text[body:])}")
    label = _label_pattern(labels, says, r"\s*(?:\*\*|#+\s)?\s*").match(text, body)
    if label:
        return label.end()
    if not fold(text[body:])[:1].isdigit() and not _WORD_ALONE.match(text, body):
        spot = _json_value(text, _own_object(text, body), says)
        if spot is not None:
            return spot
    return body


def parse_answer(
    text: str, scale: Scale, order: Order, labels: Sequence[str] = ()
) -> int | Failure:
    """The level (index, or `geval.scale.NA`) that a whole reply gives, or why it gives none."""
    start = locate(text, order, labels, scale.wording)
    if isinstance(start, Failure):
        return start
    index = scale.parse(text[start:])
    return no_level(text[start:], scale) if index is None else index


def no_level(answer: str, scale: Scale) -> Failure:
    """The failure for an answer that names no level."""
    number = re.match(r"-?\d+(?:\.\d+)?", fold(answer))
    if number and number[0] not in scale.allowed:
        return Failure(
            "out_of_scale", f"{number[0]} is not on the scale {', '.join(scale.allowed)}"
        )
    return Failure("unparseable", f"no level at the answer place: {_shown(answer)}")


def reason_text(
    text: str, order: Order, labels: Sequence[str] = (), says: Wording | None = None
) -> str:
    """The reason in a whole reply, without the answer and its label; "" where there is none."""
    says = says or wording()
    start = locate(text, order, labels, says)
    if isinstance(start, Failure):
        return ""
    begin = _after_reasoning(text)
    assert isinstance(begin, int)
    fence = _FENCE.match(text, begin)
    body = fence.end() if fence else begin
    if "{" in text[body:start]:
        return _json_reason(text, body, says)
    if order == "reason_first":
        head = text[begin:start]
        label = list(_label_pattern(labels, says, _LINE_START).finditer(head))
        return head[: label[-1].start()].strip(" \t\r\n*#") if label else head.strip()
    first, _, rest = text[start:].lstrip().partition("\n")
    if rest.strip():
        return rest.strip()
    inline = re.match(r"\W*[\w/]+\W*[\s.:,)\-–—]+(?P<reason>\S.*)", first)
    return inline["reason"].strip() if inline else ""


def _after_reasoning(text: str) -> int | Failure:
    """Behind the reasoning blocks at the beginning of a reply.

    Some servers leave only the closing tag. A tag that is quoted further on is no block: where the
    reply already begins with a number, both places would be an answer, and it is a failure.
    """
    start = 0
    while _OPENING.match(text, start):
        closing = _CLOSING.search(text, start)
        if closing is None:
            return Failure(
                "reasoning_cut_off",
                "the reply ended inside its reasoning: raise --reply-tokens or turn reasoning off",
            )
        start = closing.end()
    if start:
        return start
    closing = next(
        (c for c in _CLOSING.finditer(text) if text[: c.start()][-1:] not in _QUOTES), None
    )
    if closing is None:
        return 0
    before, after = fold(text)[:1], fold(text[closing.end() :])[:1]
    if before.isdigit() and after.isdigit() and before != after:
        return Failure(
            "conflicting_verdicts",
            f"an answer at the beginning and another behind {closing[0]}: {_shown(text)}",
        )
    return 0 if before.isdigit() and not after else closing.end()


def _label_pattern(labels: Sequence[str], says: Wording, before: str) -> re.Pattern[str]:
    words = sorted({*labels, *says.words.answer_words}, key=len, reverse=True)
    spelled = "|".join(r"\s*".join(map(re.escape, w.split())) for w in words)
    return re.compile(
        rf"{before}\b(?P<label>{spelled})\b(?:\*\*)?\s*[:：=]\s*", re.IGNORECASE | re.MULTILINE
    )


def _after_label(text: str, start: int, labels: Sequence[str], says: Wording) -> int | Failure:
    """Behind the last labelled verdict; a label counts only at the beginning of a line."""
    found = list(_label_pattern(labels, says, _LINE_START).finditer(text, start))
    final = [m for m in found if fold(m["label"]).startswith(says.final)]
    found = final or found
    if not found:
        spot = _json_value(text, _own_object(text, start), says)
        if spot is not None:
            return spot
        last = text.rstrip().rfind("\n") + 1
        if last > start and re.fullmatch(r"[\s*_]*\w{1,3}[\s*_.]*", text[last:]):
            return last
        closing = _CLOSING_SENTENCE.search(text, start)
        if closing and len(_SCORE_NAMED.findall(text, start)) <= 1:
            return closing.start("level")
        return Failure("no_verdict", f"no final score after the reason: {_shown(text[-80:])}")
    last_label = found[-1]
    if len(found) > 1:
        previous = found[-2]
        first, _, between = text[previous.end() : last_label.start()].strip().partition("\n")
        answer = text[last_label.end() :].strip().partition("\n")[0]
        # Verdicts that stand together compete; one that the reason quotes lines before does not.
        together = not any(c.isalnum() for c in between)
        if together and fold(first).rstrip(" *#.") != fold(answer).rstrip(" *#."):
            return Failure(
                "conflicting_verdicts",
                f"two different verdicts: {_shown(text[previous.start() :])}",
            )
    return last_label.end()


def _own_object(text: str, start: int) -> int:
    """Where the judge's own JSON may begin: a line of its own, or behind a colon.

    An object within a sentence is one that the reason quotes.
    """
    found = _OWN_OBJECT.search(text, start)
    return found.start("object") if found else len(text)


def _json_value(text: str, start: int, says: Wording) -> int | Failure | None:
    """Where the value of the score key of the reply's JSON object begins.

    Of several score keys the first of the locales counts, of one that is repeated the last. Two
    objects with different scores are a failure.
    """
    spots = [spot for members in _objects(text, start) if (spot := _score_at(members, says))]
    if not spots:
        return None
    values = {fold(text[begin:end]).rstrip("\"'") for begin, end in spots}
    if len(values) > 1:
        return Failure("conflicting_verdicts", f"objects with different scores: {_shown(text)}")
    return spots[0][0]


def _score_at(members: Sequence[tuple[str, int, int]], says: Wording) -> tuple[int, int] | None:
    by_key = {fold(key).replace(" ", ""): (begin, end) for key, begin, end in members}
    return next((by_key[key] for key in says.score_keys if key in by_key), None)


def _json_reason(text: str, start: int, says: Wording) -> str:
    reason = ""
    for key, begin, end in (m for members in _objects(text, start) for m in members):
        if fold(key) in says.reason_keys:
            value = json.loads(text[begin:end], strict=False)
            reason = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return reason.strip()


def _objects(text: str, start: int) -> list[list[tuple[str, int, int]]]:
    """(key, begin, end of value) of the top-level members of each JSON object in `text`.

    Reads as far as an object is well formed, so a reply cut off in its reason still has its
    score, and braces inside strings do not end it.
    """
    decoder = json.JSONDecoder(strict=False)
    found: list[list[tuple[str, int, int]]] = []
    at = text.find("{", start)
    while at >= 0:
        members: list[tuple[str, int, int]] = []
        spot = _blank(text, at + 1)
        try:
            while text[spot : spot + 1] == '"':
                key, spot = decoder.raw_decode(text, spot)
                spot = _blank(text, spot)
                if text[spot : spot + 1] != ":":
                    break
                begin = _blank(text, spot + 1)
                _, spot = decoder.raw_decode(text, begin)
                members.append((key, begin, spot))
                spot = _blank(text, spot)
                if text[spot : spot + 1] != ",":
                    break
                spot = _blank(text, spot + 1)
        except (ValueError, RecursionError):
            # What a broken value holds is part of it, not another object.
            spot = len(text) if members else spot
        if members:
            found.append(members)
        at = text.find("{", max(spot, at + 1))
    return found


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")
