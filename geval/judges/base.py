"""What a judge is: something that answers prompts.

A judge only transports: it turns a `Request` into a `Reply`. How a score is read from the reply
is `geval.distribution`; when to ask again is `geval.scoring`; how many at once, retries and
limits are `geval.engine`. So a new provider is one short file and a line in `JUDGES`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

from geval.errors import ConfigError, nearest
from geval.scale import Scale

Method = Literal["decision", "exact", "logprobs", "samples", "single"]
METHODS: tuple[Method, ...] = ("decision", "exact", "logprobs", "samples", "single")


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have stood at a position.

    `text` is the token's bytes as UTF-8; half a character is kept as lone surrogates
    (`errors="surrogateescape"`), so that joined tokens encode back to the exact bytes.
    `logprob` is the natural logarithm of its probability; -inf, NaN and -9999 mean unknown.
    """

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token and what else could have stood there (empty = not told)."""

    text: str
    logprob: float
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of the judge.

    `tokens` is None where the server gave none. `offset` is the character of `text` at which
    `tokens[0]` begins (recorded replies keep the tokens of the answer only).
    `finish` is the server's reason to stop: stop, length, refusal, content_filter, ...
    """

    text: str
    tokens: tuple[Token, ...] | None = None
    offset: int = 0
    finish: str = "stop"
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls. `cached` of the prompt tokens were not evaluated anew."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
        )

    def to_dict(self) -> dict[str, int]:
        """Plain numbers for a result line."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "cached_tokens": self.cached,
        }


@dataclass(frozen=True, slots=True)
class Call:
    """Which question a request belongs to: for records and messages, never for a cache key.

    `template` is the template's fingerprint: its prompts begin alike, which a provider that keeps
    beginnings likes to know.
    """

    id: str = ""
    criterion: str = ""
    unit: int | None = None
    repeat: int = 0
    purpose: str = "score"
    template: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a judge.

    `prefill` is assistant text that is already said: the reply continues it (its own text does
    not repeat it). `alternatives` is how many candidates per position are wanted, 0 for none.
    `temperature` None leaves it to the judge: samples from the model's own distribution where
    that can be had, else the provider's default. `index` numbers independent samples of one
    prompt. `scale` lets a judge constrain or enumerate the levels.
    """

    messages: tuple[Message, ...]
    method: Method
    max_tokens: int
    alternatives: int = 0
    temperature: float | None = 0.0
    n: int = 1
    index: int = 0
    prefill: str = ""
    scale: Scale | None = None
    call: Call = field(default_factory=Call)

    @property
    def prompt_sha256(self) -> str:
        """Hash of the messages: the name of the prompt in results and recorded replies."""
        return prompt_sha256(self.messages)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge returned for one `Request`.

    `level_probs` is set by the `decision` method alone: a probability per level, lowest first.
    `model` is the model revision the server named. `notes` are things the user should know
    once (a parameter that was dropped, a limit that was learned), `warnings` what each result
    that rests on this reply must carry.
    """

    choices: tuple[Choice, ...]
    usage: Usage
    model: str = ""
    level_probs: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Judge(Protocol):
    """Something that answers prompts; one instance serves one run."""

    spec: str
    concurrency: int

    async def methods(self) -> tuple[Method, ...]:
        """The methods this judge can serve, in the order `auto` tries them."""
        ...

    async def complete(self, request: Request) -> Reply:
        """Answer, or raise a `JudgeError`."""
        ...

    def identity(self) -> dict[str, Any]:
        """What produced the numbers: model, file hash or endpoint host, revision."""
        ...

    async def aclose(self) -> None:
        """Release connections and memory."""
        ...


def shown_model(model: str) -> str:
    """A model's name; of a file (llama.cpp names its path) the last part."""
    return re.split(r"[\\/]", model)[-1] if model.endswith(".gguf") else model


def prompt_sha256(messages: tuple[Message, ...]) -> str:
    """sha256 of the messages as canonical UTF-8 JSON, hexadecimal."""
    canonical = json.dumps(
        list(messages), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


JUDGES: Mapping[str, str] = {
    "anthropic": "geval.judges.anthropic:AnthropicJudge",
    "azure": "geval.judges.presets:AZURE_PRESET",
    "llamacpp": "geval.judges.presets:LLAMACPP",
    "local": "geval.judges.local:LocalJudge",
    "ollama": "geval.judges.presets:OLLAMA",
    "openai": "geval.judges.presets:OPENAI_PRESET",
    "vllm": "geval.judges.presets:VLLM",
    "replay": "geval.judges.replay:ReplayJudge",
}


def open_judge(spec: str, **options: Any) -> Judge:
    """The judge named by `spec`: `NAME` or `NAME:ARGUMENT`.

    Raises ConfigError for an unknown name, a missing extra, key or file.
    """
    name, _, argument = spec.partition(":")
    if name not in JUDGES:
        raise ConfigError(f"unknown judge {spec!r}", hint=nearest(name, JUDGES))
    module, _, attribute = JUDGES[name].partition(":")
    opener = getattr(importlib.import_module(module), attribute)
    judge: Judge = opener.from_spec(argument, **options)
    return judge
