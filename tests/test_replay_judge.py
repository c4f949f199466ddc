"""`geval.judges.replay` and the records that runs are written with."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table, hangul_halves

from geval.errors import ConfigError, RejectedError
from geval.judges.base import (
    Alternative,
    Call,
    Choice,
    Method,
    Reply,
    Request,
    Token,
    Usage,
    open_judge,
)
from geval.judges.records import KEPT_TOKENS, dumps, record_to_reply, reply_to_record
from geval.judges.replay import ReplayJudge
from geval.reading.reader import read_choice
from geval.scale import Scale

SCALE = Scale.of(1, 2, 3, 4, 5)
HALF = "아".encode()[:2].decode("utf-8", "surrogateescape")


def asked(
    text: str = "질문: 얼마나 좋은가?", method: Method = "logprobs", **changes: Any
) -> Request:
    call = Call(**{k: changes.pop(k) for k in list(changes) if k in Call.__slots__})
    base = Request(({"role": "user", "content": text},), method, 16, 20, scale=SCALE, call=call)
    return replace(base, **changes)


def token(text: str, **alternatives: float) -> Token:
    listed = tuple(Alternative(t, math.log(p)) for t, p in alternatives.items())
    return Token(text, math.log(alternatives.get(text, 1.0)), listed)


REPLY = Reply(
    (
        Choice(
            "4\n이유", (token("4", **{"4": 0.6, "5": 0.4}), Token("\n이유", -0.1)), finish="length"
        ),
    ),
    Usage(1, 10, 3, 5),
    "fake-1",
)


def write(path: Path, *lines: object) -> Path:
    text = "".join((line if isinstance(line, str) else dumps(line)) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def texts(reply: Reply) -> list[str]:
    return [choice.text for choice in reply.choices]


# Records


def test_a_record_is_the_reply() -> None:
    request = asked(id="7", criterion="정확성", unit=2, repeat=1, purpose="retry", index=3, n=2)
    record = json.loads(dumps(reply_to_record(request, REPLY, time="2026-12-01T00:00:00+00:00")))
    assert record_to_reply(record) == REPLY
    assert next(iter(record)) == "prompt_sha256"
    assert {k: record[k] for k in record if k not in ("choices", "messages", "usage")} == {
        "prompt_sha256": request.prompt_sha256,
        "id": "7",
        "criterion": "정확성",
        "unit": 2,
        "repeat": 1,
        "purpose": "retry",
        "index": 3,
        "method": "logprobs",
        "prefill": "",
        "params": {"max_tokens": 16, "temperature": 0.0, "alternatives": 20, "n": 2},
        "level_probs": None,
        "model": "fake-1",
        "time": "2026-12-01T00:00:00+00:00",
    }
    assert record["messages"] == list(request.messages)


@pytest.mark.fault("S8")
def test_no_nan_and_no_infinity_in_a_record() -> None:
    odd = (Alternative("4", -9999.0), Alternative("5", math.nan), Alternative("6", -math.inf))
    reply = Reply(
        (Choice("4", (Token("4", math.nan, odd),)),), Usage(1), level_probs=(0.5, math.nan)
    )
    line = dumps(reply_to_record(asked(), reply))
    assert "NaN" not in line
    assert "Infinity" not in line
    back = record_to_reply(json.loads(line, parse_constant=lambda name: pytest.fail(name)))
    tokens = back.choices[0].tokens
    assert tokens is not None
    assert tokens[0].logprob == -math.inf
    assert [a.logprob for a in tokens[0].alternatives] == [-9999.0, -math.inf, -math.inf]


@pytest.mark.fault("T10")
def test_korean_is_readable_and_half_characters_survive() -> None:
    reply = Reply((Choice("예", (Token(HALF, -1.0, (Alternative(HALF, -1.0),)),)),), Usage(1))
    line = dumps(reply_to_record(asked(), reply))
    assert "질문: 얼마나 좋은가?" in line
    assert "\\udcec\\udc95" in line
    back = record_to_reply(json.loads(line.encode("utf-8")))
    assert back.choices[0].tokens == reply.choices[0].tokens
    tricky = "\\udc95 \\\\ \udc95 \u2028 \ud83d"
    assert json.loads(dumps(tricky)) == tricky


def spread(text: str, split: Any = hangul_halves) -> tuple[Token, ...]:
    return tuple(token(piece.decode("utf-8", "surrogateescape"), x=0.5) for piece in split(text))


@pytest.mark.parametrize("answer", [None, 0, 7, 18])
def test_only_the_tokens_at_the_answer_are_kept(answer: int | None) -> None:
    text = "항목 4개 중 2개 누락\n점수: 4\n그리고 더 많은 말이 뒤에 온다"
    choice = Choice(text, spread(text))
    record = reply_to_record(asked(), Reply((choice,), Usage(1)), [answer])
    kept = record_to_reply(record).choices[0]
    assert kept.tokens is not None
    assert choice.tokens is not None
    assert len(kept.tokens) <= KEPT_TOKENS + 4 < len(choice.tokens)
    assert kept.offset <= (answer or 0) < kept.offset + 3
    spelled = "".join(t.text for t in kept.tokens).encode("utf-8", "surrogateescape")
    behind = text[kept.offset :].encode()
    assert behind.startswith(spelled)
    # A recorded reply is recorded again in the same way.
    again = record_to_reply(reply_to_record(asked(), Reply((kept,), Usage(1)), [answer]))
    assert again.choices[0].offset == kept.offset


async def test_a_recorded_reply_reads_like_the_live_one(
    fake_judge: FakeJudge, tmp_path: Path
) -> None:
    """Reason first, in halves of characters: the hardest place to find again."""
    fake_judge.set(style="reason_first", split=hangul_halves, default=Table({"2": 0.6, "3": 0.4}))
    live = open_judge("openai:m", base_url=fake_judge.base_url)
    request = asked(max_tokens=256)
    reply = await live.complete(request)
    await live.aclose()
    start = reply.choices[0].text.index(fake_judge.label) + len(fake_judge.label)
    file = write(tmp_path / "r.jsonl", reply_to_record(request, reply, [start]))
    replayed = await ReplayJudge.from_spec(str(file)).complete(request)
    (choice,) = replayed.choices
    assert choice.text == reply.choices[0].text
    reading = read_choice(choice, SCALE, start)
    assert reading is not None
    assert reading.levels == pytest.approx([0, 0.6, 0.4, 0, 0])
    assert replayed.usage == reply.usage
    assert replayed.model == "fake-1"


# Finding


async def test_by_prompt_then_by_place(tmp_path: Path) -> None:
    def line(request: Request, text: str) -> dict[str, Any]:
        return reply_to_record(request, Reply((Choice(text),), Usage(1), "m1"))

    one, two = asked("same", id="1", criterion="c"), asked("same", id="2", criterion="c")
    other = asked("other", id="3", criterion="c")
    file = write(tmp_path / "r.jsonl", line(one, "1"), line(two, "2"), line(other, "3"))
    judge = ReplayJudge.from_spec(str(file))
    # The same prompt in two rows: each row has its own reply, another row has the last of them.
    assert texts(await judge.complete(one)) == ["1"]
    assert texts(await judge.complete(two)) == ["2"]
    assert texts(await judge.complete(asked("same", id="9", criterion="c"))) == ["2"]
    by_id = await judge.complete(asked("reworded", id="3", criterion="c"))
    assert texts(by_id) == ["3"]
    assert "matched by id" in by_id.notes[0]
    assert (await judge.complete(asked("reworded", id="1", criterion="c"))).notes == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 1}, {"prefill": "1"}, {"method": "exact"}, {"method": "decision"},
        {"purpose": "reason"}, {"repeat": 1}, {"unit": 0, "text": "x"},
        {"id": "2", "text": "x"}, {"criterion": "d", "text": "x"},
    ],
)  # fmt: skip
async def test_a_missing_reply_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    base: dict[str, Any] = {"id": "1", "criterion": "c"}
    file = write(tmp_path / "r.jsonl", reply_to_record(asked(**base), REPLY))
    judge = ReplayJudge.from_spec(str(file))
    request = asked(**{**base, **changes})
    with pytest.raises(RejectedError, match="no recorded reply") as caught:
        await judge.complete(request)
    text = str(caught.value)
    assert request.prompt_sha256[:12] in text
    assert repr(request.call.id) in text
    assert "r.jsonl" in text


async def test_the_later_line_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", {"id": "1", "text": "2"}, "", {"id": "1", "text": "5"})
    reply = await ReplayJudge.from_spec(str(file)).complete(asked(id="1", method="single"))
    assert texts(reply) == ["5"]


# Lines written by hand


async def test_short_lines(tmp_path: Path) -> None:
    file = write(
        tmp_path / "hand.jsonl",
        {"id": "1", "criterion": "c", "text": "4"},
        {"id": 2, "criterion": "c", "alternatives": {"4": 0.6, "5": 0.4}},
        {"id": "3", "text": "5\nwhy", "alternatives": {"4": 0.5, "5": 0.5, "6": 0}},
        {"id": "4", "criterion": "c", "responses": ["4", "5", "4", "3"]},
        {"id": "5", "criterion": "c", "index": 1, "text": "1"},
    )
    judge = ReplayJudge.from_spec(str(file))
    assert await judge.methods() == ("logprobs", "samples")

    async def get(id: str, method: Method, **changes: Any) -> Reply:
        return await judge.complete(asked(id=id, criterion="c", method=method, **changes))

    assert texts(await get("1", "single")) == ["4"]
    (choice,) = (await get("2", "logprobs")).choices
    assert choice.text == "4"
    reading = read_choice(choice, SCALE, 0)
    assert reading is not None
    assert reading.levels == pytest.approx([0, 0, 0, 0.6, 0.4])
    (choice,) = (await get("3", "logprobs")).choices
    reading = read_choice(choice, SCALE, 0)
    assert reading is not None
    assert reading.levels == pytest.approx([0, 0, 0, 0.5, 0.5])
    assert texts(await get("2", "single")) == ["4"]
    assert texts(await get("4", "samples", n=3)) == ["4", "5", "4"]
    assert texts(await get("4", "samples", index=1, n=8)) == ["5", "4", "3"]
    assert texts(await get("4", "samples", index=3)) == ["3"]
    with pytest.raises(RejectedError):
        await get("4", "samples", index=4)
    assert texts(await get("5", "samples", index=1)) == ["1"]


@pytest.mark.parametrize(
    ("lines", "methods"),
    [
        ([{"id": "1", "text": "4"}], ("single",)),
        ([{"id": "1", "responses": ["4", "5"]}], ("samples",)),
        ([{"id": "1", "alternatives": {"4": 1}}], ("logprobs",)),
        ([{"id": "1", "alternatives": {"4": 1}, "method": "exact"}], ("exact",)),
        (
            [{"id": "1", "method": m, "choices": [{"text": "4"}]} for m in ("samples", "decision")],
            ("decision", "samples"),
        ),
    ],
)
async def test_methods_are_those_of_the_file(
    tmp_path: Path, lines: Sequence[object], methods: tuple[str, ...]
) -> None:
    assert await ReplayJudge(write(tmp_path / "r.jsonl", *lines)).methods() == methods


async def test_usage_of_recorded_samples_counts_once(tmp_path: Path) -> None:
    request = asked(id="1", method="samples", n=3)
    reply = Reply(tuple(Choice(t) for t in "454"), Usage(1, 100, 3))
    judge = ReplayJudge(write(tmp_path / "r.jsonl", reply_to_record(request, reply)))
    assert (await judge.complete(request)).usage == Usage(1, 100, 3)
    single = [await judge.complete(replace(request, n=1, index=i)) for i in range(3)]
    assert [texts(r) for r in single] == [["4"], ["5"], ["4"]]
    assert sum((r.usage for r in single), Usage()) == Usage(1, 100, 3)


async def test_decisions_are_replayed(tmp_path: Path) -> None:
    request = asked(id="1", method="decision")
    reply = Reply((Choice("4"),), Usage(1), level_probs=(0.0, 0.0, 0.1, 0.6, 0.3))
    judge = ReplayJudge(write(tmp_path / "r.jsonl", reply_to_record(request, reply)))
    assert (await judge.complete(request)).level_probs == reply.level_probs


# Files


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "1", "text": "4"', "delimiter"),
        ("[1, 2]", "no JSON object"),
        ('{"id": "1"}', "neither text"),
        ('{"id": "1", "text": 4}', "neither text"),
        ('{"id": "1", "text": "4", "method": "magic"}', "magic"),
        ('{"id": "1", "text": "4", "index": "one"}', "index"),
        ('{"id": "1", "alternatives": {"4": 1.5}}', "no probability"),
        ('{"id": "1", "alternatives": {"4": 0.9, "5": 0.9}}', "more than 1"),
        ('{"id": "1", "text": "six", "alternatives": {"4": 1}}', "begins with none"),
        ('{"id": "1", "responses": "4"}', "list of texts"),
        ('{"id": "1", "choices": []}', "list"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = write(tmp_path / "r.jsonl", {"id": "0", "text": "4"}, line)
    with pytest.raises(ConfigError, match=says) as caught:
        ReplayJudge(file)
    assert f"{file}:2" in str(caught.value)


async def test_a_record_that_is_broken_within_is_named_when_it_is_read(tmp_path: Path) -> None:
    broken = {"id": "1", "choices": [{"text": "4", "tokens": [["4", "x"]]}]}
    judge = ReplayJudge(write(tmp_path / "r.jsonl", {"id": "0", "text": "4"}, broken))
    with pytest.raises(ConfigError, match=r"r\.jsonl:2"):
        await judge.complete(asked(id="1", method="single"))


def test_bytes_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes('{"id": "1", "text": "예"}\n'.encode("cp949"))
    with pytest.raises(ConfigError, match=r"r\.jsonl:1"):
        ReplayJudge(tmp_path / "r.jsonl")


@pytest.mark.fault("C7")
async def test_a_killed_run_leaves_a_torn_last_line(tmp_path: Path) -> None:
    line = dumps(reply_to_record(asked(id="1"), REPLY))
    (tmp_path / "replies.jsonl").write_text(f"{line}\n{line[:80]}", encoding="utf-8")
    judge = open_judge(f"replay:{tmp_path}")  # a run folder
    reply = await judge.complete(asked(id="1"))
    assert reply.choices == REPLY.choices
    assert "cut off" in reply.notes[0]


async def test_gzip_bom_and_identity(tmp_path: Path) -> None:
    lines = dumps(reply_to_record(asked(id="1"), REPLY)) + "\n" + dumps({"id": "2", "text": "5"})
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.encode("utf-8-sig")))
    judge = ReplayJudge(packed)
    assert (await judge.complete(asked(id="1"))).choices == REPLY.choices
    assert texts(await judge.complete(asked(id="2", method="single"))) == ["5"]
    identity = judge.identity()
    assert identity["file"] == "r.jsonl.gz"
    assert identity["recorded"] == ["fake-1"]
    assert len(identity["sha256"]) == 64
    await judge.aclose()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="unpacked"):
        ReplayJudge(packed)


def test_files_and_options_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        open_judge(f"replay:{tmp_path / 'missing.jsonl'}")
    with pytest.raises(ConfigError, match="needs a file"):
        open_judge("replay:")
    with pytest.raises(ConfigError, match="base_url"):
        open_judge(f"replay:{tmp_path}", base_url="http://x")


async def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for i in range(2000):
            out.write(
                dumps(reply_to_record(asked(f"{i} " + "긴 글 " * 700, id=str(i)), REPLY)) + "\n"
            )
    tracemalloc.start()
    judge = ReplayJudge(file)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < file.stat().st_size / 10
    assert (await judge.complete(asked(id="1234"))).choices == REPLY.choices
