"""Every method on every kind of endpoint, on the same tables, through `geval.ascore`.

They estimate one quantity, so they agree: methods that read probabilities to rounding, samples
within their standard error, and `single` gives the mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Splitter, Table, characters, hangul_halves, pieces, whole
from helpers import write_template

import geval
from geval.errors import ConfigError
from geval.judges.base import Judge, open_judge
from geval.settings import Settings

TEMPLATE = """---
name: fit
locale: en
inputs:
  answer: {type: text}
scale:
  LEVELS
criteria:
  fit: Is the answer right?
output: {order: score_only, reason: false}
---
{% extends "_geval.jinja" %}
{% block sample %}
Answer: {{ answer }}
{% endblock %}
"""
FIVE = "levels: {1: a, 2: b, 3: c, 4: d, 5: e}"
TEN = "levels: {" + ", ".join(f"{n}: is {n}" for n in range(1, 11)) + "}"
VERDICT = "labels: {wrong: 0, right: 1}"
DRAWS = 6


@dataclass(frozen=True)
class Case:
    """A table over the levels of a scale, and what it is worth."""

    levels: str
    probs: dict[str, float]
    words: dict[str, float] = field(default_factory=dict)

    def value(self, word: str) -> float:
        return self.words.get(word.strip()) if self.words else float(word)  # type: ignore[return-value]

    @property
    def mean(self) -> float:
        mass = math.fsum(self.probs.values())
        return math.fsum(p * self.value(w) for w, p in self.probs.items()) / mass

    @property
    def sd(self) -> float:
        mass = math.fsum(self.probs.values())
        return math.sqrt(
            math.fsum(p * (self.value(w) - self.mean) ** 2 for w, p in self.probs.items()) / mass
        )

    @property
    def mode(self) -> float:
        return self.value(max(self.probs, key=lambda w: self.probs[w]))


CASES = {
    "peaked": Case(FIVE, {"4": 0.6, "5": 0.4}),
    "wide": Case(FIVE, {"1": 0.1, "2": 0.2, "3": 0.4, "4": 0.2, "5": 0.1}),
    "two hills": Case(FIVE, {"1": 0.45, "5": 0.55}),
    "some prose": Case(FIVE, {"2": 0.55, "3": 0.4}),
    "words": Case(VERDICT, {"wrong": 0.3, "right": 0.7}, {"wrong": 0, "right": 1}),
    "ten": Case(TEN, {"1": 0.1, "10": 0.5, "9": 0.3, "8": 0.1}),
}


@dataclass(frozen=True)
class Place:
    """A kind of endpoint: its spec, the switches of the fake server, what `auto` takes there."""

    spec: str
    auto: str
    switches: dict[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ("logprobs", "samples", "single")


PLACES = {
    "decisions": Place(
        "openai:m", "decision", {"decisions": True},
        ("decision", "logprobs", "samples", "single"),
    ),
    "systemone": Place("llamacpp:", "decision", {"systemone": True}, ("decision", "logprobs")),
    "chat": Place("openai:m", "logprobs"),
    "azure": Place("azure:m", "logprobs"),
    "vllm": Place("vllm:m", "exact", {"prefill": "continue"}, ("exact", "logprobs", "samples")),
    "vllm processed": Place(
        "vllm:m", "exact", {"prefill": "continue", "processed": True}, ("exact", "logprobs")
    ),
    "llamacpp": Place("llamacpp:", "exact", {"prefill": "plain"}, ("exact", "logprobs")),
    "ollama": Place("ollama:m", "logprobs", {"ignore": {"n"}}, ("logprobs", "samples")),
    "together": Place("openai:m", "logprobs", {"shape": "together"}, ("logprobs",)),
    "cap of five": Place("openai:m", "logprobs", {"top_cap": 5}, ("logprobs",)),
    "no logprobs": Place("openai:m", "samples", {"refuse": {"logprobs"}}, ("samples", "single")),
    "talks": Place(
        "openai:m", "samples", {"refuse": {"logprobs"}, "chatty": True}, ("samples", "single")
    ),
    "anthropic": Place("anthropic:m", "samples", {}, ("samples",)),
}  # fmt: skip
PAIRS = [(place, method) for place, kind in PLACES.items() for method in kind.methods]

Scorer = Callable[..., Any]


@pytest.fixture
def scored(fake_judge: FakeJudge, tmp_path: Path, hosts_called: set[str]) -> Scorer:
    """Scores rows of one table at one place; nobody else is called meanwhile."""

    async def run(
        case: Case,
        place: Place,
        method: str | None,
        rows: int = 1,
        judge: Judge | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        fake_judge.set(default=Table(case.probs), **place.switches)
        path = write_template(tmp_path, TEMPLATE.replace("LEVELS", case.levels))
        own = judge or opened(place, fake_judge)
        done = await geval.ascore(
            [{"id": str(i), "answer": f"A{i}"} for i in range(rows)],
            template=path,
            judge=own,
            method=method,
            reasons="none",
            out=tmp_path / "run",
            cache=False,
            force_new=True,
            **options,
        )
        if judge is None:
            await own.aclose()
        assert hosts_called == {fake_judge.host}
        return [r for r in done.results() if r["criterion"] == "fit"]

    return run


def opened(place: Place, fake: FakeJudge) -> Judge:
    base = f"http://{fake.host}" if place.spec.startswith("azure") else fake.base_url
    return open_judge(place.spec, base_url=base)


@pytest.mark.fault("S30")
@pytest.mark.fault("S20")
@pytest.mark.fault("S2")
@pytest.mark.fault("P13")
@pytest.mark.fault("N13")
@pytest.mark.parametrize(("place", "method"), PAIRS)
async def test_every_method_gives_the_value_of_the_table(
    fake_judge: FakeJudge, scored: Scorer, place: str, method: str
) -> None:
    kind = PLACES[place]
    judge = opened(kind, fake_judge)
    for name, case in CASES.items():
        if name == "ten" and method == "logprobs":
            continue  # see below
        if method == "samples":
            settings = Settings(samples_min=20, samples_max=20, max_failed_samples=0.5)
            results = await scored(case, kind, method, DRAWS, judge, settings=settings)
            assert {r["method"] for r in results} == {"samples"}
            mean = math.fsum(r["score"] for r in results) / len(results)
            drawn = sum(r["n_samples"] for r in results)
            assert drawn >= 0.85 * 20 * DRAWS
            assert mean == pytest.approx(case.mean, abs=4 * case.sd / math.sqrt(drawn)), name
            inside = [abs(r["score"] - case.mean) < 3 * r["se"] + 0.05 for r in results]
            assert sum(inside) >= DRAWS - 1, "the standard error that is told is the true one"
            continue
        (result,) = await scored(case, kind, method, judge=judge)
        assert result["method"] == method
        assert math.fsum(result["probs"]) == pytest.approx(1, abs=1e-6)
        truth = case.mode if method == "single" else case.mean
        assert result["score"] == pytest.approx(truth, abs=1e-6), name
    await judge.aclose()


@pytest.mark.fault("S5")
@pytest.mark.parametrize("place", PLACES)
async def test_auto_takes_the_best(scored: Scorer, place: str) -> None:
    (result,) = await scored(CASES["peaked"], PLACES[place], None)
    assert result["method"] == PLACES[place].auto


@pytest.mark.fault("S5")
@pytest.mark.parametrize("place", PLACES)
async def test_a_method_that_cannot_be_had_is_an_error_before_the_first_row(
    fake_judge: FakeJudge, scored: Scorer, place: str
) -> None:
    judge = opened(PLACES[place], fake_judge)
    fake_judge.set(**PLACES[place].switches)
    served = await judge.methods()
    await judge.aclose()
    calls = fake_judge.count()
    for method in {"exact", "decision", "logprobs"} - set(served):
        with pytest.raises(ConfigError, match=f"cannot serve the method '{method}'"):
            await scored(CASES["peaked"], PLACES[place], method)
        # The probe is known already: nothing at all is paid.
        assert fake_judge.count() - calls <= 1, "the name of the model at most"


# Levels of several tokens


@pytest.mark.parametrize(
    "split", [pieces, characters, whole("10"), hangul_halves], ids=["pieces", "chars", "one", "h"]
)
@pytest.mark.parametrize("place", ["vllm", "llamacpp", "vllm processed"])
async def test_exact_follows_levels_of_several_tokens(
    fake_judge: FakeJudge, scored: Scorer, place: str, split: Splitter
) -> None:
    fake_judge.set(split=split)
    (result,) = await scored(CASES["ten"], PLACES[place], "exact")
    assert result["score"] == pytest.approx(CASES["ten"].mean, abs=1e-6)
    assert result["coverage"] == pytest.approx(1)


async def test_logprobs_never_guess_what_a_shared_beginning_becomes(
    fake_judge: FakeJudge, scored: Scorer
) -> None:
    """After the sampled "1" the next position tells; an unsampled "1" is not accepted."""
    (result,) = await scored(CASES["ten"], PLACES["chat"], "logprobs")
    assert result["score"] == pytest.approx(CASES["ten"].mean, abs=1e-6)
    other = Case(TEN, {"9": 0.6, "1": 0.2, "10": 0.2})
    fake_judge.forget()
    (result,) = await scored(other, PLACES["chat"], "logprobs")
    assert (result["status"], result["score"]) == ("unscored", None)


# Replies that are broken


@pytest.mark.fault("S7")
@pytest.mark.fault("S8")
@pytest.mark.parametrize("placeholder", ["-9999", "null", "-inf"])
async def test_a_placeholder_is_no_certainty(
    fake_judge: FakeJudge, scored: Scorer, placeholder: Any
) -> None:
    (result,) = await scored(
        CASES["peaked"], Place("openai:m", "", {"placeholder": placeholder}), None
    )
    assert result["method"] == "samples" or result["status"] == "unscored"
    assert result["score"] is None or 4 <= result["score"] <= 5


@pytest.mark.fault("P7")
@pytest.mark.fault("S6")
@pytest.mark.parametrize("style", ["json", "json_pretty", "json_fenced"])
@pytest.mark.parametrize("place", ["chat", "together"])
async def test_json_replies_are_read_at_their_score(
    fake_judge: FakeJudge, scored: Scorer, place: str, style: Any
) -> None:
    fake_judge.set(style=style)
    (result,) = await scored(CASES["peaked"], PLACES[place], "logprobs")
    if result["status"] == "scored":  # eight tokens may end before the score does
        assert result["score"] == pytest.approx(4.4)


@pytest.mark.fault("P3")
@pytest.mark.parametrize("think", ["block", "closing", "field"])
async def test_thinking_is_no_answer(fake_judge: FakeJudge, scored: Scorer, think: Any) -> None:
    switches = {"think": think, "thinks_until": "chat_template_kwargs", "prefill": "plain"}
    for method in ("exact", "logprobs"):
        (result,) = await scored(CASES["peaked"], Place("llamacpp:", "", switches), method)
        assert result["score"] == pytest.approx(4.4)


@pytest.mark.fault("N10")
async def test_an_overloaded_provider_is_waited_for(
    fake_judge: FakeJudge, scored: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_judge.set(default=Table({"4": 1.0}))
    fake_judge.fail(529, times=3, route="/v1/messages")
    judge = opened(PLACES["anthropic"], fake_judge)
    with pytest.raises(geval.errors.TransientError):
        await judge.methods()
    fake_judge.heal()
    assert await judge.methods() == ("samples", "single")
    await judge.aclose()
