"""A fake judge server on a real socket, for tests of judges, engine and command line.

It answers from tables of level probabilities (`fake_model`), so each method has a known truth,
and it shows every defect of real servers that a switch turns on (`fake_switches`). It runs in a
thread with a loop of its own: sync tests, async tests and sub-processes can all call it.

    fake = FakeJudge(tables={"good": Table({"4": .6, "5": .4})})
    with fake:
        ...  # fake.base_url, e.g. http://127.0.0.1:40123/v1

Routes: /v1/chat/completions, /v1/completions, /v1/decisions, /v1/systemone, /v1/models,
/v1/messages (Anthropic), /tokenize (vLLM), /api/ps (Ollama), and chat completions at the two
addresses of Azure.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

from aiohttp import web
from fake_model import Step, Story, Table, joined
from fake_switches import Failure, FailureKind, Seen, Switches
from fake_wire import Wire

ASSISTANT = "<|assistant|>"
"""In a raw prompt of /v1/completions: what follows its last occurrence is already said."""

LINE = "1 2 3 4 5 6"
"""Asked to write this line, the model does (or writes a shorter one), whatever its tables say."""

REPEAT = "Repeat these lines exactly, and nothing else:\n"
"""What follows this is repeated."""


class FakeJudge(Switches):
    """The server. Set switches as attributes at any time; `seen` keeps what was asked."""

    def __init__(self, **switches: Any) -> None:
        super().__init__(**switches)
        self.seen: list[Seen] = []
        self.in_flight = self.most_in_flight = 0
        self._failures: list[Failure] = []
        self._draws: Counter[str] = Counter()
        self._stories: dict[Any, Story] = {}
        self._in_cache: set[str] = set()
        self.wire = Wire(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port = 0

    # For tests

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        return f"http://{self.host}/v1"

    def set(self, **switches: Any) -> FakeJudge:
        for name, value in switches.items():
            assert hasattr(self, name), f"no switch {name}"
            setattr(self, name, value)
        return self

    def fail(self, kind: int | FailureKind, **how: Any) -> FakeJudge:
        """Plan a failure (see `Failure`); several come one after the other."""
        self._failures.append(Failure(kind, **how))
        return self

    def heal(self) -> None:
        """Forget planned failures."""
        self._failures.clear()

    def count(self, route: str | None = None) -> int:
        """Requests so far, of one route or of all."""
        return sum(1 for s in self.seen if route is None or s.route == route)

    def bodies(self, route: str = "/v1/chat/completions") -> list[dict[str, Any]]:
        return [s.body for s in self.seen if s.route == route]

    def forget(self) -> None:
        """Start counting anew."""
        self.seen.clear()
        self.most_in_flight = 0

    def table(self, prompt: str) -> Table:
        """The table for a prompt."""
        if LINE in prompt and not self.dull:
            return Table({LINE: 0.9, LINE[:7]: 0.06, LINE[4:]: 0.04})
        if REPEAT in prompt:
            return Table({prompt.partition(REPEAT)[2]: 1.0})
        if callable(self.tables):
            return self.tables(prompt)
        return next((t for key, t in self.tables.items() if key in prompt), self.default)

    # Server

    def __enter__(self) -> FakeJudge:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10), "the fake judge did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 26)
        for route, answer in (
            ("/v1/chat/completions", self._chat),
            ("/v1/completions", self._completions),
            ("/v1/decisions", self._decisions),
            ("/v1/systemone", self._systemone),
            ("/v1/messages", self._messages),
            ("/tokenize", self._tokenize),
        ):
            app.router.add_post(route, self._handler(route, answer))
        for route in ("/openai/v1/chat/completions", "/openai/deployments/{name}/chat/completions"):
            app.router.add_post(route, self._handler(route, self._chat))
        app.router.add_get("/api/ps", self._handler("/api/ps", self._loaded))
        app.router.add_get("/v1/models", self._handler("/v1/models", self._list_models))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
        await site.start()
        self._port = runner.addresses[0][1]
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def _handler(self, route: str, answer: Callable[[dict[str, Any]], web.Response]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            body = json.loads(raw) if raw else {}
            headers = {k.lower(): v for k, v in request.headers.items()}
            self.seen.append(Seen(route, body, headers, request.path_qs))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                if self.latency:
                    await asyncio.sleep(self.latency)
                failed = await self._failed(route, request)
                return failed or self._denied(route, request, body) or answer(body)
            finally:
                self.in_flight -= 1

        return handle

    async def _failed(self, route: str, request: web.Request) -> web.StreamResponse | None:
        plan = next((f for f in self._failures if f.route in (None, route)), None)
        if plan is None:
            return None
        if plan.times is not None:
            plan.times -= 1
            if plan.times <= 0:
                self._failures.remove(plan)
        if plan.kind == "hang":
            await self._stop.wait()
            return web.Response(status=503)
        if plan.kind == "garbage":
            return web.Response(text="<html>It works!</html>", content_type="text/html")
        if plan.kind == "within":
            error = {"message": plan.message, "code": int(plan.code)}
            return web.json_response({"error": error, "user_id": "u"})
        if plan.kind in ("cut", "cut_body"):
            if plan.kind == "cut_body":
                response = web.StreamResponse(headers={"Content-Length": "1000"})
                await response.prepare(request)
                await response.write(b'{"choices": [')
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        headers = dict(plan.headers)
        if plan.retry_after is not None:
            headers["Retry-After"] = plan.retry_after
        assert isinstance(plan.kind, int)
        if route == "/v1/messages":
            kind = plan.code or {429: "rate_limit_error", 529: "overloaded_error"}.get(
                plan.kind, "api_error"
            )
            body = {"type": "error", "error": {"type": kind, "message": plan.message}}
            return web.json_response(body, status=plan.kind, headers=headers)
        return self.wire.error(plan.kind, plan.message, code=plan.code, headers=headers)

    def _denied(
        self, route: str, request: web.Request, body: dict[str, Any]
    ) -> web.Response | None:
        named = (request.headers.get(h) for h in ("x-api-key", "api-key", "Authorization"))
        given = next((value for value in named if value), "")
        if self.key is not None and given.removeprefix("Bearer ") != self.key:
            # Some servers echo the whole key.
            text = f"Incorrect API key provided: {given.removeprefix('Bearer ')}."
            return self.wire.error(401, text, code="invalid_api_key")
        if self.models is not None and body.get("model", "") not in self.models and body:
            text = (
                f"The model `{body.get('model')}` does not exist or you do not have access to it."
            )
            return self.wire.error(404, text, code="model_not_found", param="model")
        for name in [*body, *(["cache_control"] if "'cache_control'" in str(body) else [])]:
            if name in self.refuse:
                return self.wire.refused(name)
        effort = body.get("reasoning_effort")
        if self.efforts is not None and effort is not None and effort not in self.efforts:
            listed = ", ".join(f"'{e}'" for e in self.efforts)
            text = (
                f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this "
                f"model. Supported values are: {listed}."
            )
            return self.wire.error(400, text, code="unsupported_value", param="reasoning_effort")
        return self.wire.over_cap(route, body)

    # Routes

    def _chat(self, body: dict[str, Any]) -> web.Response:
        messages = body["messages"]
        prompt = "\n".join(_plain(m["content"]) for m in messages)
        said = ""
        if messages[-1]["role"] == "assistant":
            flags = body.get("add_generation_prompt") is False and body.get(
                "continue_final_message"
            )
            way = "continue" if flags else "prefix" if messages[-1].get("prefix") else "plain"
            if self.prefill is None:
                text = "Cannot continue a message of the assistant."
                return self.wire.error(400, text, param="messages")
            if way == self.prefill:
                said = _plain(messages[-1]["content"])
                prompt = "\n".join(_plain(m["content"]) for m in messages[:-1])
        if self.refusal in ("message", "content_filter"):
            return web.json_response(self.wire.refusal_reply())
        limit = body.get("max_completion_tokens", body.get("max_tokens", 256))
        thinking = self._thinks(body)
        schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
        if schema and self.schema:
            return self._held(body, prompt, schema)
        if self.cut_off:
            return web.json_response(self.wire.cut_off_reply(limit))
        choices = []
        for number in range(self._n(body)):
            steps, finish = self._generate(body, prompt, number, limit, said, thinking)
            choices.append(self.wire.chat_choice(number, steps, finish, body, thinking))
        return web.json_response(self.wire.reply("chat.completion", choices, prompt))

    def _held(self, body: dict[str, Any], prompt: str, schema: dict[str, Any]) -> web.Response:
        """A chat completion that is held to a schema."""
        choices = []
        limit = body.get("max_completion_tokens", body.get("max_tokens", 256))
        for number in range(self._n(body)):
            cold = body.get("temperature") == 0
            text = self._json(schema, prompt, self._rng(body, prompt, number), cold=cold)
            steps = [Step(token, {token: 1.0}) for token in self.split(text)]
            finish = "stop" if len(steps) <= limit else "length"
            choices.append(self.wire.chat_choice(number, steps[:limit], finish, body, None))
        return web.json_response(self.wire.reply("chat.completion", choices, prompt))

    def _json(self, schema: dict[str, Any], prompt: str, rng: Random, *, cold: bool = False) -> str:
        """An object of this schema: one drawn from the allowed answers, and text for the rest."""
        said: dict[str, Any] = {}
        for name, prop in schema["properties"].items():
            said[name] = self.reason
            if "enum" in prop:
                known = {str(value): value for value in prop["enum"]}
                outcomes = self.table(prompt).outcomes()
                kept = {t.strip(): p for t, p in outcomes.items() if t.strip() in known}
                words = list(kept or known)
                weights = [kept.get(word, 1.0) for word in words]
                drawn = rng.choices(words, weights)[0]
                if cold:
                    drawn = words[weights.index(max(weights))]
                said[name] = known[drawn]
        return json.dumps(said, ensure_ascii=False)

    def _loaded(self, body: dict[str, Any]) -> web.Response:
        """Ollama's list of loaded models."""
        model = {"name": "m", "model": "m", "context_length": self.context or 4096}
        return web.json_response({"models": [model]})

    def _completions(self, body: dict[str, Any]) -> web.Response:
        prompt = body["prompt"]
        head, mark, said = prompt.rpartition(ASSISTANT)
        said = said if mark else ""
        limit = body.get("max_tokens", 16)
        choices = []
        for number in range(self._n(body)):
            steps, finish = self._generate(body, prompt, number, max(limit, 1), said, None)
            choice = self.wire.completion_choice(number, steps[:limit], finish, body)
            if body.get("prompt_logprobs") is not None:
                story = self._story(prompt, None)
                choice["prompt_logprobs"] = self.wire.prompt_logprobs(
                    story, head + mark, said, body["prompt_logprobs"]
                )
            choices.append(choice)
        return web.json_response(self.wire.reply("text_completion", choices, prompt))

    def _tokenize(self, body: dict[str, Any]) -> web.Response:
        ids = [self.wire.token_id(token) for token in self.split(body["prompt"])]
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": 32768})

    def _list_models(self, body: dict[str, Any]) -> web.Response:
        names = sorted(self.models or {self.model})
        return web.json_response(
            {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
        )

    def _decisions(self, body: dict[str, Any]) -> web.Response:
        if not self.decisions:
            return self.wire.error(404, "Not Found")
        asked = body["input"]
        prompt = asked if isinstance(asked, str) else "\n".join(_plain(m["content"]) for m in asked)
        answers: list[dict[str, Any]] = []
        for question in body["questions"]:
            name = question.get("name")
            if self.decision_refuses:
                answers.append({"type": "refusal", "name": name})
                continue
            labels = [level["label"] for level in question["levels"]]
            if not 2 <= len(labels) <= 10:
                return self.wire.error(400, "A score takes 2 to 10 levels.", param="questions")
            probs = self._level_probs(prompt, labels)
            answers.append(
                {
                    "type": "score",
                    "name": name,
                    "score": sum(i * p for i, p in enumerate(probs)),
                    "confidence": max(probs),
                    "probabilities": [
                        {"value": i, "label": label, "probability": p}
                        for i, (label, p) in enumerate(zip(labels, probs, strict=True))
                    ],
                }
            )
        usage = {
            "input_tokens": len(prompt) // 4 + 1,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(prompt) // 4 + 1,
        }
        return web.json_response({"answers": answers, "model": self.model, "usage": usage})

    def _systemone(self, body: dict[str, Any]) -> web.Response:
        if not self.systemone:
            return self.wire.error(404, "File Not Found")
        answers = {}
        for name, question in body["questions"].items():
            criteria = question["criteria"]
            if len(criteria) > 10:
                return self.wire.error(400, "Too many score levels. Must have at most 10 levels.")
            probs = self._level_probs(body["state"], [c.split(":")[0] for c in criteria])
            answers[name] = {
                "type": "score",
                "score": sum(i * p for i, p in enumerate(probs)),
                "legend": {str(i): c for i, c in enumerate(criteria)},
                "probabilities": {str(i): p for i, p in enumerate(probs)},
                "confidence": max(probs),
            }
        usage = {"input_tokens": len(body["state"]) // 4 + 1, "output_tokens": 0}
        return web.json_response({"model": self.model, "answers": answers, "usage": usage})

    def _messages(self, body: dict[str, Any]) -> web.Response:
        """Anthropic: no logprobs, no n, no seed; levels by an integer enum."""
        system = body.get("system", "")
        texts = [_plain(system), *(_plain(m["content"]) for m in body["messages"])]
        prompt = "\n".join(texts)
        if self.refusal == "stop_reason":
            return web.json_response(self.wire.anthropic_reply("", "refusal", prompt))
        if self.cut_off:
            return web.json_response(self.wire.anthropic_reply("", "max_tokens", prompt))
        rng = self._rng(body, prompt, 0)
        schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
        finish = "stop"
        if schema:
            if self.string_enum_only and "'integer'" in str(schema):
                text = "output_config.format.schema: an enum of integers is not supported"
                return self.wire.error(400, text)
            text = self._json(schema, prompt, rng)
            if len(self.split(text)) > body["max_tokens"]:
                text = b"".join(self.split(text)[: body["max_tokens"]]).decode(errors="replace")
                finish = "length"
        else:
            story = self._story(prompt, None)
            steps, finish = story.generate(rng, temperature=1.0, max_tokens=body["max_tokens"])
            text = joined(steps).decode()
        reason = "end_turn" if finish == "stop" else "max_tokens"
        reply = self.wire.anthropic_reply(text, reason, prompt)
        if "'cache_control'" in str(body["messages"]):
            # What comes while the first call is under way finds nothing in the cache.
            used = reply["usage"]
            name = "cache_read" if prompt in self._in_cache else "cache_creation"
            used[f"{name}_input_tokens"], used["input_tokens"] = used["input_tokens"] - 3, 3
            self._in_cache.add(prompt)
        return web.json_response(reply)

    # Answers

    def _level_probs(self, prompt: str, labels: list[str]) -> list[float]:
        outcomes = self.table(prompt).outcomes()
        mass = [sum(p for t, p in outcomes.items() if t.strip() == label) for label in labels]
        total = sum(mass)
        return [m / total for m in mass] if total else [1 / len(labels)] * len(labels)

    def _n(self, body: dict[str, Any]) -> int:
        return 1 if "n" in self.ignore else int(body.get("n") or 1)

    def _thinks(self, body: dict[str, Any]) -> str | None:
        off = {"reasoning_effort": body.get("reasoning_effort") == "none"}
        template = body.get("chat_template_kwargs") or {}
        off["chat_template_kwargs"] = template.get("enable_thinking") is False
        return None if self.thinks_until and off[self.thinks_until] else self.think

    def _generate(
        self,
        body: dict[str, Any],
        prompt: str,
        number: int,
        limit: int,
        said: str,
        thinking: str | None,
    ) -> tuple[list[Step], str]:
        story = self._story(prompt, thinking)
        if said:
            story = story.said(said.encode())
        warmth = 1.0 if "temperature" in self.ignore else body.get("temperature", 1.0)
        return story.generate(
            self._rng(body, prompt, number),
            temperature=warmth,
            max_tokens=limit,
            processed=self.processed,
            end=bool(said),
        )

    def _story(self, prompt: str, thinking: str | None) -> Story:
        table = self.table(prompt)
        before, after = self._around(thinking)
        key = (tuple(table.answers.items()), table.prose, self.split, before, after)
        if key not in self._stories:
            self._stories[key] = Story.tell(table, self.split, before, after)
        return self._stories[key]

    def _around(self, thinking: str | None) -> tuple[str, str]:
        """What stands before and after the answer in each reply."""
        quoted = json.dumps(self.reason, ensure_ascii=False)
        if self.chatty and thinking is None:
            return "I would say that it is a ", ""
        before, after = {
            "score_only": ("", ""),
            "score_first": ("", f"\n{self.reason}"),
            "reason_first": (f"{self.reason}\n{self.label}", ""),
            "json": ('{"score": ', f', "reason": {quoted}}}'),
            "json_pretty": ('{\n  "score":\n    ', f',\n  "reason": {quoted}\n}}'),
            "json_fenced": ('```json\n{"score": ', f', "reason": {quoted}}}\n```'),
        }[self.style]
        if thinking == "block":
            before = f"<think>{self.thought}</think>\n\n{before}"
        elif thinking == "closing":
            before = f"{self.thought}</think>\n\n{before}"
        return before, after

    def _rng(self, body: dict[str, Any], prompt: str, number: int) -> Random:
        seed = None if "seed" in self.ignore else body.get("seed")
        if seed is None:
            seed = f"{self.seed}/{self._draws[prompt]}"
            self._draws[prompt] += 1
        return Random(f"{seed}/{number}/{prompt}")


def _plain(content: Any) -> str:
    """Text of a message content: a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
