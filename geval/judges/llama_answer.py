"""What llama.cpp answers to a chat completion, read into geval's own words."""

from __future__ import annotations

import math
from typing import Any

from geval.errors import RejectedError, TransientError
from geval.judges.base import Alternative, Choice, Token, Usage
from geval.judges.gguf import Header

Answer = dict[str, Any]

_HALVES = "".join(map(chr, range(0xDC80, 0xDD00)))  # bytes that are no character (surrogateescape)


class TooLong(RejectedError):
    """The prompt has more `tokens` than the context holds."""

    def __init__(self, tokens: int, limit: int) -> None:
        enough = 2 ** math.ceil(math.log2(max(tokens, 1) + 512))
        super().__init__(
            f"the prompt has {tokens} tokens, the context of the local model holds {limit}",
            hint=f"Set GEVAL_CONTEXT={enough} (it takes more memory), or shorten the text.",
            status=400,
        )
        self.tokens = tokens


def refusal(error: Answer) -> RejectedError | TransientError:
    """The error for an error object of the engine."""
    code = int(error.get("code") or 500)
    if error.get("type") == "exceed_context_size_error":
        return TooLong(int(error["n_prompt_tokens"]), int(error["n_ctx"]))
    message = str(error.get("message", error))
    if code < 500:
        return RejectedError(f"the local engine refused the request: {message}", status=code)
    return TransientError(f"the local engine failed: {message}", status=code)


def told(answer: Answer) -> list[Answer]:
    """The entries about generated tokens; none while a character is not whole."""
    return list((answer["choices"][0].get("logprobs") or {}).get("content") or [])


def with_likeliest(answer: Answer, forced: Answer) -> Answer:
    """`answer` to one token, with the probabilities of `forced` and the likeliest as its token."""
    (choice,), entries = answer["choices"], told(forced)[:1]
    if not entries:
        return answer
    likeliest = max(entries[0]["top_logprobs"], key=lambda e: float(e["logprob"]))
    entry = {**likeliest, "top_logprobs": entries[0]["top_logprobs"]}
    return {**answer, "choices": [{**choice, "logprobs": {"content": [entry]}}]}


def to_choice(answer: Answer, said: str, header: Header) -> Choice:
    """The reply without the text that was said for it."""
    found = answer["choices"][0]
    text = str(found["message"].get("content") or "").removeprefix(said)
    finish = str(found.get("finish_reason") or "stop")
    tokens = tuple(_token(entry, header) for entry in told(answer)) or None
    spelled = "".join(token.text for token in tokens or ())
    if finish == "length" and text.rstrip("\ufffd") == spelled.rstrip(_HALVES) != spelled:
        text = spelled  # the engine drops half a character at the end, or writes U+FFFD for it
    return Choice(text, tokens, finish=finish)


def to_usage(answer: Answer) -> Usage:
    """Tokens of one call; `cached` ones were evaluated for an earlier prompt."""
    counted = answer.get("usage", {})
    return Usage(
        calls=1,
        prompt=int(counted.get("prompt_tokens", 0)),
        completion=int(counted.get("completion_tokens", 0)),
        cached=int((counted.get("prompt_tokens_details") or {}).get("cached_tokens", 0)),
    )


def _token(entry: Answer, header: Header) -> Token:
    """One generated token. A control token has the text "", as it has in the reply."""
    listed: list[Answer] = entry.get("top_logprobs") or []
    own = next((e for e in listed if e["id"] == entry["id"]), None)
    if own is not None and own["bytes"] != entry["bytes"]:
        # Several tokens of one character in one entry: the figures are those of the last alone.
        return Token(_text(entry), math.nan)
    return Token(_text(entry), float(entry["logprob"]), _alternatives(listed, header))


def _alternatives(listed: list[Answer], header: Header) -> tuple[Alternative, ...]:
    """The candidates, likeliest first.

    All ends of the reply together are the one with the text "". Other control tokens keep their
    names, so that they are no end; reserved tokens without any text are left out.
    """
    found: list[Alternative] = []
    ends: list[float] = []
    for entry in listed:
        logprob = float(entry["logprob"])
        if entry["bytes"]:
            found.append(Alternative(_text(entry), logprob))
        elif entry["id"] in header.ends:
            ends.append(logprob)
        elif name := header.control.get(entry["id"]):
            found.append(Alternative(name, logprob))
    if ends:
        together = math.fsum(math.exp(p) for p in ends)
        found.append(Alternative("", math.log(together) if together else -math.inf))
    return tuple(sorted(found, key=lambda alternative: -alternative.logprob))


def _text(entry: Answer) -> str:
    return bytes(entry["bytes"]).decode("utf-8", "surrogateescape")
