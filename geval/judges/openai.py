"""Judges behind an OpenAI-compatible endpoint: `openai:MODEL`.

Methods: `decision` where such a route answers, `logprobs` where alternatives are given,
`samples`, `single`. What the endpoint can do is found by one tiny probe (`methods`) and by its
refusals (`geval.judges.adapt`). Nothing is retried here except a call whose parameter was
refused: retries, limits and deadlines of rows belong to the engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from geval.errors import (
    ConfigError,
    FatalError,
    JudgeError,
    RejectedError,
    TransientError,
    nearest,
)
from geval.judges.adapt import Abilities
from geval.judges.base import Method, Reply, Request
from geval.judges.chat import read_choices, read_usage
from geval.judges.decision import ROUTES, decision_body, decision_reply, levels_of
from geval.judges.endpoint import Endpoint, openai_endpoint
from geval.judges.failures import ServerError, http_error, read_error
from geval.judges.openai_client import open_client
from geval.judges.openai_probe import find_methods
from geval.judges.records import dumps

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPTIONS = (
    "base_url", "api_key", "api_key_env", "timeout", "concurrency", "seed", "reasoning", "extra",
)  # fmt: skip
_STEPS = 10  # more parameters than can be refused one after the other


class OpenAIJudge:
    """A chat model of OpenAI or of a server that speaks its language.

    `timeout` is in seconds per attempt, `concurrency` the calls in flight, `seed` the start of
    the seeds of samples. `reasoning` is the effort asked for ("none", "low", ..., "" to leave
    it to the endpoint), `extra` are parameters put into each body as they are. `abilities` may
    hold what an earlier probe has found.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        timeout: float = 120.0,
        concurrency: int = 16,
        seed: int = 0,
        reasoning: str = "none",
        extra: Mapping[str, Any] | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self.spec = f"openai:{model}"
        self.model, self.endpoint = model, endpoint
        self.timeout, self.concurrency, self.seed = timeout, concurrency, seed
        self.extra = dict(extra or {})
        budget = "max_completion_tokens" if endpoint.official else "max_tokens"
        self.abilities = abilities or Abilities(budget=budget, effort=reasoning)
        self.revision = ""
        self._where = f"{self.spec} at {endpoint.host}"
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probing = asyncio.Lock()
        self._notes: list[str] = []
        self._answered = False

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
        seed: int = 0,
        reasoning: str = "none",
        extra: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> OpenAIJudge:
        """The judge `openai:ARGUMENT`. Raises ConfigError for a model, key or option amiss."""
        if unknown:
            name = next(iter(unknown))
            raise ConfigError(
                f"the judge openai has no option {name!r}", hint=nearest(name, OPTIONS)
            )
        if not argument.strip():
            raise ConfigError("the judge openai needs a model", hint="Write openai:MODEL.")
        if timeout <= 0 or concurrency < 1:
            raise ConfigError("timeout and concurrency of a judge must be positive")
        endpoint = openai_endpoint(base_url, api_key=api_key, api_key_env=api_key_env)
        return cls(
            argument.strip(),
            endpoint,
            timeout=timeout,
            concurrency=concurrency,
            seed=seed,
            reasoning=reasoning,
            extra=extra,
        )

    # Judge protocol

    async def methods(self) -> tuple[Method, ...]:
        """What the endpoint can do, by a probe whose result is kept.

        Raises FatalError where no call can pass, TransientError where the probe did not get
        through (asking again probes again).
        """
        async with self._probing:
            if self.abilities.methods is None:
                self.abilities.methods = await find_methods(self)
        return tuple(m for m in _ORDER if m in self.abilities.methods)

    async def complete(self, request: Request) -> Reply:
        """Answer, or raise a JudgeError."""
        if request.prefill:
            raise RejectedError(
                "this endpoint cannot continue a reply that is already begun",
                where=self._where,
                hint="Take the method logprobs or samples, or the local judge for exact.",
                param="prefill",
            )
        if request.method == "exact":
            raise RejectedError(
                "chat completions cannot give exact probabilities",
                where=self._where,
                hint="Take the method logprobs, or the local judge.",
            )
        if request.method == "decision":
            reply = await self.decide(request)
        else:
            reply = await self.chat(request)
        self.revision = reply.model or self.revision
        notes, self._notes = tuple(self._notes), []
        return replace(reply, notes=notes) if notes else reply

    def identity(self) -> dict[str, Any]:
        """What produced the numbers. `revision` is known after the first reply."""
        return {
            "judge": "openai",
            "model": self.model,
            "endpoint": self.endpoint.host,
            "revision": self.revision,
        }

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # Calls

    async def chat(self, request: Request) -> Reply:
        """A chat completion, without the parameters that turn out to be refused."""
        for _ in range(_STEPS):
            body = self.abilities.body(self.model, request, seed=self.seed, extra=self.extra)
            try:
                data = await self._post("chat/completions", body)
            except _Refused as refused:
                told = self.abilities.learn(refused.error, body)
                changed = self.abilities.body(self.model, request, seed=self.seed, extra=self.extra)
                if told is None or changed == body:
                    raise refused.final from None
                self.tell(told)
                continue
            return self._reply(data, body)
        raise RejectedError("the endpoint refuses one parameter after the other", where=self._where)

    def _reply(self, data: Mapping[str, Any], body: Mapping[str, Any]) -> Reply:
        choices = read_choices(data)
        if not choices:
            raise TransientError(f"{self._where}: the reply holds no choices")
        if body.get("n", 1) > 1 and len(choices) == 1 and not self.abilities.one_choice:
            self.abilities.one_choice = True
            self.tell(["the endpoint ignores n: each sample is a call of its own"])
        return Reply(choices, read_usage(data), str(data.get("model") or ""))

    async def decide(self, request: Request) -> Reply:
        """A decision, by the route that answers."""
        scale = levels_of(request, self._where)
        known = self.abilities.decision_route
        refusals = []
        for route in (known,) if known else ROUTES:
            try:
                data = await self._post(route, decision_body(route, self.model, request, scale))
            except _Refused as refused:
                if known:
                    raise refused.final from None
                refusals.append(refused.final.what)
                continue
            except (FatalError, RejectedError) as error:
                if known or error.status in (401, 403, 402, 429):
                    raise
                continue
            reply = decision_reply(data, scale, self._where)
            self.abilities.decision_route = route
            return reply
        raise RejectedError(
            "; ".join(["the endpoint has no decision route for this model", *refusals]),
            where=self._where,
            hint="Take the method logprobs or samples.",
        )

    async def _post(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One HTTP call: the decoded object, or a JudgeError (or `_Refused`)."""
        import httpx2
        import openai

        client = self._open()
        try:
            # The SDK's own time-out is per read: a server that drips would hold the row for ever.
            async with asyncio.timeout(self.timeout):
                response = await client.post(
                    f"/{route}", cast_to=httpx2.Response, content=dumps(body).encode()
                )
        except openai.APIStatusError as error:
            raise self._failure(
                error.status_code, error.body, error.response.headers, route
            ) from None
        except (openai.APIConnectionError, TimeoutError) as error:
            raise self._unreached(error) from None
        self._answered = True
        try:
            data = json.loads(response.content)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise TransientError(
                f"{self._where}: answered {response.status_code} with something else than JSON. "
                "If it stays so, check the base URL: most servers want it to end in /v1."
            )
        if data.get("error") and not data.get("choices"):
            # Routers answer 200 and put the failure of the provider behind them into the body.
            raise self._failure(_status_within(data["error"]), data, response.headers, route)
        return data

    def _failure(
        self, status: int, body: object, headers: Mapping[str, str], route: str
    ) -> JudgeError | _Refused:
        self._answered = True
        error = read_error(body)
        error = replace(error, message=self.endpoint.redact(error.message))
        final = http_error(
            status,
            error,
            headers,
            where=self._where,
            key_name=self.endpoint.key_name if self.endpoint.key else "",
            route=f"/{route}",
        )
        return _Refused(error, final) if isinstance(final, RejectedError) else final

    def _unreached(self, error: Exception) -> JudgeError:
        import aiohttp

        cause = error.__cause__.__cause__ if error.__cause__ else None
        reason = self.endpoint.redact(str(cause or error.__cause__ or ""))
        if isinstance(cause, aiohttp.ClientConnectorError) and not self._answered:
            # Never reached before: a wrong address or a server that is not running.
            return FatalError(
                f"cannot connect: {reason}",
                where=self._where,
                hint="Check the base URL and that the server runs.",
            )
        if cause is None and isinstance(error, TimeoutError):
            return TransientError(f"{self._where}: no answer within {self.timeout:g} s")
        return TransientError(
            f"{self._where}: the connection failed" + (f": {reason}" if reason else "")
        )

    def tell(self, notes: list[str]) -> None:
        """Keep what the user should know for the next reply."""
        self._notes.extend(f"{self._where}: {note}" for note in notes)

    # Client

    def _open(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = (
                open_client(self.endpoint, timeout=self.timeout, concurrency=self.concurrency),
                loop,
            )
        return self._client


_ORDER: tuple[Method, ...] = ("decision", "logprobs", "samples", "single")


class _Refused(Exception):
    """A refused request: perhaps one parameter less will do. `final` is what it is otherwise."""

    def __init__(self, error: ServerError, final: JudgeError) -> None:
        super().__init__(str(final))
        self.error, self.final = error, final


def _status_within(error: object) -> int:
    """The HTTP status that a body reports beside a 200; 502 where it names none."""
    code = error.get("code") if isinstance(error, Mapping) else None
    try:
        status = int(code) if code is not None else 502
    except (TypeError, ValueError):
        return 502
    return status if 400 <= status < 600 else 502
