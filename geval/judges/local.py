"""The judge `local`: a GGUF model inside this process, run by llama.cpp; it calls nobody.

One worker thread loads the model at the first call and serves one request after the other (two
threads in one model crash it). A reply is a function of its prompt, seed, model and machine, and
not of what was asked before: see `_evaluate`.

The engine holds Python's lock while it loads a model (a second or two); at all other times the
event loop runs on.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from geval.errors import ConfigError, FatalError, RejectedError
from geval.judges.base import Choice, Message, Method, Reply, Request, Usage
from geval.judges.gguf import Header, read_header
from geval.judges.llama import UBATCH, check_memory, open_server
from geval.judges.llama_answer import (
    TooLong,
    refusal,
    to_choice,
    to_usage,
    told,
    with_likeliest,
)
from geval.judges.weights import WeightFile, check_file, weight_file

CONTEXT = 8192
"""Tokens of prompt and reply together, unless the option or GEVAL_CONTEXT says otherwise."""

_T = TypeVar("_T")
_TOGETHER = 8  # tokens from which on the engine's batched kernels are used
_CUTS = (16, 64, 256)  # characters to take back until at least so many are evaluated
_DEFUSED = "control tokens in a text were split by a space, so that they stay text for the judge"


class LocalJudge:
    """A local model as a judge.

    `path` is a .gguf file; None is the default model. `context` is in tokens. `verbose` lets the
    engine write its log to stderr. Raises ConfigError where engine or file is missing.
    """

    concurrency = 1

    def __init__(
        self, path: str | None = None, *, context: int | None = None, verbose: bool = False
    ) -> None:
        self.spec = f"local:{path}" if path else "local"
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(
                "the engine of the local judge is not installed",
                hint='Install it: pip install "geval[local]". Other judges need no extra.',
            )
        if path:  # a wrong file is found here and not after other work
            check_file(Path(path).expanduser())
        self._path, self._verbose = path or None, verbose
        self._wanted = _context(context)
        self._weights: WeightFile | None = None
        self._header: Header | None = None
        self._server: Any = None
        self._last: tuple[Message, ...] | None = None
        self._closed = False
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="geval-local")

    @classmethod
    def from_spec(
        cls,
        argument: str,
        *,
        context: int | None = None,
        verbose: bool = False,
        **others: Any,
    ) -> LocalJudge:
        """The judge `local` or `local:PATH.gguf`; options meant for servers are refused."""
        named = sorted(name for name, value in others.items() if value is not None)
        if named:
            raise ConfigError(
                f"{', '.join(named)} has no meaning for the local judge",
                hint="It runs in this process and calls nobody. For a server: openai:MODEL.",
            )
        return cls(argument.strip() or None, context=context, verbose=verbose)

    # Judge protocol

    async def methods(self) -> tuple[Method, ...]:
        """The whole distribution can be read, so `auto` takes `exact`."""
        return ("exact", "samples", "single")

    async def start(self) -> None:
        """Load the model now rather than at the first call. Raises ConfigError."""
        await self._run(self._load)

    async def complete(self, request: Request) -> Reply:
        """Answer. A caller that is cancelled leaves; the engine finishes the call unheard."""
        return await self._run(lambda: self._reply(request))

    async def tokens(self, messages: Sequence[Message]) -> int:
        """How many tokens the prompt has, chat template included; nothing is evaluated."""
        return await self._run(lambda: self._count(tuple(messages)))

    def identity(self) -> dict[str, Any]:
        """What produces the numbers. Hashes a file of the user's own at its first use."""
        weights, header = self._file()
        return {
            "judge": "local",
            "model": header.name,
            "file": weights.path.name,
            "file_sha256": weights.sha256,
            "engine": f"xllamacpp {importlib.metadata.version('xllamacpp')}",
            "context": self.context,
        }

    async def aclose(self) -> None:
        """Free the model, after the call that is running if there is one."""
        if self._closed:
            return
        self._closed = True
        freed = asyncio.wrap_future(self._worker.submit(self._free))
        self._worker.shutdown(wait=False)
        await asyncio.shield(freed)

    @property
    def context(self) -> int:
        """Tokens the prompt and the reply may have together."""
        trained = self._file()[1].context
        if self._wanted is None:
            return min(CONTEXT, trained or CONTEXT)
        if trained and self._wanted > trained:
            raise ConfigError(
                f"a context of {self._wanted} tokens: this model was trained for {trained}"
            )
        return self._wanted

    # In the worker thread

    async def _run(self, job: Callable[[], _T]) -> _T:
        if self._closed:
            raise FatalError("the local judge is closed")
        return await asyncio.get_running_loop().run_in_executor(self._worker, job)

    def _file(self) -> tuple[WeightFile, Header]:
        if self._weights is None or self._header is None:
            self._weights = weight_file(self._path)
            self._header = read_header(self._weights.path)
        return self._weights, self._header

    def _load(self) -> Any:
        if self._server is None:
            weights, header = self._file()
            check_memory(weights, header, self.context)
            self._server = open_server(weights.path, self.context, verbose=self._verbose)
        return self._server

    def _free(self) -> None:
        self._server = None

    def _reply(self, request: Request) -> Reply:
        self._load()
        choices: list[Choice] = []
        usage = Usage()
        messages, said, notes = self._defused(request)
        for step in range(max(1, request.n)):
            body = _body(request, request.index + step)
            choice, used = self._choice(messages, said, body)
            choices.append(choice)
            usage += used
        return Reply(tuple(choices), usage, model=self._file()[1].name, notes=notes)

    def _defused(self, request: Request) -> tuple[tuple[Message, ...], str, tuple[str, ...]]:
        """Messages and prefill, in which no text can end its turn or begin another.

        The engine takes the name of a control token for the token wherever it stands, so a judged
        text that holds `<|im_end|>` could speak for the judge.
        """
        names = sorted(self._file()[1].control.values(), key=len, reverse=True)
        texts = [message["content"] for message in request.messages] + [request.prefill]
        if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
            raise RejectedError("a text holds half a character, which cannot be sent")
        if not names or not any(name in text for text in texts for name in names):
            return request.messages, request.prefill, ()
        known = re.compile("|".join(re.escape(name) for name in names if len(name) > 1))
        *contents, said = (known.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text) for text in texts)
        messages = tuple(
            Message(role=message["role"], content=content)
            for message, content in zip(request.messages, contents, strict=True)
        )
        return messages, said, (_DEFUSED,)

    def _choice(
        self, messages: tuple[Message, ...], said: str, body: dict[str, Any]
    ) -> tuple[Choice, Usage]:
        answer = self._evaluate(messages, said, body)
        if not told(answer) and body.get("n_probs") and body["max_tokens"] == 1:
            # The engine holds probabilities back until a character is whole. Those it reports are
            # from before the grammar, so any whole character brings them out.
            forced = self._evaluate(messages, said, {**body, "grammar": 'root ::= "0"'})
            answer = with_likeliest(answer, forced)
        header = self._file()[1]
        return to_choice(answer, said, header), to_usage(answer)

    def _evaluate(
        self, messages: tuple[Message, ...], said: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        """One answer, the same for the same prompt whatever was asked before.

        Eight tokens or more are computed together by other kernels than fewer, and the rounding
        differs by up to a few percent of probability; among batches of eight or more there is no
        difference to the bit. So a prompt must not end with a smaller batch, and what was
        generated token by token must not be reused as its beginning. Both happen only where the
        same messages come again (a prefill, a sample), where a prompt differs from the one before
        in its last words only, or where a few tokens are left over after full batches.
        """
        cuts = iter(_CUTS)
        if messages == self._last:
            self._forget(messages, next(cuts))
        answer = self._send(messages, said, body)
        for cut in cuts:
            if not 0 < int(answer.get("timings", {}).get("prompt_n", 0)) % UBATCH < _TOGETHER:
                break
            self._forget(messages, cut)
            answer = self._send(messages, said, body)
        self._last = messages
        return answer

    def _forget(self, messages: tuple[Message, ...], cut: int) -> None:
        """Drop the end of the last message from the engine's memory, by asking without it."""
        last = messages[-1]
        shorter = Message(role=last["role"], content=last["content"].rstrip()[:-cut] or ".")
        self._send((*messages[:-1], shorter), "", {"max_tokens": 1, "temperature": 0.0})

    def _send(
        self, messages: tuple[Message, ...], said: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        whole = [*messages, Message(role="assistant", content=said)] if said else [*messages]
        try:
            answer: dict[str, Any] = self._load().handle_chat_completions(
                {**body, "messages": whole, "cache_prompt": True}
            )
        except ValueError as error:  # how the engine refuses malformed input
            raise RejectedError(f"the local engine refused the request: {error}") from error
        except RuntimeError as error:
            raise FatalError(f"the local engine failed: {error}") from error
        if "choices" not in answer:
            raise refusal(answer.get("error", answer))
        return answer

    def _count(self, messages: tuple[Message, ...]) -> int:
        """Tokens of a prompt, from the engine's refusals of two prompts that are too long.

        A refusal names the tokens and costs no evaluation. With `n` the tokens of some filler,
        the two have P + n and P + 2n tokens.
        """
        self._load()
        messages, _, _ = self._defused(Request(messages, "single", 1))
        filler = " x" * (self.context + 16)
        once, twice = (self._too_long(messages, filler * times) for times in (1, 2))
        return 2 * once - twice

    def _too_long(self, messages: tuple[Message, ...], said: str) -> int:
        try:
            self._send(messages, said, {"max_tokens": 1})
        except TooLong as error:
            return error.tokens
        raise FatalError("the local engine took a prompt that is longer than its context")


def _context(option: int | None) -> int | None:
    named = os.environ.get("GEVAL_CONTEXT", "").strip()
    if option is None and named:
        if not named.isdigit():
            raise ConfigError(f"GEVAL_CONTEXT={named!r} is no number of tokens")
        option = int(named)
    if option is not None and option < 256:
        raise ConfigError(f"a context of {option} tokens is too short for any rubric")
    return option


def _body(request: Request, index: int) -> dict[str, Any]:
    """What is asked beside the messages. Samples come from the whole, unbent distribution."""
    temperature = request.temperature
    if temperature is None:
        temperature = 1.0 if request.method == "samples" else 0.0
    seed = hashlib.sha256(f"{request.prompt_sha256}\0{request.prefill}\0{index}".encode()).digest()
    body: dict[str, Any] = {
        "max_tokens": max(1, request.max_tokens),
        "temperature": temperature,
        "seed": int.from_bytes(seed[:4], "big") >> 1,  # 2**32 - 1 would mean a random one
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
    }
    if request.alternatives > 0:
        body["n_probs"] = request.alternatives
    return body
