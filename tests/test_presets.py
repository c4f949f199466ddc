"""Presets, prefill and probe of OpenAI-compatible judges, against the fake server."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table, hangul_halves, whole

from geval.distribution import Reading
from geval.errors import ConfigError, FatalError, RejectedError, TransientError
from geval.judges.base import Alternative, Choice, Judge, Reply, Request, open_judge
from geval.judges.endpoint import azure_endpoint, local_url
from geval.judges.kept import Kept
from geval.judges.openai import OpenAIJudge
from geval.judges.openai_probe import PROMPT
from geval.reading.reader import read_exact
from geval.scale import Scale, scale_from

KEY = "azure-0123456789abcdef"
SCALE = Scale.of(1, 2, 3, 4, 5)
ASKED = Request(({"role": "user", "content": "How good?"},), "logprobs", 8, 20, scale=SCALE)
TENS = Table({"1": 0.08, "10": 0.72, "9": 0.15, "8": 0.05})
CHAT = "/v1/chat/completions"
Opener = Callable[..., OpenAIJudge]


@pytest.fixture
async def judge(fake_judge: FakeJudge) -> AsyncIterator[Opener]:
    """Opens judges on the fake server and closes them."""
    opened: list[Judge] = []

    def open_one(spec: str = "vllm:m", **options: Any) -> Judge:
        one = open_judge(spec, **{"base_url": fake_judge.base_url, **options})
        opened.append(one)
        return one

    yield open_one  # type: ignore[misc]
    for one in opened:
        await one.aclose()


def only(reply: Reply) -> Choice:
    (choice,) = reply.choices
    return choice


async def exact(one: Judge, scale: Scale, wide: int = 1000) -> Reading:
    """The reading of method `exact`, asked as scoring asks."""

    async def ask(said: str) -> tuple[Alternative, ...]:
        request = replace(
            ASKED, method="exact", max_tokens=1, alternatives=wide, prefill=said, scale=scale
        )
        tokens = only(await one.complete(request)).tokens
        return tokens[0].alternatives if tokens else ()

    reading = await read_exact(ask, scale)
    assert reading is not None
    return reading


# Presets


async def test_a_server_of_one_model_names_it(
    fake_judge: FakeJudge, judge: Opener, hosts_called: set[str]
) -> None:
    fake_judge.set(model="/models/qwen.gguf")
    one = open_judge(f"llamacpp:http://{fake_judge.host}")
    await one.methods()
    assert one.identity()["model"] == one.identity()["revision"] == "qwen.gguf"
    assert fake_judge.bodies()[0]["model"] == "/models/qwen.gguf"
    assert "authorization" not in json.dumps([s.headers for s in fake_judge.seen])
    assert hosts_called == {fake_judge.host}
    await one.aclose()
    fake_judge.set(models=frozenset({"a", "b"}))
    with pytest.raises(FatalError, match="serves 2 models: a, b"):
        await judge("vllm:").methods()


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("ollama:m", "http://127.0.0.1:11434/v1"),
        ("vllm:m", "http://127.0.0.1:8000/v1"),
        ("llamacpp:", "http://127.0.0.1:8080/v1"),
        ("llamacpp:http://box:9/v1", "http://box:9/v1"),
        ("llamacpp:box:9", "http://box:9/v1"),
    ],
)
def test_where_servers_listen(spec: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address and key of OpenAI are nothing to them."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.test/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    one = open_judge(spec)
    assert isinstance(one, OpenAIJudge)
    assert (one.endpoint.base_url, one.endpoint.key) == (url, None)
    assert one.spec.partition(":")[0] == spec.partition(":")[0]


def test_an_address_as_it_is_typed() -> None:
    assert local_url("localhost:8080/") == "http://localhost:8080/v1"
    assert local_url("https://box/api/v3") == "https://box/api/v3"
    assert local_url("") == ""


def test_what_is_amiss_in_a_spec() -> None:
    with pytest.raises(ConfigError, match="the judge ollama needs a model"):
        open_judge("ollama:")
    with pytest.raises(ConfigError, match="the judge vllm has no option 'api_version'"):
        open_judge("vllm:m", api_version="1")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        open_judge("azure:d")
    with pytest.raises(ConfigError, match="Known: anthropic, azure, llamacpp, local, ollama"):
        open_judge("olama:m")


@pytest.mark.fault("X7")
@pytest.mark.parametrize("version", [None, "2026-10-01"])
async def test_azure(
    fake_judge: FakeJudge,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    hosts_called: set[str],
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"http://{fake_judge.host}/")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    if version:
        monkeypatch.setenv("OPENAI_API_VERSION", version)
    fake_judge.set(key=KEY)
    one = open_judge("azure:my judge")
    assert await one.methods() == ("logprobs", "samples", "single")
    seen = next(s for s in fake_judge.seen if "chat" in s.route)
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers
    assert seen.address == (
        f"/openai/deployments/my%20judge/chat/completions?api-version={version}"
        if version
        else "/openai/v1/chat/completions"
    )
    assert hosts_called == {fake_judge.host}
    await one.aclose()


@pytest.mark.fault("X7")
def test_a_key_of_azure_is_for_one_resource() -> None:
    env = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com", "AZURE_OPENAI_API_KEY": KEY}
    assert azure_endpoint("d", environ=env).key == KEY
    with pytest.raises(ConfigError, match="AZURE_OPENAI_API_KEY"):
        azure_endpoint("d", "https://theirs.openai.azure.com", environ=env)
    assert azure_endpoint("d", "https://openai.azure.com.evil.test", environ=env).key is None


async def test_samples_come_from_the_whole_distribution(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    await judge("vllm:m").complete(replace(ASKED, method="samples", temperature=None))
    body = fake_judge.bodies()[-1]
    assert {n: body[n] for n in ("temperature", "top_p", "top_k", "min_p")} == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
    }
    fake_judge.set(refuse={"top_k", "min_p"}, refusal_shape="fastapi")
    one = judge("vllm:m")
    reply = await one.complete(replace(ASKED, method="samples", temperature=None))
    assert reply.notes == (), "nothing that a user of this server could have set"
    assert "top_k" not in fake_judge.bodies()[-1]


# A prompt that is cut


@pytest.mark.parametrize("letters", [4_000, 40_000])
async def test_a_prompt_that_the_server_cuts_is_no_score(
    fake_judge: FakeJudge, judge: Opener, letters: int
) -> None:
    fake_judge.set(context=512)
    one = judge("ollama:m")
    await one.methods()
    assert only(await one.complete(ASKED)).text == "4"
    asked = replace(ASKED, messages=({"role": "user", "content": "word " * (letters // 5)},))
    with pytest.raises(RejectedError, match="cut the prompt to its context of 512 tokens"):
        await one.complete(asked)
    fake_judge.set(context=20_000)
    one.forget()
    await one.methods()
    assert only(await one.complete(asked)).text == "4"


async def test_a_cut_is_seen_where_the_server_tells_nothing_of_its_context(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(context=100).fail(404, route="/api/ps")
    one = judge("ollama:m")
    asked = replace(ASKED, messages=({"role": "user", "content": "가나다라 " * 200},))
    with pytest.raises(RejectedError, match="cut the prompt"):
        await one.complete(asked)


# Exact


@pytest.mark.parametrize("way", ["plain", "continue", "prefix"])
async def test_exact_gives_the_table_exactly(
    fake_judge: FakeJudge, judge: Opener, way: Any
) -> None:
    fake_judge.set(default=TENS, prefill=way)
    one = judge("openai:m")
    assert await one.methods() == ("exact", "logprobs", "samples", "single")
    assert one.abilities.prefill == way
    fake_judge.forget()
    reading = await exact(one, Scale.of(*range(1, 11)))
    mean = reading.distribution("exact").mean
    assert mean == pytest.approx(0.08 * 1 + 0.72 * 10 + 0.15 * 9 + 0.05 * 8, abs=1e-6)
    assert reading.coverage == pytest.approx(1)
    assert fake_judge.count() == 2
    assert fake_judge.bodies()[0]["messages"] == list(ASKED.messages), "nothing is begun yet"


async def test_exact_with_levels_of_several_tokens(fake_judge: FakeJudge, judge: Opener) -> None:
    scale = scale_from({"매우 미흡": 1, "매우 우수": 2, "우수": 3})
    table = Table({"매우 미흡": 0.25, "매우 우수": 0.5, "우수": 0.2})
    for split in (hangul_halves, whole("매우 미흡")):
        fake_judge.set(default=table, prefill="continue", split=split)
        one = judge("vllm:m")
        assert "exact" in await one.methods()
        reading = await exact(one, scale)
        if split is hangul_halves:
            # Half a character cannot be said again, and what it becomes is not invented.
            assert reading.levels == [0, 0, pytest.approx(0.2)]
            assert reading.ambiguous == pytest.approx(0.75)
        else:
            assert reading.levels == pytest.approx([0.25, 0.5, 0.2])


async def test_the_end_of_a_reply_is_the_empty_text(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(default=Table({"1": 0.7, "10": 0.3}), prefill="plain")
    one = judge("llamacpp:")
    await one.methods()
    request = replace(ASKED, method="exact", max_tokens=1, alternatives=1000, prefill="1")
    choice = only(await one.complete(request))
    assert choice.tokens is not None
    listed = {a.text: math.exp(a.logprob) for a in choice.tokens[0].alternatives[:2]}
    assert listed == pytest.approx({"": 0.7, "0": 0.3})
    assert choice.text == ""


@pytest.mark.parametrize("switch", [{"prefill": None}, {"prefill": "new_turn"}, {"dull": True}])
async def test_exact_is_not_offered_without_proof(
    fake_judge: FakeJudge, judge: Opener, switch: dict[str, Any]
) -> None:
    fake_judge.set(**{"prefill": "plain", **switch})
    one = judge("vllm:m")
    assert await one.methods() == ("logprobs", "samples", "single")
    with pytest.raises(RejectedError, match="already begun"):
        await one.complete(replace(ASKED, method="exact", prefill="1"))


async def test_a_probe_that_breaks_off_proves_nothing(fake_judge: FakeJudge, judge: Opener) -> None:
    fake_judge.set(prefill="plain")
    one = judge("vllm:m")
    fake_judge.fail(429)
    with pytest.raises(TransientError):
        await one.methods()
    fake_judge.heal()
    assert "exact" in await one.methods()


@pytest.mark.fault("N5")
@pytest.mark.parametrize("how", ["refuse", "refuse_like_vllm", "clamp"])
async def test_exact_takes_what_the_server_gives(
    fake_judge: FakeJudge, judge: Opener, how: Any
) -> None:
    fake_judge.set(prefill="continue", top_cap=20, top_cap_how=how)
    one = judge("vllm:m")
    assert "exact" in await one.methods()
    fake_judge.forget()
    assert (await exact(one, SCALE)).levels == pytest.approx([0, 0, 0, 0.6, 0.4])
    assert fake_judge.count() == 1
    if how != "clamp":
        assert fake_judge.bodies()[0]["top_logprobs"] == 20


# Raw and processed


@pytest.mark.fault("S19")
@pytest.mark.parametrize("processed", [False, True])
async def test_raw_or_processed_the_score_is_the_same(
    fake_judge: FakeJudge, judge: Opener, processed: bool
) -> None:
    fake_judge.set(processed=processed, prefill="plain")
    one = judge("openai:m")
    assert await one.methods() == ("exact", "logprobs", "samples", "single")
    assert one.abilities.probabilities == ("processed" if processed else "raw")
    fake_judge.forget()
    choice = only(await one.complete(ASKED))
    assert choice.tokens is not None
    listed = {a.text: math.exp(a.logprob) for a in choice.tokens[0].alternatives[:2]}
    assert sum(int(t) * p for t, p in listed.items()) == pytest.approx(4.4)
    body = fake_judge.bodies()[-1]
    assert (body["temperature"], body.get("top_p")) == ((1.0, 1.0) if processed else (0, None))
    assert (await exact(one, SCALE)).levels == pytest.approx([0, 0, 0, 0.6, 0.4])


@pytest.mark.parametrize("switch", [{"refuse": {"temperature"}}, {"dull": True, "pad": False}])
async def test_what_cannot_be_decided_is_unknown(
    fake_judge: FakeJudge, judge: Opener, switch: dict[str, Any]
) -> None:
    fake_judge.set(default=Table({"4": 1.0}), **switch)
    one = judge("openai:m")
    await one.methods()
    assert one.abilities.probabilities == "unknown"


# Samples


@pytest.mark.fault("P2")
async def test_a_model_that_talks_is_held_to_the_levels(
    fake_judge: FakeJudge, judge: Opener
) -> None:
    fake_judge.set(chatty=True)
    one = judge("openai:m")
    await one.methods()
    assert one.abilities.structured
    reply = await one.complete(replace(ASKED, method="samples", n=8, temperature=None))
    assert {c.text for c in reply.choices} <= {"4", "5"}
    fake_judge.set(schema=False)
    other = judge("openai:other")
    await other.methods()
    assert not other.abilities.structured
    assert "response_format" not in json.dumps(other._body(replace(ASKED, method="samples")))


async def test_a_model_that_obeys_needs_no_schema(fake_judge: FakeJudge, judge: Opener) -> None:
    one = judge("openai:m")
    await one.methods()
    await one.complete(replace(ASKED, method="samples"))
    assert "response_format" not in json.dumps(fake_judge.bodies())


# What is kept


def probes(folder: Path) -> list[Path]:
    return sorted(folder.glob("probes/*.json"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEVAL_CACHE", str(tmp_path))
    return tmp_path


async def test_a_probe_is_kept_for_the_next_run(
    fake_judge: FakeJudge, judge: Opener, cache: Path
) -> None:
    fake_judge.set(prefill="continue", top_cap=7)
    first = judge("vllm:m", api_key="secret-key-1")
    methods = await first.methods()
    fake_judge.forget()
    second = judge("vllm:m", api_key="secret-key-1")
    assert await second.methods() == methods
    assert fake_judge.count() == 0
    assert second.abilities == first.abilities
    for other in ({"extra": {"x": 1}}, {"reasoning": "low"}):
        await judge("vllm:m", api_key="secret-key-1", **other).methods()
    await judge("vllm:other", api_key="secret-key-1").methods()
    assert len(probes(cache)) == 4, "one per endpoint, model and options"
    text = "".join(path.read_text() for path in probes(cache))
    assert "secret" not in text
    assert PROMPT[0]["content"] not in text


@pytest.mark.parametrize("spoil", ["{", '{"format": 0}', "[]", ""])
async def test_a_broken_or_old_probe_is_made_again(
    fake_judge: FakeJudge, judge: Opener, cache: Path, spoil: str
) -> None:
    await judge("vllm:m").methods()
    (path,) = probes(cache)
    path.write_text(spoil)
    fake_judge.forget()
    await judge("vllm:m").methods()
    assert fake_judge.count() > 0
    assert json.loads(path.read_text())["found"]["methods"]


def test_what_is_kept_grows_old(cache: Path) -> None:
    kept = Kept({"endpoint": "http://h/v1", "model": "m"})
    kept.save({"a": 1})
    assert kept.load() == {"a": 1}
    assert Kept(kept.what, timedelta(microseconds=-1)).load() is None
    assert Kept({**kept.what, "model": "n"}).load() is None
    kept.forget()
    assert kept.load() is None


def test_a_place_that_cannot_be_written_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEVAL_CACHE", str(tmp_path / "file"))
    kept = Kept({"endpoint": "e"})
    kept.save({"a": 1})
    assert kept.load() is None


async def test_a_refusal_that_contradicts_the_probe_ends_it(
    fake_judge: FakeJudge, judge: Opener, cache: Path
) -> None:
    await judge("vllm:m").methods()
    fake_judge.set(refuse={"logprobs"})
    one = judge("vllm:m")
    assert "logprobs" in await one.methods()
    reply = await one.complete(ASKED)
    assert "refuses logprobs" in reply.notes[0]
    assert "logprobs" not in await one.methods()
    assert probes(cache) == [], "the next run looks again"


async def test_a_lesser_refusal_is_kept_with_the_probe(
    fake_judge: FakeJudge, judge: Opener, cache: Path
) -> None:
    await judge("vllm:m").methods()
    fake_judge.set(refuse={"n"})
    await judge("vllm:m").complete(replace(ASKED, method="samples", n=3))
    one = judge("vllm:m")
    await one.methods()
    await one.complete(replace(ASKED, method="samples", n=3))
    fake_judge.forget()
    await one.complete(replace(ASKED, method="samples", n=3))
    assert fake_judge.count() == 1


@pytest.mark.parametrize("url", ["http://h/v1?key=abc", "http://h/v1#part"])
def test_an_address_with_a_query_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="query"):
        open_judge("openai:m", base_url=url)


async def test_prompts_that_begin_alike_are_named_to_the_provider_alone(
    fake_judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geval.judges.base import Call, Request
    from geval.judges.endpoint import Endpoint
    from geval.judges.openai import OpenAIJudge

    request = Request(
        ({"role": "user", "content": "x"},), "single", 4, call=Call(template="0123abcd")
    )
    for official in (True, False):
        judge = OpenAIJudge("m", Endpoint("https://h/v1", "key", official=official))
        body = judge._body(request)
        assert (body.get("prompt_cache_key") == "geval-0123abcd") is official
    judge.abilities.refused.add("prompt_cache_key")
    assert "prompt_cache_key" not in judge._body(request)
