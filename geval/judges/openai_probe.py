"""What an OpenAI-compatible endpoint can do, found by a few tiny calls.

Nothing of the user's data is sent. What is learned on the way (caps, refused parameters, the
switch that turns thinking off) stays in the judge's `Abilities`.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Protocol

from geval.errors import JudgeError, TransientError
from geval.judges.adapt import WIDE_ALTERNATIVES, Abilities
from geval.judges.base import Choice, Message, Method, Reply, Request, Token
from geval.judges.endpoint import Endpoint
from geval.judges.exact import checkpoints, same
from geval.judges.levels import unwrap
from geval.notes import told
from geval.scale import Scale

PROMPT: tuple[Message, ...] = (
    {"role": "user", "content": "Write the numbers 1 2 3 4 5 6 in one line and nothing else."},
)
_TOKENS = 24
_THINKING_TOKENS = 512
_SCALE = Scale.of(1, 2)
_READABLE = -25.0
"""Logprobs under this are rounding, padding or a mask."""


class Probed(Protocol):
    """The part of a judge that a probe needs."""

    endpoint: Endpoint
    abilities: Abilities
    prefills: tuple[str, ...]
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
    """The methods of the endpoint.

    Raises FatalError where no call can pass, TransientError where the probe did not get through.
    """
    decision, chat = await asyncio.gather(
        _has_decisions(judge), _chat_methods(judge), return_exceptions=True
    )
    for result in (decision, chat):
        if isinstance(result, BaseException) and not isinstance(result, JudgeError):
            raise result
    if isinstance(decision, TransientError):
        raise decision
    found: tuple[Method, ...] = ("decision",) if decision is True else ()
    if isinstance(chat, BaseException):
        # A model for decisions alone refuses chat; everything else stops here.
        if not found or isinstance(chat, TransientError):
            raise chat
        return found
    return (*found, *chat)


async def _has_decisions(judge: Probed) -> bool:
    request = Request(PROMPT, "decision", _TOKENS, scale=Scale.of(0, 1))
    try:
        await judge.decide(request)
    except TransientError as error:
        if error.status == 429:
            raise
        return False  # the route is one among several: what fails here is not there
    except JudgeError:
        return False
    return True


async def _chat_methods(judge: Probed) -> tuple[Method, ...]:
    written = await _written(judge)
    found: list[Method] = ["samples", "single"]
    if _alternatives(judge, written):
        found.insert(0, "logprobs")
        await _find_processing(judge, written)
        if await _find_prefill(judge, written):
            found.insert(0, "exact")
    if not written.text.strip().startswith("1") and not judge.endpoint.official:
        await _find_structure(judge)
    return tuple(found)


async def _written(judge: Probed) -> Choice:
    """A line of the model's own writing, with the alternatives that the endpoint gives."""
    known, foreign = judge.abilities, not judge.endpoint.official
    asked = Request(PROMPT, "logprobs", _TOKENS, known.top)
    choice = await _first(judge, asked)
    if _thinking(choice) and foreign:
        known.no_thinking = True
        choice = await _first(judge, asked)
        known.no_thinking = not _thinking(choice)
    if _thinking(choice):
        choice = await _first(judge, replace(asked, max_tokens=_THINKING_TOKENS))
    if _most(choice) < 2 and foreign and not known.integer_logprobs:
        if "logprobs" in known.refused:
            return choice
        # Together takes a number where the others take `true`.
        known.integer_logprobs = True
        again = await _first(judge, asked)
        known.integer_logprobs = _most(again) >= 2
        choice = again if known.integer_logprobs else choice
    return choice


def _alternatives(judge: Probed, written: Choice) -> bool:
    """Whether alternatives came with the line; learns how many there can be."""
    known, most = judge.abilities, _most(written)
    if most < 2:
        if "logprobs" not in known.refused:
            known.refused.add("logprobs")
            judge.tell(["the endpoint accepts logprobs and gives none"])
        return False
    if most < known.top:
        known.top = known.wide = most
        judge.tell([told("at_most", n=most)])
    return True


# Raw or processed


async def _find_processing(judge: Probed, written: Choice) -> None:
    """Whether probabilities are those of the model, or those after temperature.

    At half the temperature the distances between logprobs double where they are processed.
    """
    known = judge.abilities
    if _thinking(written) or "temperature" in known.refused:
        return
    asked = Request(PROMPT, "logprobs", 1, known.top)
    known.probabilities = "raw"  # so that the temperatures are sent as they are
    half = await _first(judge, replace(asked, temperature=0.5))
    outcome = "raw" if _near(stretch(_head(written), _head(half)), 1.0) else "unknown"
    if outcome == "unknown" and "temperature" not in known.refused:
        one = await _first(judge, replace(asked, temperature=1.0))
        if _near(stretch(_head(one), _head(half)), 2.0):
            outcome = "processed"
            judge.tell(["the endpoint reports probabilities after temperature: it is asked with 1"])
    known.probabilities = outcome


def stretch(one: Token | None, other: Token | None) -> float | None:
    """How many times as far apart the logprobs of `other` are as those of `one`.

    None where too few candidates are common to both, or where they are all alike.
    """
    if one is None or other is None:
        return None
    first, second = _readable(one), _readable(other)
    common = first.keys() & second.keys()
    if len(common) < 2:
        return None
    mean_x = math.fsum(first[t] for t in common) / len(common)
    mean_y = math.fsum(second[t] for t in common) / len(common)
    square = math.fsum((first[t] - mean_x) ** 2 for t in common)
    product = math.fsum((first[t] - mean_x) * (second[t] - mean_y) for t in common)
    return product / square if square > 0.02 else None


def _readable(token: Token) -> dict[str, float]:
    return {a.text: a.logprob for a in token.alternatives if a.logprob > _READABLE}


def _near(value: float | None, target: float) -> bool:
    return value is not None and abs(value - target) < 0.2


def _head(choice: Choice) -> Token | None:
    return choice.tokens[0] if choice.tokens else None


# Continuing a reply that is begun


async def _find_prefill(judge: Probed, written: Choice) -> bool:
    known = judge.abilities
    if not judge.prefills or judge.endpoint.official or known.integer_logprobs:
        return False
    if known.probabilities == "processed":
        # What was written at temperature 0 shows nothing then.
        written = await _first(judge, Request(PROMPT, "logprobs", _TOKENS, known.top))
    points = checkpoints(written)
    for way in judge.prefills if points else ():
        known.prefill = way
        try:
            if all([await _proved(judge, said, token) for said, token in points]):
                return True
        except TransientError:
            known.prefill = ""
            raise
        except JudgeError:
            pass  # refused: another way may do
    known.prefill = ""
    return False


async def _proved(judge: Probed, said: str, token: Token) -> bool:
    request = Request(PROMPT, "exact", 1, WIDE_ALTERNATIVES, prefill=said)
    return same(token, await _first(judge, request))


# Samples


async def _find_structure(judge: Probed) -> None:
    """A model that does not do as it is told may still be held to a schema."""
    known = judge.abilities
    known.structured = True
    text = ""
    try:
        text = (await _first(judge, Request(PROMPT, "samples", 16, scale=_SCALE))).text
    except TransientError:
        known.structured = False
        raise
    except JudgeError:
        pass
    known.structured = unwrap(text, _SCALE) in _SCALE.allowed


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
