"""The reply cache: keys, equal replies, many processes, damage."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.errors import ConfigError
from geval.judges.base import Alternative, Call, Choice, Reply, Request, Token, Usage
from geval.scale import Level, Scale
from geval.traffic.cache import Cache, cache_key, cache_path
from geval.traffic.cache_file import pack, unpack

IDENTITY = {"judge": "openai", "model": "m", "endpoint": "localhost:8000", "revision": ""}
REQUEST = Request(
    ({"role": "system", "content": "Judge."}, {"role": "user", "content": "답: 5"}),
    "logprobs",
    8,
    alternatives=20,
    scale=Scale.of(1, 2, 3, 4, 5),
)
REPLY = Reply(
    (
        Choice(
            "4\n이유",
            (
                Token("4", -0.5, (Alternative("4", -0.5), Alternative(" 5", -1.0))),
                Token("\n\udcec", -math.inf, (Alternative("\udcec\udc9d", -9999),)),
            ),
            offset=0,
            finish="length",
            reasoning="hm",
        ),
    ),
    Usage(1, 900, 3, 128),
    "m-2026",
    (0.0, 0.1, 0.2, 0.3, 0.4),
    ("temperature was refused",),
)


def key(number: int) -> str:
    return cache_key(IDENTITY, replace(REQUEST, index=number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "replies.sqlite"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def cache(path: Path, told: list[str]) -> Iterator[Cache]:
    with Cache(path, note=told.append) as opened:
        yield opened


# Keys

OTHER: dict[str, Any] = {
    "messages": ({"role": "user", "content": "Judge."}, {"role": "user", "content": "답: 5"}),
    "method": "samples",
    "max_tokens": 9,
    "alternatives": 0,
    "temperature": None,
    "n": 2,
    "index": 1,
    "prefill": "1",
    "scale": Scale.of(1, 2, 3, 4),
}


@pytest.mark.fault("C2")
@pytest.mark.parametrize("name", [f.name for f in fields(Request) if f.name != "call"])
def test_the_key_changes_with_every_parameter(name: str) -> None:
    # A field that is added to Request and not to this table fails here, not in a user's cache.
    assert cache_key(IDENTITY, replace(REQUEST, **{name: OTHER[name]})) != key(0)


@pytest.mark.fault("C2")
def test_an_explicit_zero_is_neither_the_default_nor_another_zero() -> None:
    keys = {
        temperature: cache_key(IDENTITY, replace(REQUEST, temperature=temperature))
        for temperature in (None, 0.0, 1.0)
    }
    assert len(set(keys.values())) == 3
    for zero in (0, -0.0):
        assert cache_key(IDENTITY, replace(REQUEST, temperature=zero)) == keys[0.0]


@pytest.mark.fault("C2")
def test_the_key_changes_with_the_judge_and_with_words_and_anchors_of_the_scale() -> None:
    keys = {cache_key({**IDENTITY, name: "other"}, REQUEST) for name in IDENTITY}
    assert len({*keys, key(0)}) == len(IDENTITY) + 1
    scale = Scale.of(1, 2)
    others = [
        Scale((Level(1.0, ("no",)), Level(2.0, ("yes",)))),
        Scale((Level(1.0, ("1",), anchor="bad"), Level(2.0, ("2",)))),
        replace(scale, not_applicable="none", not_applicable_spellings=("NA",)),
    ]
    assert len({cache_key(IDENTITY, replace(REQUEST, scale=s)) for s in [scale, *others]}) == 4


@pytest.mark.fault("C2")
def test_the_key_knows_neither_row_nor_template_nor_order_of_the_identity() -> None:
    call = Call("row 7", "style", unit=3, repeat=2, purpose="retry")
    assert cache_key(IDENTITY, replace(REQUEST, call=call)) == key(0)
    assert cache_key(dict(reversed(IDENTITY.items())), REQUEST) == key(0)


def test_the_key_does_not_change_between_versions() -> None:
    # A new value here throws every user's cache away: raise cache.FORMAT if that is meant.
    assert key(0) == "84e189ff525b4ab5acf70b6b72371c014d2acf2d78816f01a364d301ca440043"


def test_an_identity_that_is_no_plain_json_is_refused() -> None:
    with pytest.raises(TypeError):
        cache_key({"model": object()}, REQUEST)


@pytest.mark.fault("C1")
def test_independent_samples_of_one_prompt_are_kept_apart(cache: Cache) -> None:
    replies = [replace(REPLY, choices=(Choice(str(n)),)) for n in range(5)]
    for number, reply in enumerate(replies):
        assert cache.get(key(number)) is None
        cache.put(key(number), reply)
    cache.flush()
    assert [cache.get(key(n)) for n in range(5)] == replies


# Values


def same(a: object, b: object) -> bool:
    """Equal, with NaN equal to NaN and types compared."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        return len(a) == len(b) and all(map(same, a, b))
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b


TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
NUMBER = st.floats()
COUNT = st.integers(0, 10**9)
TOKEN = st.builds(
    Token, TEXT, NUMBER, st.lists(st.builds(Alternative, TEXT, NUMBER), max_size=3).map(tuple)
)
CHOICE = st.builds(
    Choice, TEXT, st.none() | st.lists(TOKEN, max_size=3).map(tuple), COUNT, TEXT, TEXT
)
REPLIES = st.builds(
    Reply,
    st.lists(CHOICE, max_size=3).map(tuple),
    st.builds(Usage, COUNT, COUNT, COUNT, COUNT),
    TEXT,
    st.none() | st.lists(NUMBER, max_size=4).map(tuple),
    st.lists(TEXT, max_size=2).map(tuple),
)


@given(REPLIES)
@settings(deadline=None)
def test_every_reply_comes_back_equal(reply: Reply) -> None:
    assert same(unpack(key(0), pack(key(0), reply)), reply)


@pytest.mark.fault("C3")
def test_a_kept_reply_holds_what_another_scoring_needs(path: Path) -> None:
    with Cache(path) as cache:
        cache.put(key(0), REPLY)
    with Cache(path) as cache:
        assert cache.get(key(0)) == REPLY


def test_a_reply_is_found_before_it_is_written_and_the_last_one_counts(cache: Cache) -> None:
    other = replace(REPLY, model="other")
    cache.put(key(0), other)
    assert cache.get(key(0)) == other
    cache.put(key(0), REPLY)
    assert cache.get(key(0)) == REPLY
    cache.flush()
    assert cache.get(key(0)) == REPLY
    assert cache.info().entries == 1


def test_a_reply_that_cannot_be_written_is_said_and_the_others_are_kept(
    cache: Cache, told: list[str]
) -> None:
    cache.put(key(0), replace(REPLY, model=object()))  # type: ignore[arg-type]
    cache.put(key(1), REPLY)
    cache.flush()
    assert cache.get(key(0)) is None
    assert cache.get(key(1)) == REPLY
    assert len(told) == 1


def test_info_and_clear(cache: Cache, path: Path) -> None:
    assert cache.info().to_dict() | {"bytes": 0} == {
        "path": str(path), "entries": 0, "bytes": 0, "oldest": None, "newest": None,
    }  # fmt: skip
    for number in range(3):
        cache.put(key(number), REPLY)
    info = cache.info()
    assert info.entries == 3
    assert info.bytes >= path.stat().st_size
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE replies SET created = 1000 WHERE key = ?", (bytes.fromhex(key(0)),)
        )
    connection.close()
    assert cache.info().to_dict()["oldest"] == "1970-01-01T00:16:40+00:00"
    assert cache.clear(timedelta(days=1)) == 1
    assert cache.get(key(0)) is None
    assert cache.get(key(1)) == REPLY
    assert cache.clear() == 2
    assert cache.info().entries == 0


def test_after_close_it_is_empty_and_keeps_nothing(path: Path) -> None:
    cache = Cache(path)
    cache.put(key(0), REPLY)
    cache.close()
    cache.close()
    cache.put(key(1), REPLY)
    cache.flush()
    assert cache.get(key(0)) is None
    with Cache(path) as again:
        assert again.info().entries == 1


# Places


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_path({"GEVAL_CACHE": str(tmp_path)}) == tmp_path / "replies.sqlite"
    assert cache_path({"GEVAL_CACHE": str(tmp_path / "a.sqlite")}) == tmp_path / "a.sqlite"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path({"GEVAL_CACHE": " "}).is_relative_to(tmp_path)
    assert cache_path({}).name == "replies.sqlite"


def test_a_place_that_was_named_must_be_usable_the_default_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("GEVAL_CACHE", str(file / "below"))
    with pytest.raises(ConfigError, match="--no-cache"):
        Cache()
    monkeypatch.delenv("GEVAL_CACHE")
    monkeypatch.setattr("geval.traffic.cache.cache_path", lambda: file / "below")
    cache = Cache(note=told.append)
    cache.put(key(0), REPLY)
    cache.flush()
    assert cache.get(key(0)) is None
    assert cache.info().entries == cache.clear() == 0
    assert len(told) == 1


# Processes

WORKER = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from test_cache import REPLY, key
from geval.traffic.cache import Cache

path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with Cache(path, note=lambda text: print("NOTE", text, flush=True)) as cache:
    for n in range(first, first + count):
        cache.put(key(n), replace(REPLY, model=str(n)))
        if n % 20 == 0:
            cache.flush()
        got = cache.get(key(n - count))  # what the process before this one writes meanwhile
        assert got is None or got.model == str(n - count)
print("DONE")
"""


def start(path: Path, first: int, count: int, code: str = WORKER) -> subprocess.Popen[str]:
    arguments = [str(path), str(first), str(count), str(Path(__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def hammer(path: Path) -> list[str]:
    """Eight processes put 100 replies each, half of which their neighbour puts too."""
    processes = [start(path, n * 50, 100) for n in range(8)]
    outputs = [process.communicate()[0] for process in processes]
    assert [p.returncode for p in processes] == [0] * 8, outputs
    with Cache(path) as cache:
        assert cache.info().entries == 450
        for n in range(450):
            reply = cache.get(key(n))
            assert reply is not None
            assert reply.model == str(n)
    return outputs


@pytest.mark.fault("C12")
def test_eight_processes_at_once(path: Path) -> None:
    assert hammer(path) == ["DONE\n"] * 8


@pytest.mark.fault("C12")
def test_eight_processes_find_a_damaged_file_and_one_of_them_sets_it_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)
    outputs = hammer(path)
    assert sum(out.count("set aside") for out in outputs) == 1
    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == b"no database " * 1000


@pytest.mark.fault("C7")
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_writer_killed_in_the_middle_leaves_a_readable_file(path: Path) -> None:
    code = WORKER.replace("cache.flush()", "cache.flush(); print(n, flush=True)")
    process = start(path, 0, 10**6, code)
    assert process.stdout is not None
    written = [int(process.stdout.readline()) for _ in range(3)][-1]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    told: list[str] = []
    with Cache(path, note=told.append) as cache:
        for n in range(written + 1):
            reply = cache.get(key(n))
            assert reply is not None
            assert reply.model == str(n)
        cache.put(key(-1), REPLY)
        cache.flush()
        assert cache.get(key(-1)) == REPLY
    assert told == []
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


# Damage


def fill(path: Path, count: int = 300) -> None:
    with Cache(path) as cache:
        for n in range(count):
            cache.put(key(n), replace(REPLY, model=str(n)))


def found(cache: Cache, count: int = 300) -> int:
    """Replies that are found; each is the right one."""
    replies = [cache.get(key(n)) for n in range(count)]
    for n, reply in enumerate(replies):
        assert reply is None or reply == replace(REPLY, model=str(n))
    return sum(reply is not None for reply in replies)


@pytest.mark.parametrize("size", [0, 10, 100, 5_000, 20_000])
def test_a_file_that_was_cut_off(path: Path, told: list[str], size: int) -> None:
    fill(path)
    os.truncate(path, size)
    with Cache(path, note=told.append) as cache:
        assert found(cache) < 300
        fill(path)
        assert found(cache) == 300
    aside = [p for p in path.parent.glob("*.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    assert len(told) == len(aside)
    assert len(aside) == (size > 0)  # an empty file is a new one
    assert all("set aside" in text and a.name in text for text, a in zip(told, aside, strict=True))


def test_a_file_that_is_overwritten_while_it_is_open(path: Path, told: list[str]) -> None:
    fill(path)
    with Cache(path, note=told.append) as cache:
        with path.open("r+b") as file:
            file.write(os.urandom(path.stat().st_size))
        assert found(cache) < 300
        for n in range(300):
            cache.put(key(n), replace(REPLY, model=str(n)))
        cache.flush()
        assert found(cache) == 300
    assert [text for text in told if "set aside" in text] == told
    assert len(told) == 1
    with Cache(path) as cache:
        assert found(cache) == 300


def test_who_finds_the_damage_second_does_not_move_the_new_file(path: Path) -> None:
    fill(path)
    told: list[str] = []
    with Cache(path, note=told.append) as one, Cache(path, note=told.append) as two:
        for cache in (one, two):  # both hold the file open for writing, too
            cache.put(key(0), replace(REPLY, model="0"))
            cache.flush()
        with path.open("r+b") as file:
            file.write(os.urandom(path.stat().st_size))
        for cache in (one, two):
            assert found(cache) < 300
        for number, cache in enumerate((one, two)):
            cache.put(key(number), replace(REPLY, model=str(number)))
            cache.flush()
        for cache in (one, two):
            assert found(cache) == 2
    assert len(told) == 1


def test_a_file_that_is_removed_while_it_is_open_is_begun_anew(path: Path, told: list[str]) -> None:
    with Cache(path, note=told.append) as cache:
        cache.put(key(0), REPLY)
        cache.flush()
        for part in path.parent.iterdir():
            part.unlink()
        cache.put(key(1), REPLY)
        cache.flush()
        assert cache.get(key(1)) == REPLY
    with Cache(path, note=told.append) as cache:
        assert cache.get(key(1)) == REPLY
    assert told == []


@pytest.mark.parametrize(
    "blob",
    [b"", b"x", "text", None, 7, pack(key(1), REPLY), pack(key(0), REPLY)[:-1]],
    ids=["empty", "garbage", "text", "null", "number", "of another key", "cut off"],
)
def test_a_row_that_cannot_be_read_is_a_miss(
    cache: Cache, path: Path, told: list[str], blob: object
) -> None:
    assert unpack(key(0), blob) is None
    if blob is not None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(
                "INSERT INTO replies VALUES (?, 0, ?)", (bytes.fromhex(key(0)), blob)
            )
        connection.close()
        assert cache.get(key(0)) is None
        cache.put(key(0), REPLY)
        cache.flush()
    assert told == []


@given(st.data())
@settings(deadline=None)
def test_a_changed_byte_is_a_miss_and_never_another_reply(data: st.DataObject) -> None:
    blob = bytearray(pack(key(0), REPLY))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    assert unpack(key(0), bytes(blob)) in (None, REPLY)


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE replies (author, text)")
    connection.close()
    with pytest.raises(ConfigError):
        Cache(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM replies").fetchone() == (0,)
    connection.close()


# Command line


def command(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geval", "cache", *arguments],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "GEVAL_CACHE": str(path)},
    )  # fmt: skip


def test_the_commands(path: Path) -> None:
    assert json.loads(command(path, "info", "--json").stdout)["entries"] == 0
    assert not path.exists()
    fill(path, 3)
    assert "replies  3" in command(path, "info").stdout
    assert json.loads(command(path, "info", "--json").stdout)["entries"] == 3
    refused = command(path, "clear")  # nobody can be asked, and replies were paid for
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert json.loads(command(path, "info", "--json").stdout)["entries"] == 3
    assert "0 replies removed" in command(path, "clear", "--older-than", "1", "--yes").stdout
    assert json.loads(command(path, "clear", "--yes", "--json").stdout)["removed"] == 3
    assert json.loads(command(path, "info", "--json").stdout)["entries"] == 0
