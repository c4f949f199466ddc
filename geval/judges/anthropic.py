"""Judges of Anthropic: `anthropic:MODEL` (`anthropic` alone takes the small model).

There are no probabilities to be had, so the methods are `samples` and `single`: independent calls
whose answer is held to the levels by a schema. A prompt that is long enough is put into the
provider's cache by its first call; the other samples of the prompt wait for that call, so that
they find it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from geval.errors import ConfigError, RejectedError, TransientError, nearest
from geval.judges.base import (
    Choice,
    Message,
    Method,
    Reply,
    Request,
    Usage,
    prompt_sha256,
)
from geval.judges.endpoint import ANTHROPIC, Endpoint, find_endpoint
from geval.judges.failures import ServerError, refused_parameters
from geval.judges.first import FirstAlone
from geval.judges.kept import DAYS, HOUR, Kept
from geval.judges.levels import Form, level_schema, unwrap, wants_levels
from geval.judges.transport import Refused, Transport
from geval.notes import told as note_at
from geval.scale import Scale

DEFAULT_MODEL = "claude-haiku-5-5"
OPTIONS = ("base_url", "api_key", "api_key_env", "timeout", "concurrency", "extra")

LONG = 1024
"""Tokens (guessed) from which a prompt is put into the cache; shorter ones are never kept there."""

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_SCHEMA_ROOM = 32  # tokens of braces and keys
_THINKING_ROOM = 2048  # where thinking cannot be switched off
_STEPS = 6
_PROMPT: tuple[Message, ...] = (
    {"role": "user", "content": "Answer with the digit 1 and nothing else."},
)
_TOLD = {
    "thinking": "the model does not take thinking off: it may think before it answers",
    "output_config": "the endpoint takes no output schema: the levels are asked for in words",
    "cache_control": "the endpoint takes no cache_control: each sample pays for its whole prompt",
}


@dataclass
class Known:
    """What is known of one endpoint and model: refused parameters, and the form of the schema."""

    refused: set[str] = field(default_factory=set)
    form: Form = "integer"
    probed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "refused": sorted(self.refused)}


class AnthropicJudge:
    """A model behind the messages API.

    `timeout` is in seconds per call, `concurrency` the calls in flight, `extra` are parameters put
    into each body as they are.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        timeout: float = 120.0,
        concurrency: int = 16,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if timeout <= 0 or concurrency < 1:
            raise ConfigError("timeout and concurrency of a judge must be positive")
        self.spec = f"anthropic:{model}"
        self.model, self.endpoint, self.concurrency = model, endpoint, concurrency
        self.extra = dict(extra or {})
        self.known = Known()
        self.revision = ""
        self.where = f"{self.spec} at {endpoint.host}"
        self.transport = Transport(
            "anthropic", endpoint, self.where, timeout=timeout, concurrency=concurrency
        )
        self._notes: list[str] = []
        self._probing = asyncio.Lock()
        self._first = FirstAlone()
        what = {
            "judge": "anthropic",
            "endpoint": endpoint.base_url,
            "model": model,
            "key": endpoint.key_name,
            "options": {"extra": self.extra},
        }
        self._kept = Kept(what, HOUR if endpoint.loopback else DAYS)

    @classmethod
    def from_spec(
        cls,
        argument: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        timeout: float = 120.0,
        concurrency: int = 16,
        extra: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> AnthropicJudge:
        """The judge `anthropic:ARGUMENT`. Raises ConfigError for a key or option amiss."""
        if unknown:
            name = next(iter(unknown))
            raise ConfigError(
                f"the judge anthropic has no option {name!r}", hint=nearest(name, OPTIONS)
            )
        endpoint = find_endpoint(ANTHROPIC, base_url, api_key=api_key, api_key_env=api_key_env)
        # The SDK puts /v1 in front of each route itself.
        endpoint = replace(endpoint, base_url=endpoint.base_url.removesuffix("/v1"))
        return cls(
            argument.strip() or DEFAULT_MODEL,
            endpoint,
            timeout=timeout,
            concurrency=concurrency,
            extra=extra,
        )

    # Judge protocol

    async def methods(self) -> tuple[Method, ...]:
        """`samples` and `single`, once a tiny call has shown that key and model are good.

        Raises FatalError where no call can pass, TransientError where it did not get through.
        """
        async with self._probing:
            held = None if self.known.probed else self._kept.load()
            if held is not None:
                self.known = Known(set(held["refused"]), held["form"], True)
            if not self.known.probed:
                await self._sample(Request(_PROMPT, "single", 16, scale=Scale.of(1, 2)))
                self.known.probed = True
                self._kept.save(self.known.to_dict())
        return ("samples", "single")

    async def complete(self, request: Request) -> Reply:
        """Answer with `n` independent calls, or fewer choices where some did not get through.

        Raises a JudgeError where none did, or where one was refused for good.
        """
        if request.method not in ("samples", "single") or request.prefill:
            raise RejectedError(
                "this endpoint tells no probabilities and continues no reply",
                where=self.where,
                hint="Take the method samples.",
                param="prefill" if request.prefill else None,
            )
        results = await asyncio.gather(
            *(self._sample(request) for _ in range(max(1, request.n))), return_exceptions=True
        )
        replies = [r for r in results if isinstance(r, Reply)]
        for error in results:
            # What was paid is kept: the caller counts the choices and asks for the rest.
            if isinstance(error, BaseException) and (
                not replies or not isinstance(error, TransientError)
            ):
                raise error
        usage = sum((r.usage for r in replies), Usage())
        self.revision = replies[0].model or self.revision
        notes, self._notes = tuple(self._notes), []
        choices = tuple(choice for r in replies for choice in r.choices)
        return Reply(choices, usage, replies[0].model, notes=notes)

    def identity(self) -> dict[str, Any]:
        """What produced the numbers. `revision` is known after the first reply."""
        return {
            "judge": "anthropic",
            "model": self.model,
            "endpoint": self.endpoint.host,
            "address": self.endpoint.address,
            "revision": self.revision,
            **({"extra": self.extra} if self.extra else {}),
        }

    def forget(self) -> None:
        """Probe anew at the next `methods`."""
        self.known = Known()
        self._kept.forget()

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()

    # Calls

    async def _sample(self, request: Request) -> Reply:
        """One call, without the parameters that turn out to be refused."""
        for _ in range(_STEPS):
            body = self._body(request)
            try:
                data = await self._post(body, request)
            except Refused as refused:
                told = self._learn(refused.error, body)
                if told is None or self._body(request) == body:
                    raise refused.final from None
                self._notes += [note_at("at", place=self.where, text=note) for note in told]
                if self.known.probed:
                    self._kept.save(self.known.to_dict())
                continue
            return self._reply(data, request, "output_config" in body)
        raise RejectedError("the endpoint refuses one parameter after the other", where=self.where)

    async def _post(self, body: Mapping[str, Any], request: Request) -> dict[str, Any]:
        """The call; the first one of a prompt that is to be cached goes alone."""

        async def post() -> dict[str, Any]:
            return await self.transport.post("v1/messages", body)

        if self._cached(request):
            return await self._first.call(prompt_sha256(_shared(request)), post)
        return await post()

    def _cached(self, request: Request) -> bool:
        """Whether the prompt is worth its place in the cache: writing it costs a quarter more."""
        shared = _shared(request)
        if "cache_control" in self.known.refused or _guessed_tokens(shared) < LONG:
            return False
        return request.method == "samples" or prompt_sha256(shared) in self._first

    def _body(self, request: Request) -> dict[str, Any]:
        system = "\n\n".join(m["content"] for m in request.messages if m["role"] == "system")
        turns = [m for m in request.messages if m["role"] != "system"]
        messages: list[dict[str, Any]] = [
            {"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in turns
        ]
        if self._cached(request):
            # Up to the end of the question: a reason that is asked for later finds it, too.
            asked = len([m for m in _shared(request) if m["role"] != "system"])
            messages[asked - 1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": messages,
        }
        if system:
            body["system"] = system
        if "thinking" in self.known.refused:
            body["max_tokens"] += _THINKING_ROOM
        else:
            body["thinking"] = {"type": "disabled"}
        if wants_levels(request) and "output_config" not in self.known.refused:
            schema = level_schema(request, self.known.form)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
            body["max_tokens"] += _SCHEMA_ROOM
        return {**body, **self.extra}

    def _learn(self, error: ServerError, body: Mapping[str, Any]) -> list[str] | None:
        """Take a refusal to heart: what to tell, or None where nothing can be changed."""
        sent = {name for name in ("thinking", "output_config") if name in body}
        if "cache_control" in str(body["messages"]):
            sent.add("cache_control")
        # The field is named by its path: "output_config.format.schema: ...".
        names = refused_parameters(error, sent)
        if not names:
            return None
        name = names[0]
        schema = str((body.get("output_config") or {}).get("format"))
        if name == "output_config" and self.known.form == "integer" and "'integer'" in schema:
            self.known.form = "string"
            return []
        if name in self.known.refused:
            return []
        self.known.refused.add(name)
        return [_TOLD[name]]

    def _reply(self, data: Mapping[str, Any], request: Request, held: bool) -> Reply:
        finish = str(data.get("stop_reason") or "stop")
        blocks = [b for b in data.get("content") or () if isinstance(b, Mapping)]
        text = "".join(str(b.get("text") or "") for b in blocks if b.get("type") == "text")
        thought = "".join(str(b.get("thinking") or "") for b in blocks)
        if held and request.scale is not None:
            text = unwrap(text, request.scale)
        choice = Choice(text, finish=_FINISH.get(finish, finish), reasoning=thought)
        return Reply((choice,), _usage(data.get("usage")), str(data.get("model") or ""))


def _shared(request: Request) -> tuple[Message, ...]:
    """The messages up to the first answer: the same for all samples and for the reason."""
    roles = [message["role"] for message in request.messages]
    end = roles.index("assistant") if "assistant" in roles else len(roles)
    return request.messages[:end]


def _guessed_tokens(messages: tuple[Message, ...]) -> int:
    text = "".join(message["content"] for message in messages)
    other = sum(1 for c in text if ord(c) > 0x2FF)
    return (len(text) - other) // 4 + other


def _usage(raw: object) -> Usage:
    """Tokens of one call. `input_tokens` are only those that have nothing to do with the cache."""
    usage = raw if isinstance(raw, Mapping) else {}

    def count(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) else 0

    cached = count("cache_read_input_tokens")
    prompt = count("input_tokens") + count("cache_creation_input_tokens") + cached
    return Usage(calls=1, prompt=prompt, completion=count("output_tokens"), cached=cached)
