"""What an OpenAI-compatible endpoint can do, found by one tiny call per question.

Nothing of the user's data is sent. What is learned on the way (caps, refused parameters, the
switch that turns thinking off) stays in the judge's `Abilities`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from geval.errors import JudgeError, TransientError
from geval.judges.adapt import Abilities
from geval.judges.base import Choice, Message, Method, Reply, Request
from geval.judges.endpoint import Endpoint
from geval.scale import Scale

_PROMPT: tuple[Message, ...] = (
    {"role": "user", "content": "Answer with the digit 1 and nothing else."},
)
_TOKENS = 16
_THINKING_TOKENS = 512


class Probed(Protocol):
    """The part of a judge that a probe needs."""

    endpoint: Endpoint
    abilities: Abilities
    revision: str

    async def chat(self, request: Request) -> Reply:
        """A chat completion."""
        ...

    async def decide(self, request: Request) -> Reply:
        """A decision."""
        ...

    def tell(self, notes: list[str]) -> None:
        """Keep a note for the user."""
        ...


async def find_methods(judge: Probed) -> tuple[Method, ...]:
    """The methods of the endpoint, in the order `auto` tries them.

    Raises FatalError where no call can pass, TransientError where the probe did not get through.
    """
    decision, chat = await asyncio.gather(
        _has_decisions(judge), _has_logprobs(judge), return_exceptions=True
    )
    for result in (decision, chat):
        if isinstance(result, BaseException) and not isinstance(result, JudgeError):
            raise result
    if isinstance(decision, TransientError):
        raise decision
    found: list[Method] = ["decision"] if decision is True else []
    if isinstance(chat, BaseException):
        # A model for decisions alone refuses chat; everything else stops here.
        if not found or isinstance(chat, TransientError):
            raise chat
        return tuple(found)
    if chat:
        found.append("logprobs")
    return (*found, "samples", "single")


async def _has_decisions(judge: Probed) -> bool:
    request = Request(_PROMPT, "decision", _TOKENS, scale=Scale.of(0, 1))
    try:
        await judge.decide(request)
    except TransientError as error:
        if error.status == 429:
            raise
        return False  # the route is one among several: what fails here is not there
    except JudgeError:
        return False
    return True


async def _has_logprobs(judge: Probed) -> bool:
    """Whether alternatives come with a reply."""
    known, foreign = judge.abilities, not judge.endpoint.official
    asked = Request(_PROMPT, "logprobs", _TOKENS, known.top)
    choice = await _first(judge, asked)
    if _thinking(choice) and foreign:
        known.no_thinking = True
        choice = await _first(judge, asked)
        known.no_thinking = not _thinking(choice)
    if _thinking(choice):
        choice = await _first(judge, replace(asked, max_tokens=_THINKING_TOKENS))
    most = _most(choice)
    if most < 2 and foreign and not known.integer_logprobs and "logprobs" not in known.refused:
        # Together takes a number where the others take `true`.
        known.integer_logprobs = True
        most = _most(await _first(judge, asked))
        known.integer_logprobs = most >= 2
    if most < 2:
        if "logprobs" not in known.refused:
            known.refused.add("logprobs")
            judge.tell(["the endpoint accepts logprobs and gives none"])
        return False
    if most < min(asked.alternatives, known.top):
        known.top = most
        judge.tell([f"the endpoint gives at most {most} alternatives per position"])
    return True


async def _first(judge: Probed, request: Request) -> Choice:
    reply = await judge.chat(request)
    judge.revision = reply.model or judge.revision
    return reply.choices[0]


def _thinking(choice: Choice) -> bool:
    """Whether the model spent its tokens on reasoning that was to be off."""
    return bool(choice.reasoning or "<think>" in choice.text or "</think>" in choice.text) or (
        choice.finish == "length" and not choice.text.strip()
    )


def _most(choice: Choice) -> int:
    """The most alternatives at one position."""
    return max((len(token.alternatives) for token in choice.tokens or ()), default=0)
