"""Exact reply cache: the same question to the same judge is paid once.

One SQLite file (WAL mode) holds the replies of all runs and processes of a user. The key is a
hash of what decides the answer: the rendered messages, the judge, every sampling parameter. The
value is the judge's whole reply, so another scale, threshold or calibration costs no call.
Only replies are kept, never errors. What cannot be read back exactly is a miss.

Replies are written by one thread per process in batches, at most `DELAY` seconds behind; `get`
sees what was `put` at once. A cache does not survive a fork: open it in the process that uses it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from geval.errors import ConfigError
from geval.judges.base import Reply, Request
from geval.traffic.cache_file import BUSY_SECONDS, CacheFile, CacheInfo, is_damage, pack, unpack

__all__ = ["Cache", "CacheInfo", "cache_key", "cache_path"]

FORMAT = 1
"""Part of each key: replies written in another form are not found."""

DELAY = 0.2
BATCH = 200

READ_SECONDS = 5.0
"""How long a look-up waits at most; WAL readers hardly ever wait, and a miss costs one call."""

_FILE = "replies.sqlite"


def cache_path(environ: Mapping[str, str] | None = None) -> Path:
    """The cache file: GEVAL_CACHE (a folder, or a path that ends in .sqlite), else the user's."""
    named = (os.environ if environ is None else environ).get("GEVAL_CACHE", "").strip()
    if not named:
        from platformdirs import user_cache_dir

        return Path(user_cache_dir("geval")) / _FILE
    path = Path(named).expanduser()
    return path if path.suffix == ".sqlite" else path / _FILE


def cache_key(identity: Mapping[str, Any], request: Request) -> str:
    """sha256 (hexadecimal) of everything that decides the reply to `request`.

    `identity` names the judge by plain JSON values: endpoint, model and revision, or the hash of
    the weights, and what the judge itself adds to each call; never a key, nothing that changes
    while a run goes on. The template's name and `request.call` have no part in it. Raises
    TypeError for a value that is no plain JSON.
    """
    scale = request.scale
    material = {
        "format": FORMAT,
        "judge": dict(identity),
        "messages": [dict(message) for message in request.messages],
        "prefill": request.prefill,
        "method": request.method,
        "max_tokens": request.max_tokens,
        "alternatives": request.alternatives,
        # 0 and 0.0 are one temperature, None (the provider's default) is another.
        "temperature": None if request.temperature is None else float(request.temperature) + 0.0,
        "n": request.n,
        "index": request.index,
        # A judge may constrain the answer to the words, and decisions are asked with the anchors.
        "scale": None
        if scale is None
        else [[[level.word, level.anchor] for level in scale.levels], list(scale.allowed)],
    }
    text = json.dumps(material, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_Entry = tuple[str, Reply]


class Cache:
    """Replies by key, shared by all processes of a user; safe to use from several threads.

    `path` is the file, by default `cache_path()`. `note` is told what the user should know (a
    damaged file, a disk that is full), each thing once, perhaps from another thread. Raises
    ConfigError where a path that the user named cannot be opened; without a named path the cache
    says so and stays empty, since no run should end for it.
    """

    def __init__(
        self, path: str | Path | None = None, *, note: Callable[[str], None] = lambda note: None
    ) -> None:
        self.path = cache_path() if path is None else Path(path)
        self._note, self._told = note, set[str]()
        self._queue: queue.SimpleQueue[_Entry | threading.Event | None] = queue.SimpleQueue()
        self._pending: dict[str, Reply] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._reader: CacheFile | None = None
        try:
            self._reader = self._open(READ_SECONDS)
        except (OSError, sqlite3.Error) as error:
            if path is not None or os.environ.get("GEVAL_CACHE", "").strip():
                raise ConfigError(
                    f"cannot open the reply cache: {error}",
                    where=str(self.path),
                    hint="Name another place with GEVAL_CACHE, or go without: --no-cache.",
                ) from None
            self._closed = True
            self._tell(f"cannot open the reply cache {self.path} ({error}): replies are not kept")
        atexit.register(self.close)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str) -> Reply | None:
        """The reply that was put, equal to it; None where there is none."""
        pending = self._pending.get(key)
        if pending is not None or self._closed:
            return pending
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = self._open(READ_SECONDS)
                blob = self._reader.read(bytes.fromhex(key))
            except (OSError, sqlite3.Error) as error:
                self._mend(self._reader, error)
                self._reader = None
                return None
        return None if blob is None else unpack(key, blob)

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply; it is in the file within about `DELAY` seconds, or after `flush`."""
        with self._lock:
            if self._closed:
                return
            self._pending[key] = reply
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="geval-cache", daemon=True)
                self._thread.start()
            self._queue.put((key, reply))

    def flush(self) -> None:
        """Wait until everything put so far is in the file (or was given up, and said so)."""
        with self._lock:
            if self._thread is None:
                return
            done = threading.Event()
            self._queue.put(done)
        done.wait()

    def close(self) -> None:
        """Write what is left and let go of the file; the cache is empty afterwards."""
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            thread.join()
        self._drop_reader()
        atexit.unregister(self.close)

    def info(self) -> CacheInfo:
        """Path, number of replies, bytes on disk, times of the oldest and the newest reply."""
        self.flush()
        if self._closed:
            return CacheInfo(self.path)
        with contextlib.closing(self._open()) as file:
            return file.info()

    def clear(self, older_than: timedelta | None = None) -> int:
        """Remove all replies, or those older than `older_than`; how many were removed."""
        self.flush()
        if self._closed:
            return 0
        with contextlib.closing(self._open()) as file:
            return file.clear(
                None if older_than is None else time.time() - older_than.total_seconds()
            )

    # File

    def _open(self, busy: float = BUSY_SECONDS) -> CacheFile:
        return CacheFile(self.path, note=self._tell, busy=busy)

    def _drop_reader(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _mend(self, file: CacheFile | None, error: Exception) -> bool:
        """Close a file that failed, set it aside if it is damaged. Whether a new try may do."""
        if file is None or not is_damage(error):
            if file is not None:
                file.close()
            self._tell(f"the reply cache {self.path} failed: {error}")
            return False
        try:
            file.set_aside(error)
        except OSError as failure:
            self._tell(f"the reply cache {self.path} is damaged and cannot be moved: {failure}")
            return False
        return True

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)

    # Writing, in a thread of its own

    def _write(self) -> None:
        file: CacheFile | None = None
        going = True
        while going:
            entries, done, going = self._collect()
            rows = [row for entry in entries if (row := self._row(*entry)) is not None]
            if rows:
                file = self._commit(file, rows)
            with self._lock:
                for key, reply in entries:
                    if self._pending.get(key) is reply:
                        del self._pending[key]
            if done is not None:
                done.set()
        if file is not None:
            file.close()

    def _collect(self) -> tuple[list[_Entry], threading.Event | None, bool]:
        """What came within `DELAY` of the first entry, up to a full batch, a flush or the end."""
        entries: list[_Entry] = []
        until = None
        while len(entries) < BATCH:
            try:
                item = self._queue.get(
                    timeout=None if until is None else max(0.0, until - time.monotonic())
                )
            except queue.Empty:
                break
            if item is None:
                return entries, None, False
            if isinstance(item, threading.Event):
                return entries, item, True
            entries.append(item)
            until = until or time.monotonic() + DELAY
        return entries, None, True

    def _row(self, key: str, reply: Reply) -> tuple[bytes, int, bytes] | None:
        try:
            return bytes.fromhex(key), int(time.time()), pack(key, reply)
        except (TypeError, ValueError) as error:
            self._tell(f"a reply cannot be kept in the cache: {error}")
            return None

    def _commit(
        self, file: CacheFile | None, rows: list[tuple[bytes, int, bytes]]
    ) -> CacheFile | None:
        """Write a batch; the file to go on with. Rows that cannot be written are given up."""
        for _ in range(2):
            try:
                if file is not None and file.moved:
                    file.close()
                    file = None
                    self._drop_reader()
                file = file or self._open()
                file.write(rows)
                return file
            except (OSError, sqlite3.Error) as error:
                again = self._mend(file, error)
                file = None
                self._drop_reader()  # it may hold the file that was set aside
                if not again:
                    break
        return None
