"""What an OpenAI-compatible endpoint takes, learned from its answers and not from a table.

`Abilities` builds the body of a call and learns from each refusal: a 400 that names a parameter
drops or changes one thing, which is remembered and told once. It is plain data (`to_dict`,
`from_dict`), so that what was found can be kept (`geval.judges.kept`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from geval.judges.base import Request
from geval.judges.exact import begun
from geval.judges.failures import ServerError, refused_parameters
from geval.judges.levels import answer_format, wants_levels
from geval.notes import told as note

MOST_ALTERNATIVES = 20
"""What OpenAI and most servers allow as `top_logprobs`."""

WIDE_ALTERNATIVES = 1000
"""What is asked for where a server may give more: nearly the whole distribution."""

_AT_MOST = re.compile(
    r"""(?: at\ most | up\ to | less\ than\ or\ equal\ to | no\ more\ than | not\ exceed | <= | ≤
          | between\ \d+\ and | max(?:imum)?\ allowed:?
          | (?:maximum|limit)(?:\ \w+){0,3}?(?:\ is|\ of|:)?
        )\s*(\d+)
      | [\[(]\s*\d+\s*,\s*(\d+)\s*[\])]""",
    re.IGNORECASE | re.VERBOSE,
)
_UNKNOWN = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|instead",
    re.IGNORECASE,
)
_WANTS_NUMBER = re.compile(r"\b(?:integer|int|number)\b", re.IGNORECASE)
_BUDGETS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_TOLD = {
    "temperature": "the endpoint refuses temperature: it is left at the provider's default",
    "n": "the endpoint refuses n: each sample is a call of its own",
    "seed": "the endpoint refuses seed: samples cannot be repeated exactly",
    "reasoning_effort": "the endpoint refuses reasoning_effort: reasoning is left as it is",
    "chat_template_kwargs": "the endpoint refuses chat_template_kwargs: thinking is left as it is",
    "logprobs": "the endpoint refuses logprobs: it tells no probabilities",
    "top_p": "the endpoint refuses top_p: it is left at the provider's default",
    "response_format": "the endpoint refuses response_format: the levels are asked for in words",
    "top_k": "",
    "min_p": "",
    "prompt_cache_key": "",
}


@dataclass
class Abilities:
    """What is known of one (endpoint, model, options).

    `refused` are parameters no longer sent. `budget` is the name of the token limit. `top` is
    the most alternatives per position of a reply, `wide` the most where a single token is asked
    for (`exact`). `integer_logprobs`: `logprobs` is a number (Together).
    `effort` is the reasoning_effort asked for, "" for none at all. `no_thinking` asks the chat
    template to leave thinking out. `one_choice`: `n` is accepted and ignored. `prefill` is the
    way in which a begun reply is continued (`geval.judges.exact`), "" for none. `probabilities`
    are "raw", "processed" (after temperature and top_p) or "unknown". `structured`: samples are
    held to the levels by a schema, because words do not suffice. `context` is how many tokens the
    server holds, 0 where it does not say.
    """

    budget: str = "max_tokens"
    effort: str = "none"
    top: int = MOST_ALTERNATIVES
    wide: int = WIDE_ALTERNATIVES
    integer_logprobs: bool = False
    no_thinking: bool = False
    one_choice: bool = False
    refused: set[str] = field(default_factory=set)
    decision_route: str | None = None
    methods: tuple[str, ...] | None = None
    swapped: bool = False
    prefill: str = ""
    probabilities: str = "unknown"
    structured: bool = False
    context: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "refused": sorted(self.refused)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Abilities:
        """Inverse of `to_dict`; unknown names are left out."""
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        methods = values.get("methods")
        return cls(
            **{
                **values,
                "refused": set(values.get("refused", ())),
                "methods": tuple(methods) if methods is not None else None,
            }
        )

    def body(
        self,
        model: str,
        request: Request,
        *,
        seed: int = 0,
        sampling: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        beginning: str = "",
    ) -> dict[str, Any]:
        """The chat completions body for `request`, without what is known to be refused.

        `beginning` names the prompts that begin alike, for the provider's own prompt cache.

        `sampling` is what makes samples come from the model's own distribution; it is sent for
        samples whose temperature is left to the judge.
        """
        body: dict[str, Any] = {"model": model, "messages": list(request.messages)}
        body[self.budget] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        elif request.method == "samples":
            body.update(sampling or {})
        if request.method in ("logprobs", "exact") and request.alternatives > 0:
            self._probabilities_in(body, request)
        if request.n > 1 and not self.one_choice:
            body["n"] = request.n
        if body.get("temperature") != 0 or "temperature" in self.refused:
            body["seed"] = sample_seed(seed, request.index)
        if self.effort:
            body["reasoning_effort"] = self.effort
        if self.no_thinking:
            body["chat_template_kwargs"] = {"enable_thinking": False}
        if self.structured and wants_levels(request):
            body["response_format"] = answer_format(request)
            body[self.budget] += 24  # braces and key take room, too
        if request.prefill:
            body.update(begun(self.prefill, request))
        if beginning:
            body["prompt_cache_key"] = beginning
        for name in self.refused:
            body.pop(name, None)
        if "logprobs" in self.refused:
            body.pop("top_logprobs", None)
        body.update(extra or {})
        return body

    def _probabilities_in(self, body: dict[str, Any], request: Request) -> None:
        most = self.wide if request.max_tokens == 1 else self.top
        wanted = min(request.alternatives, most)
        if self.integer_logprobs:
            body["logprobs"] = wanted
        else:
            body["logprobs"] = True
            body["top_logprobs"] = wanted
        if self.probabilities == "processed" and request.temperature == 0:
            # At temperature 0 such a server says 1 for one token and nothing for the others.
            body["temperature"] = body["top_p"] = 1.0

    def learn(self, error: ServerError, body: Mapping[str, Any]) -> list[str] | None:
        """Take a refusal of `body` to heart: what to tell, or None where nothing can be changed."""
        sent = set(body) - {"model", "messages"}
        names = refused_parameters(error, sent)
        # A validation error lists every unknown field; prose is trusted for one name only.
        if not error.fields:
            names = names[:1]
        told: list[str] | None = None
        for name in names:
            step = self._step(name, error, body)
            if step is not None:
                told = [*(told or ()), *step]
        return told

    def _step(self, name: str, error: ServerError, body: Mapping[str, Any]) -> list[str] | None:
        if name in _BUDGETS:
            # "max_tokens is too large" is about its value: another name would not help.
            if self.swapped or not (_UNKNOWN.search(error.message) or "unsupported" in error.code):
                return None
            if self.budget == name:
                self.budget, self.swapped = _BUDGETS[name], True
            return []
        if name in ("logprobs", "top_logprobs"):
            return self._probabilities(name, error, body)
        if name == "reasoning_effort":
            return self._reasoning(error, body)
        if name not in _TOLD:
            return None
        return self._drop(name)

    def _drop(self, name: str) -> list[str]:
        """Stop sending `name`; told by the first of several calls that were under way."""
        if name in self.refused:
            return []
        self.refused.add(name)
        return [_TOLD[name]] if _TOLD[name] else []

    def _probabilities(
        self, name: str, error: ServerError, body: Mapping[str, Any]
    ) -> list[str] | None:
        wanted = body["logprobs"] if self.integer_logprobs else body.get("top_logprobs", 0)
        limit = _limit(error.message, below=int(wanted))
        if limit is not None:
            return self._cap(limit)
        as_switch = name == "logprobs" and body.get("logprobs") is True
        if as_switch and _WANTS_NUMBER.search(error.message):
            self.integer_logprobs = True
            return []
        if wanted > MOST_ALTERNATIVES:
            return self._cap(MOST_ALTERNATIVES)
        if name == "top_logprobs" and not _UNKNOWN.search(error.message) and wanted > 5:
            return self._cap(5)  # a cap that is not named is five on the servers that have one
        return self._drop("logprobs")

    def _cap(self, limit: int) -> list[str]:
        self.wide = min(self.wide, limit)
        if limit >= self.top:
            return []
        self.top = limit
        return [note("at_most", n=limit)]

    def _reasoning(self, error: ServerError, body: Mapping[str, Any]) -> list[str]:
        if body["reasoning_effort"] != self.effort:
            return []  # another call has learned it meanwhile
        for lower in ("minimal", "low"):
            if lower != self.effort and re.search(rf"['\"`]{lower}['\"`]", error.message):
                self.effort = lower
                return [note("reasoning_low", effort=lower)]
        self.effort = ""
        return self._drop("reasoning_effort")


def sample_seed(seed: int, index: int) -> int:
    """A seed per independent sample, 0..2**31-1."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) & 0x7FFFFFFF


def _limit(message: str, *, below: int) -> int | None:
    for match in _AT_MOST.finditer(message[:500]):
        limit = int(match[1] or match[2])
        if 0 < limit < below:
            return limit
    return None
