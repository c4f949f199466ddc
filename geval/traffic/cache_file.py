"""The SQLite file of the reply cache: open, read, write, clear, set aside.

Several processes use it at once. What must not be done by two of them at a time (making the
tables, moving a damaged file away) happens under a lock file; all else is SQLite's own locking
with a long time-out and short transactions.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from geval.judges.base import Choice, Reply
from geval.judges.records import record_to_reply

BUSY_SECONDS = 60.0
"""How long a writer waits for those of other processes before it gives up."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PARTS = ("", "-wal", "-shm")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
    key BLOB PRIMARY KEY,
    created INTEGER NOT NULL,  -- seconds since 1970
    reply BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS replies_created ON replies (created);
"""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds: `bytes` on disk, times in UTC, None where it is empty."""

    path: Path
    entries: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, times as ISO 8601."""
        return {
            "path": str(self.path),
            "entries": self.entries,
            "bytes": self.bytes,
            "oldest": self.oldest and self.oldest.isoformat(),
            "newest": self.newest and self.newest.isoformat(),
        }


def is_damage(error: Exception) -> bool:
    """Whether the file itself is broken, not only busy, full or forbidden."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


class CacheFile:
    """One connection to the file, which is made where it is missing.

    A damaged file is set aside and a new one begun; `note` is told. Raises OSError or
    sqlite3.Error where that cannot be done; so do all methods. Use a connection from one thread
    at a time.
    """

    def __init__(
        self, path: Path, *, note: Callable[[str], None], busy: float = BUSY_SECONDS
    ) -> None:
        self.path, self._note = path, note
        # Reasons may quote what was judged: a folder made here is the user's alone.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _exclusive(path):
            try:
                self._connection = _connect(path, busy)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self._move_away(error)
                self._connection = _connect(path, busy)
            self._opened = _identity(path)

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    @property
    def moved(self) -> bool:
        """Whether another file stands at the path now, or none: ours was set aside or removed."""
        return _identity(self.path) != self._opened

    def read(self, key: bytes) -> object:
        """The value of a key, None where there is none."""
        # All rows are fetched: a statement that is not run to its end keeps an old view open.
        rows = self._connection.execute(
            "SELECT reply FROM replies WHERE key = ?", (key,)
        ).fetchall()
        return rows[0][0] if rows else None

    def write(self, rows: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Write (key, seconds since 1970, value) rows in one transaction; the last one counts."""
        # The write lock is asked for at once: a read that turns into a write cannot wait for it.
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", rows)

    def info(self) -> CacheInfo:
        """What the file holds."""
        count, oldest, newest = self._connection.execute(
            "SELECT (SELECT count(*) FROM replies), (SELECT min(created) FROM replies), "
            "(SELECT max(created) FROM replies)"
        ).fetchone()
        size = 0
        for part in _PARTS[:2]:
            with contextlib.suppress(FileNotFoundError):
                size += _beside(self.path, part).stat().st_size
        return CacheInfo(self.path, count, size, _when(oldest), _when(newest))

    def clear(self, before: float | None) -> int:
        """Remove what was written before this time (all for None) and give the space back."""
        if before is None:
            count = self._connection.execute("DELETE FROM replies").rowcount
        else:
            count = self._connection.execute(
                "DELETE FROM replies WHERE created < ?", (before,)
            ).rowcount
        # Where another process is in the way the space stays in the file and is used again.
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return count

    def set_aside(self, error: Exception) -> None:
        """Close, and move the file away unless another process has done it already."""
        self.close()
        with _exclusive(self.path):
            if not self.moved:
                self._move_away(error)

    def _move_away(self, error: Exception) -> None:
        stamp = f".damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        aside = self.path.with_name(self.path.name + stamp)
        for part in reversed(_PARTS):
            with contextlib.suppress(FileNotFoundError):
                _beside(self.path, part).rename(_beside(aside, part))
        self._note(
            f"the reply cache {self.path} is damaged ({error}): it was set aside as {aside.name}, "
            "a new one is begun"
        )


def _connect(path: Path, busy: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        # In WAL mode a killed process loses nothing by this; a power cut the last replies at most.
        connection.execute("PRAGMA synchronous = NORMAL")
        if not connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'replies_created'"
        ).fetchone()[0]:
            connection.executescript(_SCHEMA)
        connection.execute("SELECT key, created, reply FROM replies LIMIT 0").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Held by one process at a time; freed when it ends, however it ends."""
    with _beside(path, ".lock").open("a") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:  # Windows: SQLite's own locks are left
            pass
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _when(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


# Values


def pack(key: str, reply: Reply) -> bytes:
    """A reply as compressed JSON in the shape of `geval.judges.records`, all tokens kept.

    It begins with its key: a row that a damaged index takes for another is told by it. Not by
    `records.dumps`: what is stored must come back equal, so -Infinity and NaN stay, and lone
    surrogates are kept as they are instead of being joined by escapes.
    """
    record = {
        "choices": [_choice(choice) for choice in reply.choices],
        "level_probs": reply.level_probs,
        "usage": reply.usage.to_dict(),
        "model": reply.model,
        "notes": reply.notes,
    }
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    # Level 1: a reply with 400 tokens and their alternatives shrinks to a third, at little cost.
    return zlib.compress(bytes.fromhex(key) + text.encode("utf-8", "surrogatepass"), 1)


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "text": choice.text,
        "finish": choice.finish,
        "reasoning": choice.reasoning,
        "offset": choice.offset,
        "tokens": None
        if choice.tokens is None
        else [
            [t.text, t.logprob, [[a.text, a.logprob] for a in t.alternatives]]
            for t in choice.tokens
        ],
    }


def unpack(key: str, blob: object) -> Reply | None:
    """The reply in a row of this key, None where the row is not what `pack` wrote."""
    try:
        content = zlib.decompress(blob)  # type: ignore[arg-type]  # checks an Adler-32 sum
        own, text = content[:32], content[32:]
        if own.hex() != key:
            return None
        record = json.loads(text.decode("utf-8", "surrogatepass"))
        return replace(record_to_reply(record), notes=tuple(record["notes"]))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None
