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

from geval.scale import Scale, fold

Order = Literal["score_only", "score_first", "reason_first"]

SCORE_KEYS = (
    "score",
    "final_score",
    "rating",
    "verdict",
    "answer",
    "점수",
    "최종점수",
    "평점",
    "판정",
)
ANSWER_LABELS = ("final score", "score", "verdict", "answer", "최종 점수", "점수", "판정")

_CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_OPENING = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"\s*```[A-Za-z]*[ \t]*\n?")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no score: `kind` for programs, `message` for people.

    `retryable`: whether the same row may well be scored by running it again.
    """

    kind: str
    message: str
    retryable: bool = False


def locate(text: str, order: Order, labels: Sequence[str] = ()) -> int | Failure:
    """Character of `text` at which the answer begins (blanks and marks before it included).

    `labels` are the words after which a reason-first answer stands ("Final score"); the common
    ones are always known.
    """
    start = _after_reasoning(text)
    if isinstance(start, Failure):
        return start
    if not text[start:].strip():
        return Failure("empty_answer", "the judge returned an empty answer")
    if order == "reason_first":
        return _after_label(text, start, labels)
    fence = _FENCE.match(text, start)
    body = fence.end() if fence else start
    if text[body:].lstrip().startswith("{"):
        spot = _json_value(text, body)
        if spot is not None:
            return spot
        return Failure("unparseable", f"no score key in the JSON reply {_shown(text[body:])}")
    label = _label_pattern(labels, r"\s*(?:\*\*|#+\s)?\s*").match(text, body)
    if label:
        return label.end()
    if not fold(text[body:])[:1].isdigit() and "{" in text[body:]:
        spot = _json_value(text, body)
        if spot is not None:
            return spot
    return body


def parse_answer(
    text: str, scale: Scale, order: Order, labels: Sequence[str] = ()
) -> int | Failure:
    """The level (index, or `geval.scale.NA`) that a whole reply gives, or why it gives none."""
    start = locate(text, order, labels)
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


def reason_text(text: str, order: Order, labels: Sequence[str] = ()) -> str:
    """The reason in a whole reply, without the answer and its label; "" where there is none."""
    start = locate(text, order, labels)
    if isinstance(start, Failure):
        return ""
    begin = _after_reasoning(text)
    assert isinstance(begin, int)
    fence = _FENCE.match(text, begin)
    body = fence.end() if fence else begin
    if "{" in text[body:start]:
        return _json_reason(text, body)
    if order == "reason_first":
        head = text[begin:start]
        label = list(_label_pattern(labels, r"").finditer(head))
        return head[: label[-1].start()].strip(" \t\r\n*#") if label else head.strip()
    first, _, rest = text[start:].lstrip().partition("\n")
    if rest.strip():
        return rest.strip()
    inline = re.match(r"\W*[\w/]+(?:점)?\W*[\s.:,)\-–—]+(?P<reason>\S.*)", first)
    return inline["reason"].strip() if inline else ""


def _after_reasoning(text: str) -> int | Failure:
    closings = list(_CLOSING.finditer(text))
    if closings:
        return closings[-1].end()
    if _OPENING.match(text):
        return Failure(
            "reasoning_cut_off",
            "the reply ended inside its reasoning: raise --reply-tokens or turn reasoning off",
        )
    return 0


def _label_pattern(labels: Sequence[str], before: str) -> re.Pattern[str]:
    words = sorted({*labels, *ANSWER_LABELS}, key=len, reverse=True)
    spelled = "|".join(r"\s*".join(map(re.escape, w.split())) for w in words)
    return re.compile(rf"{before}\b(?:{spelled})\b(?:\*\*)?\s*[:：=]\s*", re.IGNORECASE)


def _after_label(text: str, start: int, labels: Sequence[str]) -> int | Failure:
    found = list(_label_pattern(labels, "").finditer(text, start))
    if not found:
        spot = _json_value(text, start)
        if spot is not None:
            return spot
        last = text.rstrip().rfind("\n") + 1
        if last > start and len(text[last:].strip().strip("*")) <= 3:
            return last
        return Failure("no_verdict", f"no final score after the reason: {_shown(text[-80:])}")
    last_label = found[-1]
    if len(found) > 1:
        previous, between = found[-2], text[found[-2].end() : last_label.start()]
        answer = text[last_label.end() :].strip().partition("\n")[0].strip()
        # Only verdicts that stand together compete; one quoted inside the reason does not.
        together = between.count("\n") <= 1 and len(between.strip(" \t\r\n*#.")) <= 8
        if together and fold(between).rstrip(" \t\r\n*#.") != fold(answer).rstrip(" *#."):
            return Failure(
                "conflicting_verdicts",
                f"two different verdicts: {_shown(text[previous.start() :])}",
            )
    return last_label.end()


def _json_value(text: str, start: int) -> int | None:
    """Where the value of the last top-level score key of a JSON object begins."""
    found = None
    for key, begin, _ in _members(text, start):
        if fold(key).replace(" ", "") in SCORE_KEYS:
            found = begin
    return found


def _json_reason(text: str, start: int) -> str:
    reason = ""
    for key, begin, end in _members(text, start):
        if fold(key) in ("reason", "rationale", "explanation", "판단 이유", "이유", "사유"):
            value = json.loads(text[begin:end], strict=False)
            reason = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return reason.strip()


def _members(text: str, start: int) -> list[tuple[str, int, int]]:
    """(key, begin, end of value) of the top-level members of the last JSON object in `text`.

    Reads as far as the object is well formed, so a reply cut off in its reason still has its
    score, and braces inside strings do not end it.
    """
    decoder = json.JSONDecoder(strict=False)
    best: list[tuple[str, int, int]] = []
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
        except ValueError:
            pass
        if members:
            best = members
        at = text.find("{", max(spot, at + 1))
    return best


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")
