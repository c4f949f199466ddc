"""The fake judge is honest: what it lists, samples and decides is its table."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

import pytest
from fake_judge import ASSISTANT, FakeJudge
from fake_model import Splitter, Story, Table, characters, hangul_halves, pieces, whole

KOREAN = Table({"예": 0.5, "아니요": 0.2, "안 됨": 0.1, "압도적": 0.05})
TENS = Table({"1": 0.08, "10": 0.72, "9": 0.15, "8": 0.05})


def post(fake: FakeJudge, route: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{fake.host}{route}",
        json.dumps({"model": "m", **body}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer k"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        data: dict[str, Any] = json.load(response)
    return data


def chat(fake: FakeJudge, prompt: str = "hi", **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    if said := body.pop("said", ""):
        messages.append({"role": "assistant", "content": said})
    asked = {"temperature": 0, "logprobs": True, "top_logprobs": 20, **body}
    return post(fake, "/v1/chat/completions", messages=messages, **asked)


def listed(item: dict[str, Any]) -> dict[bytes, float]:
    return {
        b"" if t["bytes"] is None else bytes(t["bytes"]): math.exp(t["logprob"])
        for t in item["top_logprobs"]
        if t["logprob"] > -25
    }


@pytest.mark.parametrize("split", [pieces, characters, hangul_halves, whole("10", "안 됨")])
@pytest.mark.parametrize("table", [KOREAN, TENS, Table({"4": 0.05}), Table({"4": 0.5, " 4": 0.5})])
def test_the_chain_of_conditionals_gives_the_table(table: Table, split: Splitter) -> None:
    def walk(story: Story, said: bytes, mass: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for token, p in story.candidates().items():
            if token == b"":
                found[said.decode()] = mass * p
            else:
                found |= walk(story.said(token), said + token, mass * p)
        return found

    assert walk(Story.tell(table, split), b"", 1.0) == pytest.approx(table.outcomes())


def test_alternatives_are_conditional_on_the_sampled_path(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=TENS)
    reply = chat(fake_judge)["choices"][0]
    first, second = reply["logprobs"]["content"]
    assert reply["message"]["content"] == "10"
    assert listed(first) == pytest.approx({b"1": 0.8, b"9": 0.15, b"8": 0.05})
    assert listed(second) == pytest.approx({b"0": 0.9, b"": 0.1})
    assert second["top_logprobs"][1]["token"] == "<|im_end|>"
    assert len(first["top_logprobs"]) == 20


def test_halves_of_hangul_are_tokens(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=KOREAN, split=hangul_halves)
    first = chat(fake_judge)["choices"][0]["logprobs"]["content"][0]
    assert first["token"] == "bytes:\\xec\\x98"
    # 아 안 압 are EC 95 84, EC 95 88, EC 95 95: one first token, 예 and 음 have their own.
    assert listed(first) == pytest.approx(
        {"예".encode()[:2]: 0.5, "아".encode()[:2]: 0.35, b"That": 0.15}
    )


def test_a_begun_reply_is_continued(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=TENS, prefill="plain")
    item = chat(fake_judge, said="1")["choices"][0]["logprobs"]["content"][0]
    assert listed(item) == pytest.approx({b"0": 0.9, b"": 0.1})


def test_samples_follow_the_table_and_their_seeds(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=TENS)
    drawn = Counter(
        choice["message"]["content"]
        for i in range(40)
        for choice in chat(fake_judge, temperature=1, n=20, seed=i)["choices"]
    )
    for text, p in TENS.outcomes().items():
        assert abs(drawn[text] / 800 - p) < 4 * math.sqrt(p * (1 - p) / 800), text

    def again() -> list[str]:
        choices = chat(fake_judge, temperature=1, n=20, seed=7)["choices"]
        return [choice["message"]["content"] for choice in choices]

    assert again() == again()
    assert len({tuple(again()), tuple(c["message"]["content"] for c in chat(
        fake_judge, temperature=1, n=20, seed=8)["choices"])}) == 2  # fmt: skip


def test_the_table_is_chosen_by_the_prompt(fake_judge: FakeJudge) -> None:
    fake_judge.set(tables={"good": Table({"5": 1.0}), "bad": Table({"1": 1.0})})
    texts = [chat(fake_judge, p)["choices"][0]["message"]["content"] for p in ("a good", "a bad")]
    assert texts == ["5", "1"]


def test_raw_completions_in_the_legacy_shape(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=TENS)
    reply = post(
        fake_judge, "/v1/completions", prompt=f"q{ASSISTANT}1", max_tokens=1, logprobs=5,
        temperature=0,
    )  # fmt: skip
    logprobs = reply["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["0"]
    assert math.exp(logprobs["top_logprobs"][0]["0"]) == pytest.approx(0.9)


def test_vllm_gives_chosen_tokens_and_the_prompt(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=TENS)
    ids = post(fake_judge, "/tokenize", prompt="18")["tokens"]
    reply = post(
        fake_judge, "/v1/completions", prompt="q", max_tokens=1, logprobs=1, temperature=0,
        logprob_token_ids=ids,
    )  # fmt: skip
    top = reply["choices"][0]["logprobs"]["top_logprobs"][0]
    assert {t: math.exp(p) for t, p in top.items()} == pytest.approx({"1": 0.8, "8": 0.05})

    reply = post(
        fake_judge, "/v1/completions", prompt=f"q{ASSISTANT}10", max_tokens=1, temperature=0,
        prompt_logprobs=0,
    )  # fmt: skip
    of_prompt = reply["choices"][0]["prompt_logprobs"]
    assert of_prompt[0] is None
    said = [next(iter(item.values()))["logprob"] for item in of_prompt[-2:]]
    assert math.exp(sum(said)) == pytest.approx(0.72)


@pytest.mark.parametrize("route", ["decisions", "systemone"])
def test_decisions_are_the_table_over_the_levels(fake_judge: FakeJudge, route: str) -> None:
    fake_judge.set(default=Table({"1": 0.2, "2": 0.6}), decisions=True, systemone=True)
    if route == "decisions":
        question = {
            "type": "score",
            "instructions": "?",
            "levels": [{"label": "1"}, {"label": "2"}],
        }
        reply = post(fake_judge, "/v1/decisions", input="q", questions=[question])
        probs = [p["probability"] for p in reply["answers"][0]["probabilities"]]
    else:
        question = {"type": "score", "instructions": "?", "criteria": ["1: bad", "2"]}
        reply = post(fake_judge, "/v1/systemone", state="q", questions={"q": question})
        probs = list(reply["answers"]["q"]["probabilities"].values())
    assert probs == pytest.approx([0.25, 0.75])


def test_anthropic_answers_within_its_enum(fake_judge: FakeJudge) -> None:
    fake_judge.set(default=Table({"4": 0.1, "5": 0.1}))
    schema = {"type": "object", "properties": {"score": {"type": "integer", "enum": [4, 5]}}}
    seen = Counter(
        post(
            fake_judge,
            "/v1/messages",
            max_tokens=9,
            messages=[{"role": "user", "content": "q"}],
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )["content"][0]["text"]
        for _ in range(40)
    )
    assert set(seen) == {'{"score": 4}', '{"score": 5}'}


def test_processed_probabilities_come_after_temperature(fake_judge: FakeJudge) -> None:
    fake_judge.set(processed=True)
    item = chat(fake_judge, temperature=0.5)["choices"][0]["logprobs"]["content"][0]
    assert listed(item) == pytest.approx({b"4": 0.36 / 0.52, b"5": 0.16 / 0.52})


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("score_first", "4\nWhy"),
        ("reason_first", "Why\n점수: 4"),
        ("json", '{"score": 4, "reason": "Why"}'),
        ("json_pretty", '{\n  "score":\n    4,\n  "reason": "Why"\n}'),
        ("json_fenced", '```json\n{"score": 4, "reason": "Why"}\n```'),
    ],
)
def test_styles(fake_judge: FakeJudge, style: Any, text: str) -> None:
    fake_judge.set(style=style, reason="Why")
    choice = chat(fake_judge)["choices"][0]
    assert choice["message"]["content"] == text
    tokens = choice["logprobs"]["content"]
    assert "".join(t["token"] for t in tokens) == text
    answer = next(t for t in tokens if len(listed(t)) > 1)
    assert listed(answer) == pytest.approx({b"4": 0.6, b"5": 0.4})


def test_planned_failures_come_in_order(fake_judge: FakeJudge) -> None:
    fake_judge.fail(429, times=2, retry_after="7").fail(503, times=1)
    for status, wait in ((429, "7"), (429, "7"), (503, None)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            chat(fake_judge)
        assert (caught.value.code, caught.value.headers["Retry-After"]) == (status, wait)
    assert chat(fake_judge)["choices"]
    assert fake_judge.count() == 4
    assert fake_judge.seen[0].headers["authorization"] == "Bearer k"
    assert fake_judge.bodies()[0]["top_logprobs"] == 20
