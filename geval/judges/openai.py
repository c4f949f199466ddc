"""Judges behind an endpoint that speaks the language of OpenAI: `openai:MODEL` and its presets.

Methods: `exact` where a begun reply is continued, `decision` where such a route answers,
`logprobs` where alternatives are given, `samples`, `single`. What the endpoint can do is found by
a tiny probe (`methods`), which is kept for some days, and by its refusals (`geval.judges.adapt`).
Nothing is retried here except a call whose parameter was refused: retries, limits and deadlines
of rows belong to the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from geval.errors import ConfigError, FatalError, JudgeError, RejectedError, TransientError
from geval.judges.adapt import Abilities
from geval.judges.base import Method, Reply, Request, shown_model
from geval.judges.chat import read_choices, read_usage
from geval.judges.decision import ROUTES, decision_body, decision_reply, levels_of
from geval.judges.endpoint import Endpoint
from geval.judges.exact import continued
from geval.judges.kept import DAYS, HOUR, Kept
from geval.judges.levels import unwrap, wants_levels
from geval.judges.openai_probe import find_methods
from geval.judges.transport import Refused, Transport
from geval.notes import told

OPTIONS = (
    "base_url", "api_key", "api_key_env", "timeout", "concurrency", "seed", "reasoning", "extra",
)  # fmt: skip
_ORDER: tuple[Method, ...] = ("exact", "decision", "logprobs", "samples", "single")
_STEPS = 10  # more parameters than can be refused one after the other


class OpenAIJudge:
    """A chat model of OpenAI or of a server that speaks its language.

    `model` may be "" where the server serves one and names it. `timeout` is in seconds per
    attempt, `concurrency` the calls in flight, `seed` the start of the seeds of samples.
    `reasoning` is the effort asked for ("none", "low", ..., "" to leave it to the endpoint),
    `extra` are parameters put into each body as they are. For `sampling`, `prefills` and `cuts`
    see `geval.judges.presets`. `abilities` may hold what is known already.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        name: str = "openai",
        spec: str | None = None,
        timeout: float = 120.0,
        concurrency: int = 16,
        seed: int = 0,
        reasoning: str = "none",
        extra: Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        prefills: tuple[str, ...] = (),
        cuts: bool = False,
        abilities: Abilities | None = None,
    ) -> None:
        if timeout <= 0 or concurrency < 1:
            raise ConfigError("timeout and concurrency of a judge must be positive")
        self.name, self.spec = name, spec or f"{name}:{model}"
        self.model, self.endpoint = model, endpoint
        self.concurrency, self.seed, self.prefills, self.cuts = concurrency, seed, prefills, cuts
        self.extra, self.reasoning = dict(extra or {}), reasoning
        # A provider's own default is 1; servers put into it what the model's author likes.
        plain = {} if endpoint.official else {"temperature": 1.0, "top_p": 1.0}
        self.sampling = {**plain, **(sampling or {})}
        self._given = abilities
        self.abilities = abilities or self._unknown()
        self.revision = ""
        self.where = f"{self.spec} at {endpoint.host}"
        self.transport = Transport(
            "openai", endpoint, self.where, timeout=timeout, concurrency=concurrency
        )
        self._probing = asyncio.Lock()
        self._kept: Kept | None = None
        self._notes: list[str] = []

    # Judge protocol

    async def methods(self) -> tuple[Method, ...]:
        """What the endpoint can do, by a probe whose result is kept.

        Raises FatalError where no call can pass, TransientError where the probe did not get
        through (asking again probes again).
        """
        async with self._probing:
            await self._find_model()
            if self.abilities.methods is None and (held := self._keep().load()):
                self.abilities = Abilities.from_dict(held)
            if self.abilities.methods is None:
                self.abilities.methods = await find_methods(self)
                await self._find_context()
                self._keep().save(self.abilities.to_dict())
        return tuple(m for m in _ORDER if m in (self.abilities.methods or ()))

    async def complete(self, request: Request) -> Reply:
        """Answer, or raise a JudgeError."""
        if (request.prefill or request.method == "exact") and not self.abilities.prefill:
            raise RejectedError(
                "this endpoint cannot continue a reply that is already begun",
                where=self.where,
                hint="Take the method logprobs or samples, or the local judge for exact.",
                param="prefill",
            )
        if not self.model:
            async with self._probing:
                await self._find_model()
        before = self.abilities.to_dict()
        try:
            reply = await (
                self.decide(request) if request.method == "decision" else self.chat(request)
            )
        finally:
            self._learned(before)
        self.revision = reply.model or self.revision
        if self.cuts:
            self._check_whole(request, reply)
        notes, self._notes = tuple(self._notes), []
        return replace(reply, notes=notes) if notes else reply

    def identity(self) -> dict[str, Any]:
        """What produced the numbers. `revision` is known after the first reply."""
        own = {"extra": self.extra, "reasoning": self.reasoning, "seed": self.seed}
        usual = {"extra": {}, "reasoning": "none", "seed": 0}
        return {
            "judge": self.name,
            "model": shown_model(self.model),
            "endpoint": self.endpoint.host,
            "address": self.endpoint.address,
            "revision": shown_model(self.revision),
            **{k: v for k, v in own.items() if v != usual[k]},
        }

    def forget(self) -> None:
        """Probe anew at the next `methods`."""
        self.abilities = self._given or self._unknown()
        if self.model:
            self._keep().forget()

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()

    # Calls

    async def chat(self, request: Request) -> Reply:
        """A chat completion, without the parameters that turn out to be refused."""
        for _ in range(_STEPS):
            body = self._body(request)
            try:
                data = await self.transport.post("chat/completions", body)
            except Refused as refused:
                told = self.abilities.learn(refused.error, body)
                if told is None or self._body(request) == body:
                    raise refused.final from None
                self.tell(told)
                continue
            return self._reply(data, body, request)
        raise RejectedError("the endpoint refuses one parameter after the other", where=self.where)

    def _body(self, request: Request) -> dict[str, Any]:
        own = self.endpoint.official and request.call.template
        return self.abilities.body(
            self.model,
            request,
            seed=self.seed,
            sampling=self.sampling,
            extra=self.extra,
            beginning=f"geval-{own}" if own else "",
        )

    def _reply(self, data: Mapping[str, Any], body: Mapping[str, Any], request: Request) -> Reply:
        choices = read_choices(data)
        if not choices:
            raise TransientError(f"{self.where}: the reply holds no choices")
        if body.get("n", 1) > 1 and len(choices) == 1 and not self.abilities.one_choice:
            self.abilities.one_choice = True
            self.tell(["the endpoint ignores n: each sample is a call of its own"])
        if "response_format" in body and request.scale is not None and wants_levels(request):
            choices = tuple(replace(c, text=unwrap(c.text, request.scale)) for c in choices)
        reply = Reply(choices, read_usage(data), str(data.get("model") or ""))
        return continued(reply, request) if request.method == "exact" else reply

    async def decide(self, request: Request) -> Reply:
        """A decision, by the route that answers."""
        scale = levels_of(request, self.where)
        known = self.abilities.decision_route
        refusals = []
        for route in (known,) if known else ROUTES:
            body = decision_body(route, self.model, request, scale)
            try:
                data = await self.transport.post(route, body)
            except Refused as refused:
                if known:
                    raise refused.final from None
                refusals.append(refused.final.what)
                continue
            except (FatalError, RejectedError) as error:
                if known or error.status in (401, 403, 402, 429):
                    raise
                continue
            reply = decision_reply(data, scale, self.where)
            self.abilities.decision_route = route
            return reply
        raise RejectedError(
            "; ".join(["the endpoint has no decision route for this model", *refusals]),
            where=self.where,
            hint="Take the method logprobs or samples.",
        )

    def tell(self, notes: list[str]) -> None:
        """Keep what the user should know for the next reply."""
        self._notes.extend(told("at", place=self.where, text=note) for note in notes)

    # What is known of the endpoint

    def _unknown(self) -> Abilities:
        budget = "max_completion_tokens" if self.endpoint.official else "max_tokens"
        return Abilities(budget=budget, effort=self.reasoning)

    def _keep(self) -> Kept:
        if self._kept is None:
            what = {
                "judge": self.name,
                "endpoint": self.endpoint.base_url,
                "model": self.model,
                "key": self.endpoint.key_name,
                "options": {"extra": self.extra, "reasoning": self.reasoning},
            }
            self._kept = Kept(what, HOUR if self.endpoint.loopback else DAYS)
        return self._kept

    def _learned(self, before: Mapping[str, Any]) -> None:
        """Keep what a call has taught; what contradicts a method is found anew next time."""
        known = self.abilities
        if known.methods is None or known.to_dict() == before:
            return
        if "logprobs" in known.refused and {"logprobs", "exact"} & set(known.methods):
            known.methods = tuple(m for m in known.methods if m not in ("logprobs", "exact"))
            self._keep().forget()
        else:
            self._keep().save(known.to_dict())

    async def _find_model(self) -> None:
        """The model that a server of one model serves."""
        if self.model:
            return
        try:
            listed = (await self.transport.get("models")).get("data")
        except Refused as refused:
            raise refused.final from None
        names = [str(m["id"]) for m in listed or () if isinstance(m, Mapping) and m.get("id")]
        if len(names) != 1:
            raise FatalError(
                f"the server serves {len(names)} models: {', '.join(names[:10]) or 'none'}",
                where=self.where,
                hint=f"Name one: --judge openai:MODEL --base-url {self.endpoint.base_url}",
            )
        self.model = names[0]

    # Prompts that were cut

    async def _find_context(self) -> None:
        """The context that the server holds a model with, where it tells (Ollama)."""
        if not self.cuts:
            return
        parts = urlsplit(self.endpoint.base_url)
        try:
            listed = await self.transport.get(f"{parts.scheme}://{parts.netloc}/api/ps")
        except (Refused, JudgeError):
            return
        own = self.model.removesuffix(":latest")
        for model in listed.get("models") or ():
            if isinstance(model, Mapping) and str(model.get("name")).removesuffix(":latest") == own:
                self.abilities.context = int(model.get("context_length") or 0)

    def _check_whole(self, request: Request, reply: Reply) -> None:
        """Refuse a reply to a prompt that the server has cut to its context without a word."""
        text = request.prefill.join(message["content"] for message in request.messages)
        used, context = reply.usage.prompt / max(1, reply.usage.calls), self.abilities.context
        # A cut prompt fills the context, or has fewer tokens than any tokenizer makes of its text.
        full = bool(context) and used >= context - 8
        if used and (full or used < fewest_tokens(text)):
            self._keep().forget()  # the user may let the server hold more now
            held = f" of {context} tokens" if context else ""
            raise RejectedError(
                f"the server has cut the prompt to its context{held}: it read {used:.0f} tokens of "
                f"{len(text):,} characters",
                where=self.where,
                hint="Let it hold more (Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx of the model).",
                param="messages",
            )


def fewest_tokens(text: str) -> float:
    """A low guess at the tokens of `text`: 8 Latin letters or 4 others each, blanks aside."""
    text = "".join(text.split())
    other = sum(1 for c in text if ord(c) > 0x2FF)
    return (len(text) - other) / 8 + other / 4
