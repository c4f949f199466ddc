"""Continuing a reply that is already begun: what makes `exact` possible over chat completions.

Servers take the beginning as a last message of the assistant, in three ways:

    plain      the message alone (llama.cpp, Ollama, Fireworks)
    continue   with add_generation_prompt off and continue_final_message on (vLLM, SGLang)
    prefix     the message marked as a prefix (Mistral, DeepSeek)

A server that knows none of them often starts a new turn behind the message and answers all the
same, so a way counts only with proof. The probe lets the model write a line, then gives it the
beginning of that line: the probabilities of the next token must be those that stood at this place
when it wrote by itself. That holds for any model, however dull.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geval.judges.base import Alternative, Choice, Reply, Request, Token

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "continue": {"add_generation_prompt": False, "continue_final_message": True},
    "prefix": {},
}
_CLOSE = 0.1
"""Total variation that two readings of one distribution may differ by: servers are not exact."""

_END = re.compile(r"<[|｜][^<>\s]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|<EOS>|\[EOS\]")


def begun(way: str, request: Request) -> dict[str, Any]:
    """What the body of a call says where the reply is begun with `request.prefill`."""
    message: dict[str, Any] = {"role": "assistant", "content": request.prefill}
    if way == "prefix":
        message["prefix"] = True
    return {"messages": [*request.messages, message], **_FLAGS[way]}


def continued(reply: Reply, request: Request) -> Reply:
    """The reply without an echo of its beginning, and with "" for the tokens that end it."""
    return replace(reply, choices=tuple(_continued(c, request.prefill) for c in reply.choices))


def _continued(choice: Choice, said: str) -> Choice:
    text, tokens = choice.text, choice.tokens
    if tokens is None:
        return choice
    spelled = "".join(token.text for token in tokens)
    if said and text != spelled and text.startswith(said):
        text = text[len(said) :]
    return replace(choice, text=_bare(text), tokens=tuple(map(_with_ends, tokens)))


def _bare(text: str) -> str:
    return "" if _END.fullmatch(text) else text


def _with_ends(token: Token) -> Token:
    return Token(
        _bare(token.text),
        token.logprob,
        tuple(Alternative(_bare(a.text), a.logprob) for a in token.alternatives),
    )


def checkpoints(choice: Choice) -> list[tuple[str, Token]]:
    """Two beginnings of a reply, each with the token that follows: the first and the last usable.

    Empty where the reply is too short. A beginning ends with a letter: chat templates strip blanks.
    """
    found, said = [], ""
    for token in choice.tokens or ():
        if said and said == said.strip() and token.alternatives:
            found.append((said, token))
        said += token.text
    return [found[0], found[-1]] if len(found) > 1 else []


def same(seen: Token, told: Choice) -> bool:
    """Whether the first position of `told` has the probabilities of `seen`."""
    if not told.tokens or not told.tokens[0].alternatives:
        return False
    one, other = _probabilities(seen), _probabilities(told.tokens[0])
    texts = one.keys() | other.keys()
    apart = math.fsum(abs(one.get(t, 0.0) - other.get(t, 0.0)) for t in texts) / 2
    return apart <= _CLOSE


def _probabilities(token: Token) -> dict[str, float]:
    found: dict[str, float] = {}
    for a in token.alternatives:
        text = _bare(a.text)
        found[text] = found.get(text, 0.0) + math.exp(min(a.logprob, 0.0))
    return found
