"""Holding an answer to the levels of a scale by a JSON schema, and reading it back.

The schema is an object with the one key `score` (and `reason` before it where the reason comes
first); levels that are whole numbers are an integer enum, all others a string enum.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from geval.judges.base import Request
from geval.scale import Scale

Form = Literal["integer", "string"]

ANSWER_ROOM = 64
"""A request with more tokens than this has room for a reason before its score."""

_KEY, _REASON = "score", "reason"
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")


def wants_levels(request: Request) -> bool:
    """Whether the reply to `request` is one of the levels of its scale, and nothing is begun."""
    return (
        request.scale is not None
        and request.method in ("samples", "single")
        and not request.call.purpose.startswith("reason")
        and not request.prefill
    )


def reasoned(request: Request) -> bool:
    """Whether the reply has room for a reason before its score."""
    return request.max_tokens > ANSWER_ROOM


def level_schema(request: Request, form: Form = "integer") -> dict[str, Any]:
    """The schema of an answer to `request`, in the common part of what providers take."""
    assert request.scale is not None
    words = request.scale.allowed
    integers = form == "integer" and all(_INTEGER.fullmatch(word) for word in words)
    score: dict[str, Any] = (
        {"type": "integer", "enum": [int(word) for word in words]}
        if integers
        else {"type": "string", "enum": list(words)}
    )
    properties = {_KEY: score}
    if reasoned(request):
        properties = {_REASON: {"type": "string"}, **properties}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def answer_format(request: Request) -> dict[str, Any]:
    """`response_format` of a chat completion."""
    schema = {"name": "answer", "strict": True, "schema": level_schema(request)}
    return {"type": "json_schema", "json_schema": schema}


def unwrap(text: str, scale: Scale) -> str:
    """The answer without its JSON: the bare level, behind its reason where there is one.

    Text that is no such object (cut off, or not held to the schema) is returned as it is.
    """
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if not isinstance(data, dict) or not isinstance(data.get(_KEY), int | str):
        return text
    level = str(data[_KEY])
    if isinstance(data[_KEY], bool) or level not in scale.allowed:
        return text
    reason = data.get(_REASON)
    # The label is one that is known in every language.
    return f"{reason.strip()}\nFinal score: {level}" if isinstance(reason, str) else level
