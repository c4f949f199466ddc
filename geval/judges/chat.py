"""Reading an OpenAI-shaped reply: chat or legacy completions JSON to choices with tokens.

Servers differ in how they spell a token. Here its text is its bytes (half a character as lone
surrogates), or the token text where `bytes` is missing or does not spell the reply. Tokens that
stand outside the content (reasoning before it, an end mark behind it) are cut off, so that text
and tokens spell each other; where they cannot be brought together both are handed on as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from geval.judges.base import Alternative, Choice, Token, Usage
from geval.reading.halves import decode, encode

_HALF = "\ufffd"
_END_MARKS = re.compile(rb"\s*(?:(?:<[|\xef][^<>]{1,40}>|</s>|<eos>|<end_of_turn>)\s*)*\Z")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_FINISH = {
    "": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
}

Speller = Callable[[Mapping[str, Any]], str]


def read_choices(reply: Mapping[str, Any]) -> tuple[Choice, ...]:
    """The choices of a chat or completions reply, in the order of their index."""
    raw = [c for c in reply.get("choices") or () if isinstance(c, Mapping)]
    raw.sort(key=lambda c: c["index"] if isinstance(c.get("index"), int) else 0)
    return tuple(_choice(c) for c in raw)


def read_usage(reply: Mapping[str, Any]) -> Usage:
    """Tokens of one call; what a server does not tell is 0."""
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return Usage(calls=1)
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = _count(details, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens")
    return Usage(
        calls=1,
        prompt=_count(usage, "prompt_tokens") or _count(usage, "input_tokens"),
        completion=_count(usage, "completion_tokens") or _count(usage, "output_tokens"),
        cached=cached,
    )


def _count(source: object, name: str) -> int:
    value = source.get(name) if isinstance(source, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _choice(raw: Mapping[str, Any]) -> Choice:
    finish = str(raw.get("finish_reason") or "").casefold()
    finish = _FINISH.get(finish, finish)
    message = raw.get("message")
    if not isinstance(message, Mapping):
        text, reasoning = _text(raw.get("text")), ""
    else:
        text, reasoning = _parts(message.get("content"))
        for name in ("reasoning_content", "reasoning"):
            reasoning = reasoning or _text(message.get(name))
        if refusal := _text(message.get("refusal")):
            return Choice(text or refusal, finish="refusal", reasoning=reasoning)
    tokens = _tokens(raw.get("logprobs"), text)
    if tokens is None or not any(token.alternatives for token in tokens):
        # No alternatives anywhere is no information, even beside a logprob of 0.0.
        return Choice(text, finish=finish, reasoning=reasoning)
    text, tokens = fit(text, tokens)
    return Choice(text, tokens, finish=finish, reasoning=reasoning)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parts(content: object) -> tuple[str, str]:
    """Text and reasoning of a message content: a string, or a list of typed parts."""
    if not isinstance(content, list):
        return _text(content), ""
    text, reasoning = "", ""
    for part in content:
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            reasoning += inner if isinstance(inner, str) else _parts(inner)[0]
        else:
            text += _text(part.get("text"))
    return text, reasoning


# Tokens


def _tokens(logprobs: object, content: str) -> tuple[Token, ...] | None:
    if not isinstance(logprobs, Mapping):
        return None
    items = logprobs.get("content")
    if isinstance(items, list) and items:
        raw = [item for item in items if isinstance(item, dict)]
        return _chat_tokens(raw, _speller(raw, content))
    if isinstance(logprobs.get("tokens"), list) and logprobs["tokens"]:
        return _legacy_tokens(logprobs)
    return None


def _chat_tokens(items: Sequence[Mapping[str, Any]], spell: Speller) -> tuple[Token, ...]:
    return tuple(
        Token(
            spell(item),
            _logprob(item.get("logprob")),
            tuple(
                Alternative(spell(other), _logprob(other.get("logprob")))
                for other in item.get("top_logprobs") or ()
                if isinstance(other, dict)
            ),
        )
        for item in items
    )


def _legacy_tokens(logprobs: Mapping[str, Any]) -> tuple[Token, ...]:
    """`{"tokens": [..], "token_logprobs": [..], "top_logprobs": [{text: logprob}, ..]}`."""
    texts = logprobs["tokens"]
    own = logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or []
    tokens = []
    for place, text in enumerate(texts):
        top = tops[place] if place < len(tops) else None
        listed = top.items() if isinstance(top, Mapping) else ()
        tokens.append(
            Token(
                _unescaped(_text(text)),
                _logprob(own[place] if place < len(own) else None),
                tuple(Alternative(_unescaped(t), _logprob(p)) for t, p in listed),
            )
        )
    return tuple(tokens)


def _logprob(value: object) -> float:
    """A number, or NaN for what the server left out (null) or wrote as something else."""
    return float(value) if isinstance(value, int | float) else math.nan


def _speller(items: Sequence[Mapping[str, Any]], content: str) -> Speller:
    """How this server spells tokens: by bytes, or by text where its bytes are wrong."""
    wanted = encode(content)
    if b"".join(encode(_by_bytes(item)) for item in items) == wanted:
        return _by_bytes
    if b"".join(encode(_by_text(item)) for item in items) == wanted:
        return _by_text
    return _by_bytes


def _by_text(item: Mapping[str, Any]) -> str:
    return _unescaped(_text(item.get("token")))


def _by_bytes(item: Mapping[str, Any]) -> str:
    raw, text = item.get("bytes"), item.get("token")
    if isinstance(raw, list):
        if isinstance(text, str) and text.isascii() and len(text) == len(raw):
            return text  # most of the thousands of candidates of a reply
        try:
            return bytes(raw).decode("utf-8", "surrogateescape")
        except (TypeError, ValueError):  # not bytes at all
            pass
    return _by_text(item)


def _unescaped(text: str) -> str:
    """OpenAI writes half a character as the text `bytes:\\xec\\x95`."""
    if not text.startswith("bytes:\\x"):
        return text
    data = bytes(int(pair, 16) for pair in _ESCAPED.findall(text))
    return data.decode("utf-8", "surrogateescape")


# Text and tokens that spell each other


def fit(content: str, tokens: tuple[Token, ...]) -> tuple[str, tuple[Token, ...]]:
    """Content and tokens brought together; both unchanged where they contradict each other."""
    wanted = encode(content)
    pieces = [encode(token.text) for token in tokens]
    spelled = b"".join(pieces)
    if spelled == wanted:
        return content, tokens
    if content.endswith(_HALF) and wanted:  # cut off in the middle of a character
        whole = encode(content.rstrip(_HALF))
        if not whole:  # one token alone, and it is half a character
            return decode(spelled), tokens
        ends = list(accumulate(map(len, pieces)))
        kept = sum(1 for end in ends if end <= len(whole))
        if spelled.startswith(whole):
            return content.rstrip(_HALF), tokens[:kept]
    if encode(_HALF) in spelled and _HALF not in content:
        mended = _mend(content, tokens)
        if mended is not None:
            return content, mended
    return _cut(wanted, pieces, tokens) or (content, tokens)


def _cut(
    wanted: bytes, pieces: Sequence[bytes], tokens: tuple[Token, ...]
) -> tuple[str, tuple[Token, ...]] | None:
    """The tokens of the content alone: servers strip blanks, reasoning and end marks from it."""
    core = wanted.strip()
    spelled = b"".join(pieces)
    at = spelled.rfind(core) if core else -1
    if at < 0 or not _END_MARKS.match(spelled, at + len(core)):
        return None
    stop = at + len(core)
    ends = list(accumulate(map(len, pieces)))
    first = next(i for i, end in enumerate(ends) if end > at)
    last = next(i for i, end in enumerate(ends) if end >= stop)
    begin = ends[first] - len(pieces[first])
    if spelled[begin:at].strip() or spelled[stop : ends[last]].strip():
        return None  # the content begins or ends inside a token
    return decode(spelled[begin : ends[last]]), tokens[first : last + 1]


def _mend(content: str, tokens: Sequence[Token]) -> tuple[Token, ...] | None:
    """Put the right letters where a server wrote U+FFFD for half characters.

    A run of such tokens becomes one token that spells what the content has there, without
    alternatives: which letters they were is lost. None where the place is not certain.
    """
    mended: list[Token] = []
    at = place = 0
    while place < len(tokens):
        token = tokens[place]
        if _HALF not in token.text:
            if not content.startswith(token.text, at):
                return None
            mended.append(token)
            at += len(token.text)
            place += 1
            continue
        begin = place
        while place < len(tokens) and _HALF in tokens[place].text:
            place += 1
        after = "".join(t.text for t in tokens[place : place + 3] if t.text)
        after = after.split(_HALF)[0]
        # A run of n halves is 1 to n characters long, besides what stands whole in its tokens.
        longest = at + sum(len(t.text) for t in tokens[begin:place])
        end = content.find(after, at + 1, longest + len(after)) if after else len(content)
        if end < 0 or end > longest:
            return None
        mended.append(Token(content[at:end], math.nan))
        at = end
    return tuple(mended) if at == len(content) else None
