"""The study's own count of requests, and the asker that keeps it.

A request counts once however often it is asked and whether a cache answers it or not, so a warm
cache changes the bill and nothing else. The ledger stops before the call that would exceed the
budget. It is a file of one line a request; what stands there is never counted anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from geval.errors import FatalError, RejectedError, TransientError
from geval.judges.base import Judge, Reply, Request
from geval.runs.lines import complete_lines
from geval.traffic.asking import RunAsker
from geval.traffic.cache import cache_key
from geval.traffic.limits import Budget, Limits

FAILURES_IN_A_ROW = 8
"""Calls that fail one after the other before the endpoint is taken to be down."""


class BudgetSpent(BaseException):
    """The next request would exceed the budget.

    No `Exception`, because libraries that score a failed program as 0 would swallow it.
    """


class Ledger:
    """Distinct requests of a study.

    `limit` may be lowered to keep some of the budget for later. `used` counts every request that
    was ever let through, n samples as n; `settled` those whose work was finished, in this
    computation: it is the same however often the study was interrupted.
    """

    def __init__(self, budget: int, path: Path | None = None) -> None:
        self.budget = self.limit = budget
        self._path = path
        self._cost: dict[str, int] = {}
        self.used = 0
        self._answered: set[str] = set()
        self._settled: set[str] = set()
        self._failed: dict[str, tuple[str, str]] = {}
        self._held: list[dict[str, Any]] = []
        self._in_a_row = 0
        self.paid = 0
        self.cached = 0
        self.paid_tokens = 0
        self._open: Any = None
        self._tracked: set[str] | None = None
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        for line in complete_lines(path):
            entry = json.loads(line)
            if entry["key"] not in self._cost:
                self._cost[entry["key"]] = entry["requests"]
                self.used += entry["requests"]
            if "error" in entry:
                self._failed[entry["key"]] = (entry["error"], entry["message"])
            if "paid" in entry:
                self._count(entry)

    def _count(self, entry: dict[str, Any]) -> None:
        self._answered.add(entry["key"])
        if entry["paid"]:
            self.paid += entry["requests"]
            self.paid_tokens += entry["tokens"]
        else:
            self.cached += entry["requests"]

    @property
    def settled(self) -> int:
        """Requests of finished work."""
        return sum(self._cost[key] for key in self._settled)

    def cost_of(self, keys: Collection[str]) -> int:
        """Requests that these keys stand for."""
        return sum(self._cost.get(key, 0) for key in keys)

    @contextmanager
    def work(self) -> Iterator[set[str]]:
        """Requests made inside are settled together once all of it is done; yields their keys."""
        before, self._tracked = self._tracked, set()
        mine = self._tracked
        try:
            yield mine
            self._settled |= mine
        finally:
            self._tracked = before
            if before is not None:
                before |= mine

    def enter(self, key: str, requests: int) -> None:
        """Let a request through, or raise BudgetSpent before it is made."""
        if self._tracked is not None:
            self._tracked.add(key)
        if key in self._cost:
            return
        if self.used + requests > self.limit:
            raise BudgetSpent
        self._cost[key] = requests
        self.used += requests
        self._write({"key": key, "requests": requests})

    def answered(self, key: str, call: dict[str, Any], *, paid: bool, tokens: int) -> None:
        """A reply came, by a call that was paid or from a cache. Each is told once, unless paid."""
        for entry in self._held:  # the endpoint is alive, so those calls failed for themselves
            self._failed[entry["key"]] = (entry["error"], entry["message"])
            self._write(entry)
        self._held.clear()
        self._in_a_row = 0
        if key in self._answered and not paid:
            return
        entry = {
            "key": key, "requests": self._cost[key], "paid": paid, "tokens": tokens, **call,
        }  # fmt: skip
        self._count(entry)
        self._write(entry)

    def failed(self, key: str, error: TransientError | RejectedError) -> None:
        """A call failed for good. Raises FatalError where the endpoint seems to be down."""
        kind = "transient" if isinstance(error, TransientError) else "rejected"
        entry = {
            "key": key, "requests": self._cost[key], "error": kind, "message": error.what,
        }  # fmt: skip
        if kind == "rejected":
            self._failed[key] = (kind, error.what)
            self._write(entry)
            return
        self._held.append(entry)
        self._in_a_row += 1
        if self._in_a_row >= FAILURES_IN_A_ROW:
            raise FatalError(
                f"{self._in_a_row} calls in a row failed: {error.what}",
                hint="What was judged is kept; the same command continues the study.",
            ) from error

    def failure(self, key: str) -> TransientError | RejectedError | None:
        """How a request failed in an earlier sitting, so that it fails in this one too."""
        if key not in self._failed:
            return None
        kind, message = self._failed[key]
        return TransientError(message) if kind == "transient" else RejectedError(message)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._path is None:
            return
        if self._open is None:
            _cut_torn(self._path)
            self._open = self._path.open("a", encoding="utf-8", newline="\n")
        self._open.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._open.flush()

    def close(self) -> None:
        """Let go of the file."""
        if self._open is not None:
            self._open.close()
            self._open = None


def _cut_torn(path: Path) -> None:
    """Remove a last line that was not written whole."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        with path.open("r+b") as file:
            file.truncate(end)


class Store(Protocol):
    """Replies by key: a `geval.traffic.cache.Cache`, or anything like it."""

    def get(self, key: str) -> Reply | None:
        """The reply, or None."""
        ...

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply."""
        ...


class _Layers:
    """The study's own replies in front of the user's cache."""

    def __init__(self, own: Store, shared: Store | None) -> None:
        self.own, self.shared = own, shared
        self.hits: set[str] = set()

    def get(self, key: str) -> Reply | None:
        found = self.own.get(key)
        if found is None and self.shared is not None:
            found = self.shared.get(key)
            if found is not None:
                self.own.put(key, found)
        if found is not None:
            self.hits.add(key)
        return found

    def put(self, key: str, reply: Reply) -> None:
        self.own.put(key, reply)
        if self.shared is not None:
            self.shared.put(key, reply)


class _NoWriter:
    """Replies are kept by the study's cache; there is no run folder to append to."""

    def reply(self, *_: object) -> None:
        """Nothing to do."""


class StudyAsker:
    """An `Asker` whose every request stands in the ledger.

    It asks through `RunAsker`, so limits, retries and caches are those of a run.
    """

    def __init__(
        self,
        judge: Judge,
        ledger: Ledger,
        own: Store,
        shared: Store | None,
        limits: Limits,
        note: Callable[[str], None],
    ) -> None:
        self.judge, self.ledger = judge, ledger
        self._budget = Budget(limits)
        self.revisions: set[str] = set()
        self._layers = _Layers(own, shared)
        self._inner = RunAsker(
            judge,
            _NoWriter(),  # type: ignore[arg-type]
            limits,
            self._budget,
            cache=self._layers,  # type: ignore[arg-type]
            note=note,
        )
        self._identity = {k: v for k, v in judge.identity().items() if k != "revision"}

    async def ask(
        self, request: Request, refine: Callable[[Reply], Reply] = lambda reply: reply
    ) -> Reply:
        """The reply. Raises BudgetSpent before a call that the budget forbids."""
        key = cache_key(self._identity, request)
        ledger = self.ledger
        ledger.enter(key, max(1, request.n))
        failure = ledger.failure(key)
        if failure is not None:
            raise failure
        try:
            reply = await self._inner.ask(request, refine)
        except (TransientError, RejectedError) as error:
            ledger.failed(key, error)
            raise
        if reply.model:
            self.revisions.add(reply.model)
        call = {
            "row": request.call.id,
            "criterion": request.call.criterion,
            "purpose": request.call.purpose,
        }
        tokens = reply.usage.prompt + reply.usage.completion
        ledger.answered(key, call, paid=key not in self._layers.hits, tokens=tokens)
        self._layers.hits.add(key)
        return reply

    def keep(self, request: Request, reply: Reply, answers: Sequence[int | None]) -> None:
        """Nothing: the reply is in the study's cache already."""
