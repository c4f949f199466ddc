"""What a run may do at once, in a minute, in all: one limiter per endpoint, one budget per run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from geval.errors import BudgetError
from geval.judges.base import Usage

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on traffic, time and money. None of them can change a score.

    `concurrency` (calls in flight), `rpm` and `tpm` (requests and tokens a minute) hold per
    endpoint. Times are in seconds: of one attempt, of one row with all its attempts, of the run.
    `max_calls`, `max_tokens` and `max_cost` (US dollars) stop a run before the call that could
    exceed them; it continues when they are raised. `heartbeat` is how long nothing may arrive
    before the waiting rows are named.
    """

    concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    attempts: int = 6
    attempt_timeout: float = 120.0
    row_timeout: float = 900.0
    run_timeout: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    heartbeat: float = 30.0


class Limiter:
    """Shares an endpoint among all callers of one event loop.

    The number of calls in flight adapts (additive increase, multiplicative decrease): a 429
    halves it and pauses everyone for as long as the server says, successes let it grow again.
    """

    def __init__(self, concurrency: int, rpm: int | None = None, tpm: int | None = None) -> None:
        self.most = max(1, concurrency)
        self.rpm, self.tpm = rpm, tpm
        self.in_flight = 0
        self._ceiling = float(self.most)
        self._resume_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent: deque[tuple[float, int]] = deque()
        self._spent_tokens = 0

    @property
    def ceiling(self) -> int:
        """Calls that may be in flight now."""
        return int(self._ceiling)

    @asynccontextmanager
    async def place(self, tokens: int = 0) -> AsyncIterator[None]:
        """Hold one place in flight; `tokens` is what the call may cost, for `tpm`."""
        await self._enter(tokens)
        try:
            yield
        finally:
            self.in_flight -= 1
            self._wake()

    def slow_down(self, wait: float) -> None:
        """The endpoint refused for now: fewer calls, and none for `wait` seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._resume_at:  # one storm of refusals counts once
            self._ceiling = max(1.0, self._ceiling / 2)
        self._resume_at = max(self._resume_at, now + wait)

    def succeeded(self) -> None:
        """A call came back: about one more may be in flight after each full round."""
        if self._ceiling < self.most:
            self._ceiling = min(float(self.most), self._ceiling + 1 / self._ceiling)

    async def _enter(self, tokens: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            wait = self._wait(loop.time(), tokens)
            if wait > 0:
                await asyncio.sleep(wait)
            elif self.in_flight < self.ceiling:
                break
            else:
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:
                    self._wake()  # the turn that was given here goes to the next
                    raise
        self.in_flight += 1
        if self.rpm or self.tpm:
            self._spent.append((loop.time(), tokens))
            self._spent_tokens += tokens

    def _wait(self, now: float, tokens: int) -> float:
        """Seconds until a call may start, by pause and by what the last minute has used."""
        wait = self._resume_at - now
        while self._spent and self._spent[0][0] <= now - MINUTE:
            self._spent_tokens -= self._spent.popleft()[1]
        full = self.rpm is not None and len(self._spent) >= self.rpm
        heavy = self.tpm is not None and self._spent and self._spent_tokens + tokens > self.tpm
        if full or heavy:
            wait = max(wait, self._spent[0][0] + MINUTE - now)
        return wait

    def _wake(self) -> None:
        free = self.ceiling - self.in_flight
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


_LIMITERS: WeakKeyDictionary[Any, dict[str, Limiter]] = WeakKeyDictionary()


def limiter_for(endpoint: str, concurrency: int, limits: Limits) -> Limiter:
    """The one limiter of an endpoint in the running event loop; the first caller sets its size."""
    own = _LIMITERS.setdefault(asyncio.get_running_loop(), {})
    if endpoint not in own:
        own[endpoint] = Limiter(limits.concurrency or concurrency, limits.rpm, limits.tpm)
    return own[endpoint]


@dataclass
class Budget:
    """What a run has paid and may still pay. Reply-cache hits cost nothing.

    `check` raises BudgetError before a call that could exceed a limit; calls in flight are
    counted with the most they can cost.
    """

    limits: Limits
    paid: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    hits: int = 0
    _reserved_calls: int = 0
    _reserved_tokens: int = 0
    _reserved_cost: float = 0.0

    def reserve(self, calls: int, tokens: int, cost: float | None) -> None:
        """Set aside the most that a call can cost; raises BudgetError where that is too much."""
        limits = self.limits
        used = self.paid.prompt + self.paid.completion + self._reserved_tokens
        if limits.max_calls is not None and (
            self.paid.calls + self._reserved_calls + calls > limits.max_calls
        ):
            raise _spent(f"--max-calls {limits.max_calls}")
        if limits.max_tokens is not None and used + tokens > limits.max_tokens:
            raise _spent(f"--max-tokens {limits.max_tokens}")
        if limits.max_cost is not None:
            if cost is None or self.cost is None:
                raise BudgetError(
                    "--max-cost needs a known price, and this judge's is not known",
                    hint="Give its price (GEVAL_PRICES), or bound the run with --max-tokens.",
                )
            if self.cost + self._reserved_cost + cost > limits.max_cost:
                raise _spent(f"--max-cost {limits.max_cost:g}")
        self._reserved_calls += calls
        self._reserved_tokens += tokens
        self._reserved_cost += cost or 0.0

    def settle(self, calls: int, tokens: int, cost: float | None) -> None:
        """Give back what `reserve` set aside."""
        self._reserved_calls -= calls
        self._reserved_tokens -= tokens
        self._reserved_cost -= cost or 0.0

    def pay(self, usage: Usage, cost: float | None) -> None:
        """Count what a call has cost; an unknown price makes the sum unknown."""
        self.paid += usage
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def to_dict(self) -> dict[str, Any]:
        """For the manifest: what was paid in this and earlier sittings of the run."""
        return {**self.paid.to_dict(), "cache_hits": self.hits, "cost_usd": self.cost}


def _spent(limit: str) -> BudgetError:
    return BudgetError(
        f"stopped before the next call: {limit} is reached",
        hint="What was judged is kept; the same command with a higher limit continues.",
    )
