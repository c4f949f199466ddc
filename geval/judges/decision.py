"""The `decision` method: one question with ordered levels, answered by a probability per level.

Two routes ask the same: OpenAI's `/decisions` (`questions` a list, probabilities as a list with a
0-based `value`), and `/systemone` of llama.cpp and others (`questions` a mapping, probabilities
keyed by the level's number as text). Both take 2 to 10 levels and give no reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geval.errors import RejectedError, TransientError
from geval.judges.base import Choice, Message, Reply, Request
from geval.judges.chat import read_usage
from geval.scale import Scale

ROUTES = ("decisions", "systemone")
MOST_LEVELS = 10
_NAME = "score"
_INSTRUCTIONS = "Which score does the input ask for?"
_ROLES = {"system": "developer"}


def levels_of(request: Request, where: str) -> Scale:
    """The scale of a decision request. Raises RejectedError where it cannot be asked so."""
    scale = request.scale
    if scale is None:
        raise RejectedError("a decision needs the scale of the criterion", where=where)
    if len(scale.levels) > MOST_LEVELS:
        raise RejectedError(
            f"a decision takes {MOST_LEVELS} levels at most, this scale has {len(scale.levels)}",
            where=where,
            hint="Take another method, or a scale with fewer levels.",
        )
    if scale.not_applicable:
        raise RejectedError(
            "a decision has no answer outside the levels, and this scale has one (not_applicable)",
            where=where,
            hint="Take another method.",
        )
    return scale


def decision_body(route: str, model: str, request: Request, scale: Scale) -> dict[str, Any]:
    """The body of a decision call, lowest level first."""
    if route == "systemone":
        criteria = [f"{lv.word}: {lv.anchor}" if lv.anchor else lv.word for lv in scale.levels]
        question: dict[str, Any] = {
            "type": "score",
            "instructions": _INSTRUCTIONS,
            "criteria": criteria,
        }
        state = "\n\n".join(message["content"] for message in request.messages)
        return {"model": model, "state": state, "questions": {_NAME: question}}
    levels = [
        {"label": lv.word, "description": lv.anchor} if lv.anchor else {"label": lv.word}
        for lv in scale.levels
    ]
    question = {"type": "score", "name": _NAME, "instructions": _INSTRUCTIONS, "levels": levels}
    return {
        "model": model,
        "input": [_message(message) for message in request.messages],
        "questions": [question],
    }


def _message(message: Message) -> dict[str, str]:
    role = _ROLES.get(message["role"], message["role"])
    return {"type": "message", "role": role, "content": message["content"]}


def decision_reply(data: Mapping[str, Any], scale: Scale, where: str) -> Reply:
    """The reply of either route. A refused question is a choice that finished by `refusal`.

    Raises TransientError where the answer is none (a broken body, a level without probability).
    """
    answers = data.get("answers")
    answer = answers.get(_NAME) if isinstance(answers, Mapping) else None
    if isinstance(answers, list) and answers:
        answer = answers[0]
    if not isinstance(answer, Mapping):
        raise TransientError(f"{where}: the decision holds no answer")
    usage, model = read_usage(data), str(data.get("model") or "")
    if answer.get("type") == "refusal":
        return Reply((Choice("", finish="refusal"),), usage, model)
    found = _probabilities(answer.get("probabilities"))
    if found.keys() != set(range(len(scale.levels))):
        raise TransientError(
            f"{where}: the decision gives {len(found)} probabilities for {len(scale.levels)} levels"
        )
    probs = tuple(found[i] for i in range(len(scale.levels)))
    best = max(range(len(probs)), key=lambda i: (probs[i], -i))
    return Reply((Choice(scale.levels[best].word),), usage, model, level_probs=probs)


def _probabilities(raw: object) -> dict[int, float]:
    """0-based level index to probability."""
    if isinstance(raw, Mapping):
        pairs = list(raw.items())
    elif isinstance(raw, list):
        pairs = [(p.get("value"), p.get("probability")) for p in raw if isinstance(p, Mapping)]
    else:
        return {}
    found = {}
    for value, probability in pairs:
        try:
            found[int(value)] = float(probability)
        except (TypeError, ValueError):
            continue
    return found
