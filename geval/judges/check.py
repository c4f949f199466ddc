"""What a judge can do, shown by trying it: one small call for each of its methods at most.

Works with any `Judge`. What only some of them know (`abilities` of network judges) is shown where
it is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from geval.distribution import Reading, from_levels
from geval.errors import ConfigError, JudgeError
from geval.judges.base import (
    JUDGES,
    Alternative,
    Judge,
    Message,
    Method,
    Reply,
    Request,
    open_judge,
)
from geval.reading.answer import Failure, parse_answer
from geval.reading.reader import read_choice, read_exact
from geval.scale import NA, Scale

_QUESTION = """\
Question: What is the capital of Korea?
Answer: Seoul, or perhaps Busan.
How good is the answer? Reply with one of {words}, and nothing else."""
_REPEAT = "Repeat these lines exactly, and nothing else:\n{words}"
_ANSWER_TOKENS = 8
_SEEN = 20  # candidates

EXAMPLES: Mapping[str, str] = {
    "local": "local",
    "anthropic": "anthropic:MODEL",
    "azure": "azure:DEPLOYMENT",
    "llamacpp": "llamacpp:URL",
    "ollama": "ollama:MODEL",
    "openai": "openai:MODEL",
    "replay": "replay:FILE",
    "vllm": "vllm:MODEL",
}
"""How each built-in judge is written."""


@dataclass(frozen=True)
class Trial:
    """One method as it was tried on one question.

    `levels` are the probabilities that were read, by word; `expected` is in units of the scale.
    None where a method has none (`samples` give one answer). `seconds` is the time of the call.
    """

    method: Method
    seconds: float
    answer: str | None = None
    expected: float | None = None
    levels: Mapping[str, float] | None = None
    coverage: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None


@dataclass
class Report:
    """What was found. `tokens` are the pieces of each level's word, None where they are hidden."""

    spec: str
    identity: Mapping[str, Any]
    methods: tuple[Method, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    tokens: Mapping[str, list[str] | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


async def check_judge(judge: Judge, scale: Scale) -> Report:
    """Try every method of `judge` on one question with the levels of `scale`.

    What an earlier probe has found is not believed. Raises a JudgeError where no call can pass;
    a method that fails is a `Trial` with its error.
    """
    forget: Callable[[], None] | None = getattr(judge, "forget", None)
    if forget is not None:
        forget()
    methods = await judge.methods()
    report = Report(judge.spec, judge.identity(), methods)
    for method in methods:
        if method != "single" or "samples" not in methods:  # the same call as a sample
            report.trials.append(await _tried(judge, method, scale, report.notes))
    reader: Method | None = next((m for m in ("logprobs", "exact") if m in methods), None)
    if reader is not None:
        report.tokens = await _spelled(judge, reader, scale, report.notes)
    report.identity, report.facts = judge.identity(), _facts(judge)
    return report


async def _tried(judge: Judge, method: Method, scale: Scale, notes: list[str]) -> Trial:
    text = _QUESTION.format(words=", ".join(scale.allowed))
    messages: tuple[Message, ...] = ({"role": "user", "content": text},)
    exact = method == "exact"
    request = Request(
        messages,
        method,
        1 if exact else _ANSWER_TOKENS,
        alternatives=1000 if exact else _SEEN if method == "logprobs" else 0,
        temperature=None if method == "samples" else 0.0,
        scale=scale,
    )
    started = time.monotonic()
    try:
        reply = await judge.complete(request)
    except JudgeError as error:
        return Trial(method, time.monotonic() - started, error=str(error))
    seconds = time.monotonic() - started
    notes += reply.notes
    reading, answer = await _read(reply, method, scale)
    told: dict[str, Any] = {}
    if reading is not None and reading.coverage > 0:
        found = reading.distribution(method)
        told = {
            "expected": found.mean,
            "levels": dict(zip((lv.word for lv in scale.levels), found.probs, strict=True)),
            "coverage": reading.coverage,
        }
    return Trial(
        method,
        seconds,
        answer,
        prompt_tokens=reply.usage.prompt,
        completion_tokens=reply.usage.completion,
        error=None if told or method in ("samples", "single") else "no probabilities came",
        **told,
    )


async def _read(reply: Reply, method: Method, scale: Scale) -> tuple[Reading | None, str]:
    """The probabilities of one reply, and its answer as it is printed."""
    choice = reply.choices[0]
    if method == "decision":
        known = reply.level_probs is not None
        return (from_levels(reply.level_probs or (), scale) if known else None), choice.text
    if method == "exact":

        async def ask(said: str) -> Sequence[Alternative]:
            # What goes on behind an open beginning would be another call.
            return choice.tokens[0].alternatives if choice.tokens and not said else ()

        return await read_exact(ask, scale), choice.text
    index = parse_answer(choice.text, scale, "score_only")
    if isinstance(index, Failure):
        answer = f"no level: {choice.text!r}"
    else:
        answer = scale.allowed[-1] if index == NA else scale.levels[index].word
    return (read_choice(choice, scale, 0) if method == "logprobs" else None), answer


async def _spelled(
    judge: Judge, method: Method, scale: Scale, notes: list[str]
) -> dict[str, list[str] | None]:
    """The tokens of each level's word, seen in a reply that repeats them line by line."""
    words = scale.allowed
    text = _REPEAT.format(words="\n".join(words))
    room = 8 * len(words) + sum(len(word) for word in words)
    request = Request(({"role": "user", "content": text},), method, room, alternatives=2)
    try:
        reply = await judge.complete(request)
    except JudgeError:
        return dict.fromkeys(words)
    notes += reply.notes
    choice = reply.choices[0]
    found: dict[str, list[str] | None] = dict.fromkeys(words)
    ends, pieces, at = [], [], 0
    for token in choice.tokens or ():
        at += len(token.text)
        ends.append(at)
        pieces.append(token.text)
    spelled, place = "".join(pieces), 0
    for word in words:
        begin = spelled.find(word, place)
        if begin < 0:
            break
        place = begin + len(word)
        found[word] = [
            piece
            for piece, end in zip(pieces, ends, strict=True)
            if end > begin and end - len(piece) < place
        ]
    return found


def _facts(judge: Judge) -> dict[str, Any]:
    """What the probe has found, in words; empty for judges that keep nothing of the kind."""
    known = getattr(judge, "abilities", None)
    if known is None:
        return {}
    facts: dict[str, Any] = {}
    if "logprobs" in (known.methods or ()):
        facts["probabilities"] = known.probabilities
        facts["alternatives"] = known.top
    if known.prefill:
        facts["a begun reply is continued"] = known.prefill
        facts["alternatives of one token"] = known.wide
    if known.decision_route:
        facts["decision route"] = known.decision_route
    if known.structured:
        facts["samples"] = "held to the levels by a schema"
    if known.context:
        facts["context"] = known.context
    if known.effort not in ("", "none"):
        facts["reasoning effort"] = known.effort
    if known.refused:
        facts["refused"] = sorted(known.refused)
    return facts


# What there is


@dataclass(frozen=True)
class Listed:
    """A judge that can be named, and whether it could be used here (no server is called)."""

    name: str
    spec: str
    usable: bool
    why: str = ""


async def list_judges(named: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[Listed]:
    """The built-in judges, then `named`: spec and options by name."""
    listed = [await _listed(name, EXAMPLES[name], {}) for name in sorted(JUDGES)]
    for name, (spec, options) in sorted(named.items()):
        listed.append(await _listed(f"@{name}" if name in JUDGES else name, spec, options))
    return listed


async def _listed(name: str, spec: str, options: Mapping[str, Any]) -> Listed:
    if spec == EXAMPLES["replay"]:
        return Listed(name, spec, True, "recorded replies of a run")
    try:
        # Opening checks the extra and the key; nobody is called.
        judge = open_judge("llamacpp:" if spec == EXAMPLES["llamacpp"] else spec, **options)
    except ConfigError as error:
        return Listed(name, spec, False, error.what)
    await judge.aclose()
    endpoint = getattr(judge, "endpoint", None)
    if endpoint is None:
        return Listed(name, spec, True, "runs on this machine")
    key = f"key from {endpoint.key_name}" if endpoint.key else "no key is sent"
    return Listed(name, spec, True, f"{endpoint.host}, {key}")


def shown(levels: Mapping[str, float]) -> str:
    """Probabilities in one line, the likeliest levels first; what rounds to 0 is left out."""
    ranked = sorted(levels.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{word} {p:.3f}" for word, p in ranked if p >= 0.0005 and math.isfinite(p))
