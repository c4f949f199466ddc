"""What a run would do, before it does it: calls, tokens, cost, and one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from geval.data.validate import Loaded
from geval.judges.base import Message, Request
from geval.sample import Sample
from geval.scoring import ANSWER_TOKENS
from geval.settings import Settings
from geval.template import Template
from geval.traffic.asking import likely_tokens

LOOKED_AT = 1_000
"""Rows whose prompts are counted; of more, the rest is taken to be like them."""

CLAIMS = 3
"""Claims that a sentence may hold, for a guess at the most."""


class Span(NamedTuple):
    """From the least to the most; None where it is not known."""

    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What a run would ask for. `cost` in US dollars, None where a price is unknown.

    `calls` runs from one call per criterion (and unit) to the most that sampling and reasons can
    take; the reply cache may spare any of them. How many claims a judge will find is guessed from
    the sentences of a text: from one for each set to `CLAIMS` for each sentence.
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
    from geval.traffic.prices import load_prices

    looked = list(islice(data.samples(), LOOKED_AT))
    reason = settings.reasons != "none" and template.front.output.reason
    prompts, few = _prompts(template, looked)
    scaled = data.n / len(looked) * settings.repeat
    per_call = max(1, settings.samples_max if settings.method in ("auto", "samples") else 2)
    most = per_call + (2 if reason else 0)  # a reason may be asked for twice
    calls, least_calls = len(prompts) * scaled, few * scaled
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
        low += least.low * scaled * few / len(prompts)
        high += dearest.high * scaled * most
    return Plan(
        data.n,
        Span(least_calls * n, calls * n * most),
        Span(sum(prompts) * scaled * n * few / len(prompts), sum(prompts) * scaled * n * most),
        Span(least_calls * n, calls * n * (per_call * ANSWER_TOKENS + reply)),
        Span(low, high) if known else None,
        len(looked),
        template.renderer.render(looked[0], template.criteria[0]),
    )


def _prompts(template: Template, samples: Sequence[Sample]) -> tuple[list[int], int]:
    """Tokens of each prompt of these samples, as many as there may be, and the least number."""
    render = template.renderer.render
    if not template.front.units:
        prompts = [
            likely_tokens(Request(render(sample, c), "single", 0))
            for sample in samples
            for c in template.criteria
        ]
        return prompts, len(prompts)
    from geval.units.split import parts, preview, sentences, source_texts

    prompts, few = [], 0
    for sample in samples:
        asked = set[tuple[str, ...]]()
        for which, spec in enumerate(template.front.unit_sets):
            found = parts(spec, sample, template.locale)
            low = high = len(found or ())
            if found is None:
                texts = source_texts(spec, sample)
                held = sum(len(sentences(t, template.locale.code)) for t in texts)
                low, high = 1, max(1, CLAIMS * held)
                if spec.source not in asked:
                    asked.add(spec.source)
                    split = template.renderer.render_split(sample, spec)
                    prompts.append(likely_tokens(Request(split, "single", 0)))
                    few += 1
            unit = preview(template, sample, which)
            for criterion in template.criteria:
                one = likely_tokens(Request(render(sample, criterion, unit=unit), "single", 0))
                prompts += [one] * high
                few += low
    return prompts, few
