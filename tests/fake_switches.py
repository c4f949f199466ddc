"""The switches of the fake judge: what it believes, how it writes, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fake_model import Splitter, Table, pieces

Style = Literal["score_only", "score_first", "reason_first", "json", "json_pretty", "json_fenced"]
FailureKind = Literal["hang", "cut", "cut_body", "garbage", "within"]
Tables = Mapping[str, Table] | Callable[[str], Table]


@dataclass
class Failure:
    """A planned failure: of the next `times` requests, or of all (None).

    `kind`: an HTTP status with a JSON error; "hang" never answers; "cut" closes the connection
    before the answer, "cut_body" in the middle of it; "garbage" answers 200 with HTML;
    "within" answers 200 with an error object, as routers do (`code` is its status).
    """

    kind: int | FailureKind
    times: int | None = None
    retry_after: str | None = None
    code: str = ""
    message: str = "planned failure"
    route: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """One request as it arrived."""

    route: str
    body: dict[str, Any]
    headers: dict[str, str]
    address: str = ""


@dataclass
class Switches:
    """What the server believes, how it writes, and what is wrong with it (nothing by default)."""

    # What it believes. A table is taken by the first key that stands in the prompt.
    tables: Tables = field(default_factory=dict)
    default: Table = field(default_factory=lambda: Table({"4": 0.6, "5": 0.4}))
    split: Splitter = pieces
    seed: int = 0

    # How it writes.
    style: Style = "score_only"
    reason: str = "The answer names 2 of 4 items. 항목 4개 중 2개가 빠졌다."
    label: str = "점수: "
    think: Literal["block", "closing", "field"] | None = None  # reasoning before the answer
    thought: str = "First I thought 1 of {5}, then 3."
    think_in_logprobs: bool = False  # "field": its tokens are listed among the logprobs
    thinks_until: str | None = None  # the parameter that switches thinking off
    dull: bool = False  # does not write the line that a probe asks for
    chatty: bool = False  # talks before it answers, unless a schema holds it
    latency: float = 0.0  # seconds
    model: str = "fake-1"

    # What it offers. `models` None takes every name, `key` None every key.
    decisions: bool = False
    systemone: bool = False
    # A last message of the assistant is continued: as it is, with vLLM's flags, marked as prefix;
    # "new_turn" answers anew behind it, None refuses it.
    prefill: Literal["plain", "continue", "prefix", "new_turn"] | None = None
    schema: bool = True  # response_format is obeyed
    string_enum_only: bool = False  # Anthropic: an enum of integers is refused
    context: int | None = None  # tokens; a longer prompt is silently cut (Ollama)
    models: frozenset[str] | None = None
    key: str | None = None

    # Parameters: refused with 400 (in a shape), or accepted and ignored.
    refuse: set[str] = field(default_factory=set)
    refusal_shape: Literal["openai", "fastapi", "google", "plain"] = "openai"
    ignore: set[str] = field(default_factory=set)
    efforts: tuple[str, ...] | None = None  # the values of reasoning_effort that are taken
    top_cap: int | None = None
    top_cap_how: Literal["refuse", "refuse_like_vllm", "clamp"] = "refuse"

    # Probabilities.
    shape: Literal["chat", "legacy", "together"] = "chat"  # together: legacy, `logprobs` a number
    halves: Literal["bytes", "no_bytes", "replaced", "wrong_bytes"] = "bytes"
    processed: bool = False  # after temperature
    placeholder: Literal["-9999", "null", "-inf"] | None = None
    empty_alternatives: bool = False  # logprob 0.0 and none listed
    pad: bool = True  # fill up to the wanted number with candidates of about e-30

    # Replies that are none.
    refusal: Literal["message", "content_filter", "stop_reason"] | None = None
    cut_off: bool = False  # reasoning eats all tokens, the answer is empty
    decision_refuses: bool = False
