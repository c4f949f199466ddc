"""Between scoring and a judge: reply cache, budget, limiter, deadlines, retries, record."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from geval.errors import BudgetError, RejectedError, TransientError
from geval.judges.base import Judge, Reply, Request, Usage, shown_model
from geval.notes import told
from geval.runs.run import Writer
from geval.traffic.limits import Budget, Limits, limiter_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from geval.traffic.cache import Cache

T = TypeVar("T")
Note = Callable[[str], None]
Refine = Callable[[Reply], Reply]
Price = Callable[[Usage], float | None]

REPLY, PLACE = "a reply", "a place in flight"
"""What a call may wait for."""


class RunAsker:
    """Puts the requests of a run to one judge.

    Every reply goes to the run's record and to the reply cache; errors go to neither. Raises the
    judge's error once retrying is over, BudgetError before a call that a limit forbids. `revision`
    is what the judge called itself in an earlier sitting of the run.
    """

    def __init__(
        self,
        judge: Judge,
        writer: Writer,
        limits: Limits,
        budget: Budget,
        *,
        cache: Cache | None = None,
        price: Price = lambda usage: None,
        note: Note = lambda text: None,
        revision: str | None = None,
    ) -> None:
        self.revision = revision
        self._answered_as = ""
        self.judge, self.limits, self.budget = judge, limits, budget
        self._writer, self._cache, self._price, self._note = writer, cache, price, note
        self._identity = judge.identity()
        endpoint = str(self._identity.get("endpoint") or judge.spec)
        self._limiter = limiter_for(endpoint, judge.concurrency, limits)
        self._told: set[str] = set()
        self._started = time.monotonic()
        self.waiting: dict[int, tuple[str, str, float, str]] = {}
        self.arrived = time.monotonic()

    async def ask(self, request: Request, refine: Refine = lambda reply: reply) -> Reply:
        """The reply, from the cache or the judge; `refine` trims it before it is kept."""
        key = ""
        if self._cache is not None:
            from geval.traffic.cache import cache_key

            key = cache_key(self._cache_identity(), request)
            found = self._cache.get(key)
            if found is not None:
                self.budget.hits += 1
                self._tell(self._changed(found))
                return found
        reply = refine(await self._retried(request))
        self._tell([*reply.notes, *self._changed(reply)])
        if self._cache is not None:
            self._cache.put(key, reply)
        return reply

    def _tell(self, notes: Sequence[str]) -> None:
        """Tell each thing once."""
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                self._note(note)

    def _changed(self, reply: Reply) -> list[str]:
        """What to tell where the model behind the endpoint is another than before."""
        if not reply.model or reply.model == self._answered_as:
            return []
        self._answered_as = reply.model
        now = shown_model(reply.model)
        before, self.revision = self.revision, now
        if not before or now == before:
            return []
        return [told("two_models", judge=self.judge.spec, now=now, before=before)]

    def keep(self, request: Request, reply: Reply, answers: Sequence[int | None]) -> None:
        """Append to the run's replies."""
        self._writer.reply(request, reply, answers)

    def _cache_identity(self) -> dict[str, Any]:
        """What of the judge is in a cache key: not the revision, which is known only afterwards."""
        return {k: v for k, v in self._identity.items() if k != "revision"}

    async def _retried(self, request: Request) -> Reply:
        """Attempts until one succeeds or the row's time is over."""
        clock = _RowClock(self.limits)

        async def attempt() -> Reply:
            self._check_run_time()
            return await self._attempt(request, clock)

        reply = await patiently(attempt, self.limits, self._refused, clock)
        self._limiter.succeeded()
        return reply

    def _refused(self, error: TransientError, wait: float) -> None:
        """A refusal for load slows all callers of the endpoint."""
        if error.status in (429, 503, 529):
            self._limiter.slow_down(wait)

    async def _attempt(self, request: Request, clock: _RowClock) -> Reply:
        tokens = likely_tokens(request)
        # Where n is not served in one call it is n calls, each with the whole prompt.
        calls = max(1, request.n)
        reply = request.max_tokens * calls
        tokens = (tokens - reply) * calls + reply
        one = self._price(Usage(1, (tokens - reply) // calls, request.max_tokens))
        cost = None if one is None else one * calls
        async with self._place(request, tokens, clock):
            self.budget.reserve(calls, tokens, cost)
            seconds = max(0.001, min(self.limits.attempt_timeout, clock.left()))
            # What runs in this process is never hung, only busy: giving up would lose the work.
            patience = seconds if "endpoint" in self._identity else None
            try:
                async with self._watched(request), asyncio.timeout(patience):
                    answer = await self.judge.complete(request)
            except TimeoutError:
                raise TransientError(f"no reply within {seconds:.0f} s") from None
            except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
                raise RejectedError(f"the reply has no shape that can be read: {error!r}") from None
            except RecursionError:
                raise RejectedError("the reply is nested too deeply to be read") from None
            finally:
                self.budget.settle(calls, tokens, cost)
            self.budget.pay(answer.usage, self._price(answer.usage))
            return answer

    @asynccontextmanager
    async def _place(self, request: Request, tokens: int, clock: _RowClock) -> AsyncIterator[None]:
        """A place in flight. The wait for it is the run's time and not the row's."""
        async with AsyncExitStack() as held:
            with clock.stopped():
                async with self._watched(request, PLACE):
                    try:
                        async with asyncio.timeout(self._run_left()):
                            await held.enter_async_context(self._limiter.place(tokens))
                    except TimeoutError:
                        self._check_run_time()
                        raise
            yield

    def _run_left(self) -> float | None:
        """Seconds until the run's time is over."""
        most = self.limits.run_timeout
        return None if most is None else max(0.0, most - (time.monotonic() - self._started))

    @asynccontextmanager
    async def _watched(self, request: Request, what: str = REPLY) -> AsyncIterator[None]:
        """Keep the call among the waiting ones, so that a heartbeat can name its row."""
        mark = id(request)
        self.waiting[mark] = (request.call.id, request.call.criterion, time.monotonic(), what)
        try:
            yield
            if what == REPLY:
                self.arrived = time.monotonic()
        finally:
            self.waiting.pop(mark, None)

    def _check_run_time(self) -> None:
        most = self.limits.run_timeout
        if most is not None and not self._run_left():
            raise BudgetError(
                f"stopped before the next call: the run has taken {most:g} s (--run-timeout)",
                hint="What was judged is kept; the same command continues.",
            )


class _RowClock:
    """What is left of a row's time; it stands still while the limiter holds the row back."""

    def __init__(self, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + limits.row_timeout

    def left(self) -> float:
        """Seconds."""
        return self._ends - self._loop.time()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time in here does not count."""
        since = self._loop.time()
        try:
            yield
        finally:
            self._ends += self._loop.time() - since


async def patiently(
    call: Callable[[], Awaitable[T]],
    limits: Limits,
    on_refusal: Callable[[TransientError, float], None] = lambda error, wait: None,
    clock: _RowClock | None = None,
) -> T:
    """`call` until it succeeds, with back-off (full jitter) and what the server says to wait.

    Raises the last TransientError once the attempts or the row's time are used up.
    """
    clock = clock or _RowClock(limits)
    for attempt in range(1, limits.attempts + 1):
        try:
            return await call()
        except TransientError as error:
            # Many callers that failed together must not come back together.
            backoff = random.uniform(0.5, 1.0) * min(30.0, 0.5 * 2**attempt)
            wait = backoff if error.retry_after is None else error.retry_after + random.random()
            if attempt == limits.attempts or wait > clock.left():
                raise
            on_refusal(error, wait)
        await asyncio.sleep(wait)
    raise AssertionError("attempts is less than 1")


def likely_tokens(request: Request) -> int:
    """A high guess at what a call costs: about 4 Latin letters or 1 other letter a token."""
    text = "".join(m["content"] for m in request.messages)
    # Three bytes a letter in Korean: what UTF-8 needs beyond one a letter tells them apart.
    other = (len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2
    return (len(text) - other) // 3 + other + 20 + request.max_tokens * request.n


async def heartbeat(askers: Sequence[RunAsker], every: float, note: Note) -> None:
    """Name the rows that are waited for whenever nothing has arrived for `every` seconds."""
    while True:
        await asyncio.sleep(every)
        now = time.monotonic()
        if now - max(a.arrived for a in askers) < every:
            continue
        waiting = sorted((w for a in askers for w in a.waiting.values()), key=lambda w: w[2])
        parts: list[str] = []
        for kind in (REPLY, PLACE):
            rows = [(row, of, since) for row, of, since, what in waiting if what == kind]
            named = ", ".join(f"{row} ({of}, {now - since:.0f} s)" for row, of, since in rows[:3])
            if len(rows) > 3:
                named = told("and_more", rows=named, n=len(rows) - 3)
            key = "waiting_reply" if kind == REPLY else "waiting_place"
            parts += [told(key, rows=named)] if rows else []
        if len(parts) == 2:
            parts = [told("both", one=parts[0], two=parts[1])]
        if parts:
            note(told("nothing_arrived", seconds=every, waiting=parts[0]))
