"""`geval.judges.anthropic` against the fake server: schema, prompt cache, errors, keys."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table

from geval.errors import ConfigError, FatalError, JudgeError, RejectedError, TransientError
from geval.judges.anthropic import DEFAULT_MODEL, AnthropicJudge
from geval.judges.base import Call, Choice, Message, Reply, Request, open_judge
from geval.judges.levels import unwrap
from geval.reading.answer import parse_answer
from geval.scale import NA, Scale, scale_from

KEY = "sk-ant-test-0123456789abcdef"
SCALE = Scale.of(1, 2, 3, 4, 5)
WORDS = scale_from({"아니요": 0, "예": 1})
ASKED = Request(({"role": "user", "content": "How good?"},), "samples", 8, scale=SCALE)
LONG = replace(ASKED, messages=({"role": "user", "content": "A long rubric. " * 400},))
ROUTE = "/v1/messages"
Opener = Callable[..., AnthropicJudge]


@pytest.fixture
async def judge(fake_judge: FakeJudge) -> AsyncIterator[Opener]:
    """Opens judges on the fake server and closes them."""
    opened: list[AnthropicJudge] = []

    def open_one(model: str = "m", **options: Any) -> AnthropicJudge:
        one = AnthropicJudge.from_spec(model, **{"base_url": fake_judge.base_url, **options})
        opened.append(one)
        return one

    yield open_one
    for one in opened:
        await one.aclose()


def only(reply: Reply) -> Choice:
    (choice,) = reply.choices
    return choice


# Samples


async def test_samples_are_held_to_the_levels(fake_judge: FakeJudge, judge: Opener) -> None:
    one = judge()
    assert await one.methods() == ("samples", "single")
    fake_judge.forget()
    reply = await one.complete(replace(ASKED, n=4))
    assert [c.text for c in reply.choices] == [c.text for c in reply.choices if c.text in "45"]
    assert (len(reply.choices), reply.usage.calls, fake_judge.count()) == (4, 4, 4)
    body = fake_judge.bodies(ROUTE)[0]
    schema = body["output_config"]["format"]["schema"]
    assert schema["properties"] == {"score": {"type": "integer", "enum": [1, 2, 3, 4, 5]}}
    assert schema["additionalProperties"] is False
    assert body["thinking"] == {"type": "disabled"}
    assert body["messages"][-1]["role"] == "user", "no prefill"
    assert one.identity()["revision"] == "fake-1"


@pytest.mark.fault("N7")
async def test_nothing_is_sent_that_the_models_refuse(fake_judge: FakeJudge, judge: Opener) -> None:
    await judge().complete(replace(ASKED, temperature=0.7, alternatives=20))
    sent = fake_judge.bodies(ROUTE)[0]
    assert set(sent) == {"model", "max_tokens", "messages", "thinking", "output_config"}


async def test_samples_follow_the_table(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(default=Table({"3": 0.25, "4": 0.75}))
    one = judge()
    replies = await asyncio.gather(*(one.complete(replace(ASKED, n=20)) for _ in range(10)))
    seen = Counter(choice.text for reply in replies for choice in reply.choices)
    mean = sum(int(text) * n for text, n in seen.items()) / seen.total()
    assert seen.total() == 200
    assert mean == pytest.approx(3.75, abs=3 * (0.1875 / 200) ** 0.5)


@pytest.mark.parametrize(
    ("scale", "answer", "level"),
    [
        (WORDS, "예", 1),
        (scale_from({"매우 미흡": 1, "매우 우수": 2}), "매우 우수", 1),
        (Scale.of(0, 0.5, 1), "0.5", 1),
        (Scale.of(-1, 0, 1), "-1", 0),
        (scale_from([1, 2], not_applicable="none", not_applicable_spellings=["N/A"]), "N/A", NA),
        (scale_from([1, 2], not_applicable="none", not_applicable_spellings=["N/A"]), "2", 1),
    ],
)
async def test_every_kind_of_level(
    fake_judge: FakeJudge, judge: Opener, scale: Scale, answer: str, level: int
) -> None:
    fake_judge.set(default=Table({answer: 1.0}))
    choice = only(await judge().complete(replace(ASKED, scale=scale, max_tokens=5)))
    assert parse_answer(choice.text, scale, "score_only") == level
    assert choice.text == answer


async def test_a_reason_before_the_score_is_part_of_the_schema(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(
        default=Table({"4": 1.0}), reason='Score: 2 of 4, said the candidate, "score": 1'
    )
    choice = only(await judge().complete(replace(ASKED, max_tokens=400)))
    schema = fake_judge.bodies(ROUTE)[0]["output_config"]["format"]["schema"]
    assert list(schema["properties"]) == ["reason", "score"]
    assert parse_answer(choice.text, SCALE, "reason_first") == 3
    assert choice.text.startswith(fake_judge.reason)


async def test_a_reason_that_is_asked_for_has_no_schema(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(default=Table({"It is right": 1.0}))
    turns: tuple[Message, ...] = (
        *ASKED.messages,
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Why?"},
    )
    asked = replace(
        ASKED, method="single", messages=turns, max_tokens=400, call=Call(purpose="reason")
    )
    assert only(await judge().complete(asked)).text == "It is right"
    assert "output_config" not in fake_judge.bodies(ROUTE)[0]


def test_what_is_no_such_object_is_left_as_it_is() -> None:
    for text in ('{"score": ', "4", '{"score": 9}', '{"score": true}', '{"rating": 4}', "[4]"):
        assert unwrap(text, SCALE) == text


@pytest.mark.parametrize(
    ("switch", "finish"),
    [({"refusal": "stop_reason"}, "refusal"), ({"cut_off": True}, "length")],
)
async def test_a_refusal_and_a_cut_are_no_scores(
    fake_judge: FakeJudge, judge: Opener, switch: dict[str, Any], finish: str
) -> None:
    fake_judge.set(**switch)
    choice = only(await judge().complete(ASKED))
    assert (choice.text, choice.finish) == ("", finish)


async def test_other_methods_are_refused_before_the_call(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    for changes in ({"method": "logprobs"}, {"method": "exact"}, {"prefill": "4"}):
        with pytest.raises(RejectedError, match="samples"):
            await judge().complete(replace(ASKED, **changes))  # type: ignore[arg-type]
    assert fake_judge.count() == 0


# What is refused


@pytest.mark.fault("N1")
@pytest.mark.parametrize("name", ["thinking", "output_config"])
async def test_a_refused_parameter_is_dropped_remembered_and_told_once(
    fake_judge: FakeJudge, judge: Opener, name: str
) -> None:
    fake_judge.set(refuse={name})
    one = judge()
    first, second = await one.complete(ASKED), await one.complete(ASKED)
    assert len(first.notes) == 1
    assert second.notes == ()
    assert name not in fake_judge.bodies(ROUTE)[-1]
    assert only(second).text in "45"
    again = judge()
    await one.methods()
    await again.methods()
    fake_judge.forget()
    await again.complete(ASKED)
    assert fake_judge.count() == 1, "what was learned is kept"


async def test_words_where_integers_are_refused(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(string_enum_only=True)
    reply = await judge().complete(ASKED)
    schema = fake_judge.bodies(ROUTE)[-1]["output_config"]["format"]["schema"]
    assert schema["properties"]["score"] == {"type": "string", "enum": ["1", "2", "3", "4", "5"]}
    assert only(reply).text in "45"
    assert reply.notes == ()


async def test_room_to_think_where_thinking_stays_on(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(refuse={"thinking"})
    await judge().complete(ASKED)
    before, after = fake_judge.bodies(ROUTE)
    assert after["max_tokens"] > before["max_tokens"] + 1000


# The provider's prompt cache


async def test_the_first_call_of_a_long_prompt_goes_alone(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(latency=0.02)
    one = judge()
    replies = await asyncio.gather(*(one.complete(replace(LONG, n=4)) for _ in range(3)))
    usage = sum((r.usage for r in replies[1:]), replies[0].usage)
    prompt = usage.prompt // 12
    assert usage.calls == 12
    assert usage.cached == 11 * (prompt - 3)
    mark = fake_judge.bodies(ROUTE)[0]["messages"][0]["content"][0]["cache_control"]
    assert mark == {"type": "ephemeral"}


async def test_a_first_call_that_fails_gives_its_turn_to_the_next(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(latency=0.01).fail(529, times=1)
    reply = await judge().complete(replace(LONG, n=4))
    assert len(reply.choices) == 3, "what was paid is kept, the caller asks for the rest"
    assert reply.usage.cached > 0


async def test_short_prompts_and_single_answers_are_not_cached(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(latency=0.03)
    one = judge()
    await one.complete(replace(ASKED, n=4))
    assert fake_judge.most_in_flight == 4, "nothing to wait for"
    await one.complete(replace(LONG, method="single"))
    assert "cache_control" not in json.dumps(fake_judge.bodies(ROUTE))


async def test_a_reason_finds_the_prompt_in_the_cache(fake_judge: FakeJudge, judge: Opener) -> None:
    one = judge()
    await one.complete(LONG)
    turns: tuple[Message, ...] = (
        *LONG.messages,
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Why?"},
    )
    await one.complete(replace(LONG, method="single", messages=turns, call=Call(purpose="reason")))
    first, second = (body["messages"][0] for body in fake_judge.bodies(ROUTE))
    assert first == second


async def test_an_endpoint_without_cache_control(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(refuse={"cache_control"})
    reply = await judge().complete(LONG)
    assert "cache_control" in reply.notes[0]
    assert only(reply).text in "45"


# Errors


@pytest.mark.fault("N10")
@pytest.mark.parametrize(
    ("kind", "how", "error", "says"),
    [
        (429, {"retry_after": "7"}, TransientError, "429"),
        (529, {}, TransientError, "529"),
        (500, {}, TransientError, "500"),
        (401, {}, FatalError, "access refused"),
        (403, {}, FatalError, "access refused"),
        (404, {"code": "not_found_error", "message": "model: m"}, FatalError, "no such model"),
        (400, {"message": "Your credit balance is too low"}, FatalError, "quota"),
        (400, {"message": "prompt is too long: 300000 tokens"}, RejectedError, "Shorten"),
        (413, {}, RejectedError, "Shorten"),
        (307, {"headers": {"Location": "http://else.test/"}}, FatalError, "another address"),
        ("garbage", {}, TransientError, "something else than JSON"),
        ("cut", {}, TransientError, "connection failed"),
        ("cut_body", {}, TransientError, "connection failed"),
    ],
)
async def test_every_failure_is_told_from_the_others(
    fake_judge: FakeJudge,
    judge: Opener,
    hosts_called: set[str],
    kind: Any,
    how: dict[str, Any],
    error: type[JudgeError],
    says: str,
) -> None:
    fake_judge.fail(kind, **how)
    with pytest.raises(error, match=says) as caught:
        await judge(api_key=KEY).complete(ASKED)
    assert fake_judge.count() == 1, "retries are not made here"
    assert f"anthropic:m at {fake_judge.host}" in str(caught.value)
    assert KEY not in str(caught.value)
    if isinstance(caught.value, TransientError) and "retry_after" in how:
        assert caught.value.retry_after == 7
    assert hosts_called == {fake_judge.host}


@pytest.mark.fault("N12")
async def test_a_wrong_key_or_model_stops_before_the_first_row(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(key="right")
    with pytest.raises(FatalError, match="api_key_env"):
        await judge().methods()
    fake_judge.set(key=None, models=frozenset({"other"}))
    with pytest.raises(FatalError, match="no such model"):
        await judge().methods()


@pytest.mark.fault("N11")
async def test_a_server_that_hangs_is_left(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.fail("hang")
    with pytest.raises(TransientError, match=r"no answer within 0\.2 s"):
        await judge(timeout=0.2).complete(ASKED)


# Keys and hosts


@pytest.mark.fault("X7")
@pytest.mark.fault("N13")
async def test_the_key_goes_to_no_other_host(
    fake_judge: FakeJudge, judge: Opener, monkeypatch: pytest.MonkeyPatch, hosts_called: set[str]
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-secret")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: secret\nX-Api-Key: secret")
    one = judge()
    await one.methods()
    await one.complete(ASKED)
    sent = json.dumps([(s.headers, s.body) for s in fake_judge.seen])
    for hidden in ("secret", KEY, "authorization", "x-api-key", "stainless"):
        assert hidden not in sent
    assert hosts_called == {fake_judge.host}
    # Named beside the key, the address belongs to it.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", fake_judge.base_url.removesuffix("/v1"))
    await judge(base_url=None).complete(ASKED)
    assert fake_judge.seen[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.fault("X7")
async def test_a_named_key_goes_to_its_host(
    fake_judge: FakeJudge, judge: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    fake_judge.set(key=KEY)
    assert only(await judge(api_key_env="MY_KEY").complete(ASKED)).text in "45"


def test_specs() -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        open_judge("anthropic")
    with pytest.raises(ConfigError, match="no option 'seed'"):
        open_judge("anthropic:m", seed=3, base_url="http://127.0.0.1:1")
    one = open_judge("anthropic", api_key=KEY)
    assert one.spec == f"anthropic:{DEFAULT_MODEL}"
    assert one.identity()["endpoint"] == "api.anthropic.com"
