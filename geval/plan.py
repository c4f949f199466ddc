"""What a run would do, before it does it: calls, tokens, cost, and one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from geval.asking import likely_tokens
from geval.data.validate import Loaded
from geval.judges.base import Message, Request
from geval.scoring import ANSWER_TOKENS
from geval.settings import Settings
from geval.template import Template

LOOKED_AT = 1_000
"""Rows whose prompts are counted; of more, the rest is taken to be like them."""


class Span(NamedTuple):
    """From the least to the most; None where it is not known."""

    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What a run would ask for. `cost` in US dollars, None where a price is unknown.

    `calls` runs from one call per criterion to the most that sampling and reasons can take; the
    reply cache may spare any of them.
    """

    rows: int
    calls: Span
    prompt_tokens: Span
    completion_tokens: Span
    cost: Span | None
    estimated_from: int
    prompt: tuple[Message, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "rows": self.rows,
            "calls": list(self.calls),
            "prompt_tokens": list(self.prompt_tokens),
            "completion_tokens": list(self.completion_tokens),
            "cost_usd": None if self.cost is None else list(self.cost),
            "estimated_from_rows": self.estimated_from,
            "prompt": [dict(m) for m in self.prompt],
        }


def plan(
    template: Template,
    data: Loaded,
    judges: Sequence[Mapping[str, Any]],
    settings: Settings,
) -> Plan:
    """Count what judging `data` takes, with no call to any judge.

    `judges` are their identities. Which methods an endpoint serves is not asked, so the range
    reaches from one call per criterion to `samples_max` of them and a reason.
    """
    from geval.config import load_config
    from geval.prices import load_prices

    looked = list(islice(data.samples(), LOOKED_AT))
    reason = settings.reasons != "none" and template.front.output.reason
    prompts = [
        likely_tokens(Request(template.renderer.render(sample, c), "single", 0))
        for sample in looked
        for c in template.criteria
    ]
    scaled = data.n / len(looked) * settings.repeat
    per_call = max(1, settings.samples_max if settings.method in ("auto", "samples") else 2)
    most = per_call + (2 if reason else 0)  # a reason may be asked for twice
    calls = len(prompts) * scaled
    reply = settings.reply_tokens if reason else ANSWER_TOKENS
    n = len(judges)
    prices = load_prices(load_config().prices)
    low = high = 0.0
    known = True
    for identity in judges:
        least = prices.estimate(identity, prompts, 1)
        dearest = prices.estimate(identity, prompts, reply)
        if least is None or dearest is None:
            known = False
            break
        low += least.low * scaled
        high += dearest.high * scaled * most
    return Plan(
        data.n,
        Span(calls * n, calls * n * most),
        Span(sum(prompts) * scaled * n, sum(prompts) * scaled * n * most),
        Span(calls * n, calls * n * (per_call * ANSWER_TOKENS + reply)),
        Span(low, high) if known else None,
        len(looked),
        template.renderer.render(looked[0], template.criteria[0]),
    )
