"""A judge whose right prompt is known, in this process: its noise depends on the prompt.

The answer of each row holds its true quality; the judge sees it through noise that shrinks with
the features of the prompt that `Taste` names. The noise is a function of the prompt's text, so a
judgement is the same however often and in whatever order it is asked.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from geval.judges.base import Alternative, Choice, Reply, Request, Token, Usage
from geval.template import Template

KEY = "Compare every figure of the answer with the question."
"""The sentence that a criterion needs for this judge to see well."""

STEPS = ("Read the question.", "Read the answer.", "Decide on a level.")
TEXT = "Is the answer right and complete?"
LEVELS = {1: "wrong", 2: "mostly wrong", 3: "half right", 4: "mostly right", 5: "right"}


def template(**front: Any) -> Template:
    given: dict[str, Any] = {
        "name": "tuned", "inputs": ["question", "answer"],
        "criteria": {"quality": {"text": TEXT, "steps": list(STEPS)}}, "scale": LEVELS,
    }  # fmt: skip
    return Template.build(**{**given, **front})


def rows(n: int, seed: int = 0, per: int = 5, column: str = "score") -> list[dict[str, Any]]:
    """n rows in documents of `per`, with a human score from 1 to 5 in `column`."""
    rng = Random(seed)
    found = []
    for i in range(n):
        quality = rng.choices((1, 2, 3, 4, 5), (1, 2, 3, 2, 2))[0]
        words = " ".join(f"w{rng.randrange(9000)}" for _ in range(10))
        found.append(
            {"id": f"r{i}", "document": f"d{i // per}", "question": f"Question {i}: {words}?",
             "answer": f"Answer {i}, quality {quality}.", column: quality}
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Taste:
    """What the judge likes; each takes something off its noise (in levels)."""

    noise: float = 1.9
    key: float = 0.6
    score_only: float = 0.25
    no_steps: float = 0.3
    demos: Mapping[int, float] = field(default_factory=lambda: {2: 0.3, 4: 0.45})

    def sd(self, prompt: str) -> float:
        """Noise under this prompt."""
        sd = self.noise
        sd -= self.key * (KEY in prompt)
        sd -= self.score_only * ("Write one number" in prompt)
        sd -= self.no_steps * (STEPS[0] not in prompt)
        return sd - self.demos.get(prompt.count("Score of this example"), 0.0)

    @property
    def least(self) -> float:
        """Noise under the best prompt there is."""
        gains = self.key + self.score_only + self.no_steps + max(self.demos.values(), default=0)
        return self.noise - gains


INDIFFERENT = Taste(key=0, score_only=0, no_steps=0, demos={})
_NORMAL = statistics.NormalDist()


def normal(*parts: str) -> float:
    """A standard normal number that is a function of `parts`."""
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    return _NORMAL.inv_cdf((int.from_bytes(digest[:8], "big") + 0.5) / 2**64)


class PromptJudge:
    """`calls` counts what was asked; `writes` answers what is no judgement, as a proposer."""

    spec, concurrency, total = "fake", 8, 0

    def __init__(
        self,
        taste: Taste | None = None,
        *,
        writes: Callable[[str], str] | None = None,
        on_call: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.taste, self.writes, self.on_call = taste or Taste(), writes, on_call
        self.calls = 0
        self.prompts: list[str] = []

    @classmethod
    def from_spec(cls, argument: str, **options: Any) -> PromptJudge:
        """The judge `fake` of the command line."""
        return cls()

    async def methods(self) -> tuple[str, ...]:
        return ("logprobs", "single") if self.writes else ("logprobs",)

    def identity(self) -> dict[str, Any]:
        return {"judge": "fake", "endpoint": "fake", "model": "fake-1"}

    async def aclose(self) -> None:
        return None

    async def complete(self, request: Request) -> Reply:
        self.calls += 1
        PromptJudge.total += 1
        self.on_call(self.calls)
        text = "\n".join(m["content"] for m in request.messages)
        self.prompts.append(text)
        if request.call.purpose == "reason":
            return Reply((Choice("It is as good as that."),), Usage(1, len(text) // 4, 6), "fake-1")
        if request.method == "single":
            assert self.writes is not None
            return Reply((Choice(self.writes(text)),), Usage(1, len(text) // 4, 50), "fake-1")
        return judgement(text, self.taste)


def judgement(text: str, taste: Taste) -> Reply:
    """What the judge says of a prompt."""
    found = re.search(r"quality (\d)", text)
    assert found is not None
    row = re.search(r"Answer \d+", text)
    assert row is not None
    seen = float(found[1]) + taste.sd(text) * (0.6 * normal(row[0]) + 0.8 * normal(text))
    weights = [math.exp(-0.5 * ((level - seen) / 0.7) ** 2) + 1e-9 for level in LEVELS]
    whole = sum(weights)
    tokens = tuple(
        Alternative(str(level), math.log(w / whole))
        for level, w in zip(LEVELS, weights, strict=True)
    )
    best = max(tokens, key=lambda a: a.logprob)
    answer = Token(best.text, best.logprob, tokens)
    if "Final score" in text:
        before = Token(
            "As it is.\nFinal score: ", 0.0, (Alternative("As it is.\nFinal score: ", 0.0),)
        )
        return Reply(
            (Choice(before.text + best.text, (before, answer)),), Usage(1, len(text) // 4, 9)
        )
    choice = Choice(best.text, (answer,))
    return Reply((choice,), Usage(1, len(text) // 4, 1), "fake-1")


FAKE = PromptJudge
