"""`geval.judges.openai` against the fake server: methods, adaptation, tokens, errors, keys."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table, characters, hangul_halves

from geval.errors import ConfigError, FatalError, JudgeError, RejectedError, TransientError
from geval.judges.adapt import Abilities, sample_seed
from geval.judges.base import Choice, Reply, Request, open_judge
from geval.judges.endpoint import OPENAI, find_endpoint
from geval.judges.openai import OpenAIJudge
from geval.judges.presets import PRESETS
from geval.scale import Scale

KEY = "sk-test-0123456789abcdef"
SCALE = Scale.of(1, 2, 3, 4, 5)
ASKED = Request(
    ({"role": "user", "content": "How good? 얼마나?"},), "logprobs", 64, 20, scale=SCALE
)
Opener = Callable[..., OpenAIJudge]


@pytest.fixture
async def judge(fake_judge: FakeJudge) -> AsyncIterator[Opener]:
    """Opens judges on the fake server and closes them."""
    opened: list[OpenAIJudge] = []

    def open_one(model: str = "m", preset: str = "openai", **options: Any) -> OpenAIJudge:
        options = {"base_url": fake_judge.base_url, **options}
        one = PRESETS[preset].from_spec(model, **options)
        opened.append(one)
        return one

    yield open_one
    for one in opened:
        await one.aclose()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID", "CUSTOM_HEADERS", "ADMIN_KEY"):
        monkeypatch.delenv(f"OPENAI_{name}", raising=False)


def only(reply: Reply) -> Choice:
    (choice,) = reply.choices
    return choice


def probabilities(choice: Choice, position: int = 0) -> dict[str, float]:
    assert choice.tokens is not None
    listed = choice.tokens[position].alternatives
    return {a.text: math.exp(a.logprob) for a in listed if a.logprob > -25}


# Methods


async def test_a_plain_server_gives_logprobs_samples_and_single(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    one = judge()
    assert await one.methods() == ("logprobs", "samples", "single")
    calls = fake_judge.count()
    # Alternatives, raw or not, the three ways to continue a reply.
    assert fake_judge.count("/v1/chat/completions") <= 5
    assert one.abilities.probabilities == "raw"
    await one.methods()
    assert fake_judge.count() == calls, "the probe is kept"
    assert one.identity() == {
        "judge": "openai",
        "model": "m",
        "endpoint": fake_judge.host,
        "address": fake_judge.base_url,
        "revision": "fake-1",
    }


@pytest.mark.parametrize("route", ["decisions", "systemone"])
async def test_decision(fake_judge: FakeJudge, judge: Opener, route: str) -> None:
    fake_judge.set(default=Table({"3": 0.2, "4": 0.5, "5": 0.3}), **{route: True})
    one = judge()
    assert await one.methods() == ("decision", "logprobs", "samples", "single")
    fake_judge.forget()
    reply = await one.complete(replace(ASKED, method="decision"))
    assert reply.level_probs == pytest.approx((0, 0, 0.2, 0.5, 0.3))
    assert only(reply).text == "4"
    assert [s.route for s in fake_judge.seen] == [f"/v1/{route}"]


async def test_a_decision_that_is_refused_or_impossible(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(decisions=True, decision_refuses=True)
    reply = await judge().complete(replace(ASKED, method="decision"))
    assert reply.level_probs is None
    assert only(reply).finish == "refusal"
    wide = Scale.of(*range(11))
    with pytest.raises(RejectedError, match="10 levels"):
        await judge().complete(replace(ASKED, method="decision", scale=wide))
    fake_judge.set(decisions=False)
    with pytest.raises(RejectedError, match="no decision route"):
        await judge().complete(replace(ASKED, method="decision"))


async def test_what_chat_cannot_do_is_refused_before_the_call(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    with pytest.raises(RejectedError, match="already begun") as caught:
        await judge().complete(replace(ASKED, prefill="1"))
    assert caught.value.param == "prefill"
    with pytest.raises(RejectedError, match="exact"):
        await judge().complete(replace(ASKED, method="exact"))
    assert fake_judge.count() == 0


@pytest.mark.fault("N3")
@pytest.mark.parametrize("ignored", ["logprobs", "top_logprobs"])
async def test_logprobs_accepted_and_absent_are_found_by_the_probe(
    fake_judge: FakeJudge, judge: Opener, ignored: str
) -> None:
    fake_judge.set(ignore={ignored})
    one = judge()
    assert await one.methods() == ("samples", "single")
    reply = await one.complete(ASKED)
    assert only(reply).tokens is None
    assert any("gives none" in note for note in reply.notes)


@pytest.mark.fault("N3")
async def test_empty_alternatives_are_no_certainty(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(empty_alternatives=True)
    one = judge()
    assert only(await one.complete(ASKED)).tokens is None
    assert "logprobs" not in await one.methods()


async def test_a_model_for_decisions_alone(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(decisions=True).fail(400, route="/v1/chat/completions", message="use decisions")
    assert await judge().methods() == ("decision",)


# Adaptation


@pytest.mark.fault("N1")
@pytest.mark.fault("N2")
@pytest.mark.parametrize("shape", ["openai", "fastapi", "google", "plain"])
@pytest.mark.parametrize("name", ["temperature", "seed", "n", "reasoning_effort", "logprobs"])
async def test_a_refused_parameter_is_dropped_remembered_and_told_once(
    fake_judge: FakeJudge, judge: Opener, name: str, shape: Any
) -> None:
    fake_judge.set(refuse={name}, refusal_shape=shape)
    one = judge()
    asked = replace(ASKED, temperature=0.7, n=3)
    first = await one.complete(asked)
    assert fake_judge.count() == 2
    assert name in fake_judge.bodies()[0]
    assert name not in fake_judge.bodies()[1]
    assert len(first.notes) == 1
    assert name in first.notes[0]
    second = await one.complete(asked)
    assert fake_judge.count() == 3
    assert second.notes == ()
    assert len(first.choices) == (1 if name == "n" else 3)
    assert (first.choices[0].tokens is None) == (name == "logprobs")


@pytest.mark.fault("N2")
async def test_several_refusals_one_after_the_other(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(refuse={"temperature", "seed", "reasoning_effort", "max_tokens"})
    reply = await judge().complete(replace(ASKED, temperature=1.0))
    assert only(reply).text in ("4", "5")
    last = fake_judge.bodies()[-1]
    assert last["max_completion_tokens"] == 64
    assert not {"temperature", "seed", "reasoning_effort", "max_tokens"} & set(last)
    assert len(reply.notes) == 3, "another name for the token limit is nothing to tell"


@pytest.mark.fault("N2")
async def test_many_calls_under_way_learn_the_same_thing_once(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(refuse={"temperature"}, latency=0.02)
    one = judge()
    replies = await asyncio.gather(*(one.complete(ASKED) for _ in range(12)))
    assert sum(len(reply.notes) for reply in replies) == 1
    assert len({only(reply).text for reply in replies}) == 1, "one prompt, one seed"


async def test_both_names_of_the_token_limit(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(refuse={"max_completion_tokens"})
    one = judge()
    one.abilities.budget = "max_completion_tokens"
    await one.complete(ASKED)
    assert fake_judge.bodies()[-1]["max_tokens"] == 64
    fake_judge.set(refuse={"max_completion_tokens", "max_tokens"})
    with pytest.raises(RejectedError):
        await one.complete(ASKED)


@pytest.mark.fault("N5")
@pytest.mark.parametrize("how", ["refuse", "refuse_like_vllm", "clamp"])
async def test_the_cap_on_alternatives_is_learned(
    fake_judge: FakeJudge, judge: Opener, how: Any
) -> None:
    fake_judge.set(top_cap=5, top_cap_how=how)
    one = judge()
    assert "logprobs" in await one.methods()
    assert one.abilities.top == 5
    fake_judge.forget()
    reply = await one.complete(ASKED)
    assert fake_judge.bodies()[0]["top_logprobs"] == 5
    assert fake_judge.count() == 1
    assert probabilities(only(reply)) == pytest.approx({"4": 0.6, "5": 0.4})
    assert len(reply.notes) == 1
    assert "at most 5" in reply.notes[0]


async def test_reasoning_is_set_as_low_as_the_model_takes(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(efforts=("low", "medium", "high"))
    one = judge()
    reply = await one.complete(ASKED)
    assert fake_judge.bodies()[-1]["reasoning_effort"] == "low"
    assert "low" in reply.notes[0]


@pytest.mark.fault("P4")
async def test_thinking_is_switched_off_in_the_chat_template(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(think="block", thinks_until="chat_template_kwargs")
    one = judge()
    assert "logprobs" in await one.methods()
    choice = only(await one.complete(ASKED))
    assert choice.text == "4"
    assert fake_judge.bodies()[-1]["chat_template_kwargs"] == {"enable_thinking": False}


async def test_together_takes_a_number(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(shape="together")
    one = judge()
    assert "logprobs" in await one.methods()
    reply = await one.complete(ASKED)
    assert fake_judge.bodies()[-1]["logprobs"] == 20
    assert probabilities(only(reply)) == pytest.approx({"4": 0.6, "5": 0.4})


async def test_an_unknown_refusal_is_not_repeated(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.fail(400, message="this prompt is not allowed")
    with pytest.raises(RejectedError, match="not allowed"):
        await judge().complete(ASKED)
    assert fake_judge.count() == 1
    fake_judge.heal()
    fake_judge.set(refuse={"top_k"})
    with pytest.raises(RejectedError, match="top_k"):
        await judge(extra={"top_k": 3}).complete(ASKED)


def test_abilities_are_plain_data() -> None:
    known = Abilities(top=5, refused={"seed"}, methods=("samples",))
    assert Abilities.from_dict(json.loads(json.dumps(known.to_dict()))) == known


# Samples


async def test_samples_have_seeds_of_their_own(fake_judge: FakeJudge, judge: Opener) -> None:
    one = judge(seed=3)
    asked = replace(ASKED, method="samples", alternatives=0, temperature=None)
    texts = [only(await one.complete(replace(asked, index=i))).text for i in range(30)]
    again = [only(await one.complete(replace(asked, index=i))).text for i in range(30)]
    assert texts == again
    assert set(texts) == {"4", "5"}
    seeds = [body["seed"] for body in fake_judge.bodies()[:30]]
    assert len(set(seeds)) == 30
    assert seeds[0] == sample_seed(3, 0)
    # A server's default may be anything, samples are to come from the model's own distribution.
    assert fake_judge.bodies()[0]["temperature"] == fake_judge.bodies()[0]["top_p"] == 1
    assert "logprobs" not in fake_judge.bodies()[0]


@pytest.mark.fault("N3")
async def test_an_ignored_n_is_counted_and_told(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(ignore={"n"})
    one = judge()
    asked = replace(ASKED, method="samples", n=5, temperature=1.0)
    first = await one.complete(asked)
    assert len(first.choices) == 1
    assert any("ignores n" in note for note in first.notes)
    await one.complete(asked)
    assert "n" not in fake_judge.bodies()[-1]
    fake_judge.set(ignore=set())
    assert len((await judge().complete(asked)).choices) == 5


# Tokens


@pytest.mark.parametrize("shape", ["chat", "legacy"])
async def test_both_shapes_of_logprobs(fake_judge: FakeJudge, judge: Opener, shape: Any) -> None:
    fake_judge.set(shape=shape, style="score_first", split=hangul_halves)
    choice = only(await judge().complete(ASKED))
    assert choice.text == f"4\n{fake_judge.reason}"
    assert spelled(choice) == choice.text
    assert probabilities(choice) == pytest.approx({"4": 0.6, "5": 0.4})


def spelled(choice: Choice) -> str:
    assert choice.tokens is not None
    text = "".join(token.text for token in choice.tokens)
    return text.encode("utf-8", "surrogateescape").decode()


KOREAN = Table({"아니요": 0.4, "안 됨": 0.3, "예": 0.3})


async def test_half_characters_are_kept_as_bytes(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(default=KOREAN, split=hangul_halves, style="score_first")
    choice = only(await judge().complete(ASKED))
    first = "아".encode()[:2].decode("utf-8", "surrogateescape")
    assert probabilities(choice)[first] == pytest.approx(0.7)
    assert spelled(choice) == choice.text


@pytest.mark.parametrize("halves", ["no_bytes", "replaced"])
async def test_halves_written_as_replacement_marks_are_mended(
    fake_judge: FakeJudge, judge: Opener, halves: Any
) -> None:
    """The reason is full of them, the score before it can be read all the same."""
    fake_judge.set(split=hangul_halves, style="score_first", halves=halves)
    choice = only(await judge().complete(ASKED))
    assert choice.text == f"4\n{fake_judge.reason}"
    assert spelled(choice) == choice.text
    assert probabilities(choice) == pytest.approx({"4": 0.6, "5": 0.4})
    # An answer that is itself in halves is lost, and says so by having no alternatives.
    fake_judge.set(default=KOREAN)
    answer = only(await judge().complete(ASKED))
    assert spelled(answer) == answer.text
    assert answer.tokens is not None
    assert answer.tokens[0].alternatives == ()


async def test_wrong_bytes_give_way_to_the_token_text(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(halves="wrong_bytes", split=characters, style="score_first")
    choice = only(await judge().complete(ASKED))
    assert spelled(choice) == choice.text == f"4\n{fake_judge.reason}"
    assert probabilities(choice) == pytest.approx({"4": 0.6, "5": 0.4})


@pytest.mark.fault("S8")
@pytest.mark.parametrize("placeholder", ["-9999", "null", "-inf"])
async def test_placeholders_are_handed_on_without_a_crash(
    fake_judge: FakeJudge, judge: Opener, placeholder: Any
) -> None:
    fake_judge.set(placeholder=placeholder)
    choice = only(await judge().complete(ASKED))
    assert choice.tokens is not None
    first = choice.tokens[0]
    if placeholder == "-9999":
        assert first.logprob == -9999
    if placeholder == "null":
        assert math.isnan(first.logprob)
    if placeholder == "-inf":
        assert first.alternatives[1].logprob == -math.inf


@pytest.mark.fault("P3")
async def test_reasoning_beside_the_content(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(think="field", think_in_logprobs=True)
    choice = only(await judge().complete(ASKED))
    assert choice.text == "4"
    assert choice.reasoning == fake_judge.thought
    assert spelled(choice) == "4", "tokens of the reasoning are no tokens of the answer"
    assert probabilities(choice) == pytest.approx({"4": 0.6, "5": 0.4})


@pytest.mark.fault("P1")
async def test_the_end_is_told(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(style="score_first")
    cut = only(await judge().complete(replace(ASKED, max_tokens=3)))
    assert cut.finish == "length"
    assert probabilities(cut) == pytest.approx({"4": 0.6, "5": 0.4})
    assert only(await judge().complete(ASKED)).finish == "stop"


@pytest.mark.fault("P1")
async def test_a_reply_cut_inside_a_character(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(style="score_first", split=hangul_halves, reason="빠졌다")
    cut = only(await judge().complete(replace(ASKED, max_tokens=5)))
    assert cut.text == "4\n빠"
    assert spelled(cut) == cut.text


@pytest.mark.fault("P4")
async def test_an_empty_answer_is_a_cut_off_answer(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(cut_off=True)
    reply = await judge().complete(ASKED)
    assert (only(reply).text, only(reply).finish, only(reply).tokens) == ("", "length", None)
    assert reply.usage.completion == 64


@pytest.mark.parametrize("refusal", ["message", "content_filter"])
async def test_refusals(fake_judge: FakeJudge, judge: Opener, refusal: Any) -> None:
    fake_judge.set(refusal=refusal)
    choice = only(await judge().complete(ASKED))
    assert choice.tokens is None
    assert choice.finish == ("refusal" if refusal == "message" else "content_filter")
    assert ("sorry" in choice.text) == (refusal == "message")


async def test_usage_is_counted(judge: Opener) -> None:
    usage = (await judge().complete(ASKED)).usage
    assert (usage.calls, usage.completion) == (1, 1)
    assert usage.prompt > usage.cached > 0


# Errors


@pytest.mark.fault("N10")
@pytest.mark.parametrize(
    ("kind", "how", "error", "says"),
    [
        (429, {"retry_after": "7"}, TransientError, "429"),
        (429, {}, TransientError, "too many"),
        (429, {"code": "insufficient_quota"}, FatalError, "quota"),
        (402, {}, FatalError, "quota"),
        (500, {}, TransientError, "500"),
        (503, {"retry_after": "2"}, TransientError, "503"),
        (529, {}, TransientError, "529"),
        (408, {}, TransientError, "408"),
        (409, {}, TransientError, "409"),
        (401, {}, FatalError, "access refused"),
        (403, {}, FatalError, "access refused"),
        (404, {}, FatalError, "no route /chat/completions"),
        (404, {"code": "model_not_found"}, FatalError, "no such model"),
        (400, {"message": "The model `x` does not exist"}, FatalError, "no such model"),
        (400, {"message": "maximum context length is 8192"}, RejectedError, "Shorten"),
        (422, {}, RejectedError, "422"),
        (307, {"headers": {"Location": "http://else.test/v1"}}, FatalError, "another address"),
        ("within", {"code": "429"}, TransientError, "too many"),
        ("within", {"code": "402"}, FatalError, "quota"),
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
    text = str(caught.value)
    assert f"openai:m at {fake_judge.host}" in text
    assert KEY not in text
    if isinstance(caught.value, TransientError):
        waits = how.get("retry_after")
        assert caught.value.retry_after == (float(waits) if waits else None)
    assert hosts_called == {fake_judge.host}


@pytest.mark.fault("N12")
async def test_a_missing_model_or_a_wrong_key_stops_at_the_probe(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(models=frozenset({"other"}))
    with pytest.raises(FatalError, match="no such model"):
        await judge().methods()
    fake_judge.set(models=None, key="right")
    with pytest.raises(FatalError, match="api_key_env"):
        await judge().methods()


async def test_a_probe_that_did_not_get_through_is_asked_again(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.fail(503, times=1, route="/v1/chat/completions")
    one = judge()
    with pytest.raises(TransientError):
        await one.methods()
    assert "logprobs" in await one.methods()


@pytest.mark.fault("N11")
async def test_a_server_that_hangs_is_left(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.fail("hang", times=1)
    one = judge(timeout=0.2)
    with pytest.raises(TransientError, match=r"no answer within 0\.2 s"):
        await one.complete(ASKED)
    one.transport.timeout = 30
    assert only(await one.complete(ASKED)).text == "4"


@pytest.mark.fault("N12")
async def test_a_server_that_is_not_there_is_fatal_until_it_has_answered(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(FatalError, match="cannot connect"):
        await judge(base_url=nobody).methods()
    with FakeJudge() as leaving:
        one = judge(base_url=leaving.base_url)
        await one.complete(ASKED)
    with pytest.raises(TransientError, match="connection failed"):
        await one.complete(ASKED)


# Keys and hosts


@pytest.mark.fault("X7")
@pytest.mark.fault("N13")
async def test_the_key_of_openai_goes_to_no_other_host(
    fake_judge: FakeJudge, judge: Opener, monkeypatch: pytest.MonkeyPatch, hosts_called: set[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer secret\nX-Team: secret")
    one = judge()
    await one.methods()
    await one.complete(ASKED)
    sent = json.dumps([(s.headers, s.body) for s in fake_judge.seen])
    assert "secret" not in sent
    assert KEY not in sent
    assert "authorization" not in sent
    assert "stainless" not in sent
    assert hosts_called == {fake_judge.host}


@pytest.mark.fault("X7")
async def test_a_named_key_goes_to_its_host_and_into_no_message(
    fake_judge: FakeJudge, judge: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    fake_judge.set(key=KEY)
    await judge(api_key_env="MY_KEY").complete(ASKED)
    assert fake_judge.seen[0].headers["authorization"] == f"Bearer {KEY}"
    fake_judge.set(key="another")  # the server echoes the key it was given
    with pytest.raises(FatalError, match="MY_KEY") as caught:
        await judge(api_key_env="MY_KEY").complete(ASKED)
    assert KEY not in f"{caught.value!r}{caught.value}{caught.value.__cause__!r}"
    assert KEY not in repr(judge(api_key_env="MY_KEY").endpoint)
    with pytest.raises(ConfigError, match="OTHER_KEY"):
        judge(api_key_env="OTHER_KEY")


@pytest.mark.fault("X7")
async def test_key_and_address_of_the_environment_belong_together(
    fake_judge: FakeJudge, judge: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", fake_judge.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    await judge(base_url=None).complete(ASKED)
    assert fake_judge.seen[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.fault("X7")
@pytest.mark.parametrize(
    ("url", "env_url", "sent"),
    [
        (None, None, True),
        ("https://api.openai.com/v1", None, True),
        ("https://eu.api.openai.com/v1", None, True),
        ("https://api.openai.com.evil.test/v1", None, False),
        ("http://localhost:8000/v1", None, False),
        (None, "http://box:8000/v1", True),
        ("http://box:8000/v1/", "http://box:8000/v1", True),
        ("http://box:9000/v1", "http://box:8000/v1", False),
    ],
)
def test_which_host_gets_the_key(url: str | None, env_url: str | None, sent: bool) -> None:
    environ = {"OPENAI_API_KEY": KEY} | ({"OPENAI_BASE_URL": env_url} if env_url else {})
    endpoint = find_endpoint(OPENAI, url, environ=environ)
    assert (endpoint.key == KEY) is sent


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        find_endpoint(OPENAI, environ={})


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x/v1", "https://me:pass@host/v1", "http://host:x/v1"]
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_endpoint(OPENAI, url, environ={})
    assert "pass@" not in str(caught.value)


def test_options_are_checked(fake_judge: FakeJudge) -> None:
    with pytest.raises(ConfigError, match="model"):
        open_judge("openai:", base_url=fake_judge.base_url)
    with pytest.raises(ConfigError, match="base_url"):
        open_judge("openai:m", base_ulr=fake_judge.base_url)
    with pytest.raises(ConfigError, match="positive"):
        open_judge("openai:m", base_url=fake_judge.base_url, timeout=0)


@pytest.mark.fault("N13")
async def test_data_is_not_carried_on_by_a_redirect(
    fake_judge: FakeJudge, judge: Opener, hosts_called: set[str]
) -> None:
    fake_judge.fail(308, headers={"Location": "http://elsewhere.test/v1/chat/completions"})
    with pytest.raises(FatalError, match=r"elsewhere\.test"):
        await judge().complete(ASKED)
    assert hosts_called == {fake_judge.host}


def test_importing_the_judge_is_cheap() -> None:
    """The SDK takes seconds to import: only a call needs it."""
    import subprocess
    import sys

    code = "import geval.judges.openai, sys; print('openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_many_at_once(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(latency=0.05)
    one = judge(concurrency=64)
    prompts = [({"role": "user", "content": f"row {i}"},) for i in range(64)]
    replies = await asyncio.gather(
        *(one.complete(replace(ASKED, messages=p)) for p in prompts)  # type: ignore[arg-type]
    )
    assert all(probabilities(only(r)) == pytest.approx({"4": 0.6, "5": 0.4}) for r in replies)
    assert fake_judge.most_in_flight > 32


@pytest.mark.fault("N13")
async def test_the_last_step_before_the_wire_knows_the_endpoint(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    """Whatever the SDK makes of an address, port and scheme included."""
    with FakeJudge() as other:
        one = judge()
        one.transport.open().base_url = other.base_url
        with pytest.raises(ConfigError, match="refused to call"):
            await one.complete(ASKED)
        assert other.count() == 0
