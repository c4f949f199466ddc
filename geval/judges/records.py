"""Recorded replies: what one call said, as one JSON object per line.

Written by the run folder (`replies.jsonl`), read by `geval.judges.replay`. The order of fields is
kept: `prompt_sha256` first. A record holds

    prompt_sha256, id, criterion, unit, repeat, purpose, index, method, prefill,
    messages  [{role, content}, ...]
    params    {max_tokens, temperature, alternatives, n}
    choices   [{text, finish, reasoning, offset, tokens}, ...]
              tokens: [[text, logprob, [[alternative, logprob], ...]], ...] or null
    level_probs, usage, model, time

Logprobs are natural logarithms; null stands for "not told" (JSON has no NaN and no infinity) and
is read as -inf. Text is readable UTF-8; only half characters (lone surrogates) are escaped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from geval.judges.base import Alternative, Choice, Reply, Request, Token, Usage
from geval.reading.halves import decode, encode

KEPT_TOKENS = 8
"""Tokens kept of a choice whose answer place is not told."""

_HALVES = "".join(map(chr, range(0xDC80, 0xDD00)))
_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: object) -> str:
    """Compact JSON on one line that encodes to valid UTF-8 and round-trips half characters.

    Raises ValueError for NaN and infinity.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Most texts hold none: a plain search is cheaper than a rewrite.
    if _SURROGATE.search(text):
        text = _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    return text


def reply_to_record(
    request: Request,
    reply: Reply,
    answers: Sequence[int | None] = (),
    *,
    time: str | None = None,
) -> dict[str, Any]:
    """The record of one call.

    `answers` gives per choice the character of its text at which the answer begins: the tokens
    from there on are kept, as many as the longest level can need. Without it (or None for a
    choice) the first `KEPT_TOKENS` are kept. `time` is ISO 8601 in UTC, now where not given.
    """
    starts = [*answers, *([None] * len(reply.choices))][: len(reply.choices)]
    room = request.scale.longest + 4 if request.scale else 0
    return {
        "prompt_sha256": request.prompt_sha256,
        "id": request.call.id,
        "criterion": request.call.criterion,
        "unit": request.call.unit,
        "repeat": request.call.repeat,
        "purpose": request.call.purpose,
        "index": request.index,
        "method": request.method,
        "prefill": request.prefill,
        "messages": [dict(message) for message in request.messages],
        "params": {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "alternatives": request.alternatives,
            "n": request.n,
        },
        "choices": [
            _choice_record(choice, start, room)
            for choice, start in zip(reply.choices, starts, strict=True)
        ],
        "level_probs": None
        if reply.level_probs is None
        else [_finite(p) for p in reply.level_probs],
        "usage": reply.usage.to_dict(),
        "model": reply.model,
        "time": time or datetime.now(UTC).isoformat(timespec="seconds"),
    }


def record_to_reply(record: Mapping[str, Any]) -> Reply:
    """Inverse of `reply_to_record`, as far as the record goes.

    Raises ValueError, KeyError or TypeError for what is no record.
    """
    usage = record.get("usage") or {}
    level_probs = record.get("level_probs")
    return Reply(
        tuple(_choice(raw) for raw in record["choices"]),
        Usage(
            calls=int(usage.get("calls", 1)),
            prompt=int(usage.get("prompt_tokens", 0)),
            completion=int(usage.get("completion_tokens", 0)),
            cached=int(usage.get("cached_tokens", 0)),
        ),
        str(record.get("model") or ""),
        None if level_probs is None else tuple(math.nan if p is None else p for p in level_probs),
    )


def _choice_record(choice: Choice, answer: int | None, room: int) -> dict[str, Any]:
    tokens, offset = choice.tokens, choice.offset
    if tokens is not None:
        tokens, offset = at_answer(tokens, offset, answer or 0, room)
    return {
        "text": choice.text,
        "finish": choice.finish,
        "reasoning": choice.reasoning,
        "offset": offset,
        "tokens": None
        if tokens is None
        else [
            [t.text, _finite(t.logprob), [[a.text, _finite(a.logprob)] for a in t.alternatives]]
            for t in tokens
        ],
    }


def at_answer(
    tokens: Sequence[Token], offset: int, answer: int, room: int
) -> tuple[tuple[Token, ...], int]:
    """The tokens from character `answer` on, and the character at which they begin.

    They begin where a character begins: half of one has no place in the text.
    """
    start = place = 0
    begin, halves = offset, b""
    for position, token in enumerate(tokens):
        if not halves:
            if place + offset > answer:
                break
            start, begin = position, offset + place
        text = decode(halves + encode(token.text))
        whole = text.rstrip(_HALVES)
        place += len(whole)
        halves = encode(text[len(whole) :])
    stop, seen = start, 0
    while stop < len(tokens) and (stop - start < KEPT_TOKENS or seen < room):
        seen += len(tokens[stop].text)
        stop += 1
    return tuple(tokens[start:stop]), begin


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _choice(raw: Mapping[str, Any]) -> Choice:
    tokens = raw.get("tokens")
    return Choice(
        str(raw["text"]),
        None if tokens is None else tuple(_token(*token) for token in tokens),
        int(raw.get("offset", 0)),
        str(raw.get("finish", "stop")),
        str(raw.get("reasoning", "")),
    )


def _token(text: str, logprob: float | None, alternatives: Sequence[Sequence[Any]] = ()) -> Token:
    return Token(
        text,
        _logprob(logprob),
        tuple(Alternative(text, _logprob(p)) for text, p in alternatives),
    )


def _logprob(value: float | None) -> float:
    return -math.inf if value is None else float(value)
