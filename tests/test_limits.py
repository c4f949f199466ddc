"""Limits on traffic and money."""

from __future__ import annotations

import asyncio

import pytest
from virtual_time import run

from geval.errors import BudgetError
from geval.judges.base import Usage
from geval.traffic.limits import Budget, Limiter, Limits, limiter_for


@pytest.mark.fault("N10")
def test_calls_in_flight_are_bounded_and_all_get_a_turn() -> None:
    async def main() -> tuple[int, int]:
        limiter, most, done = Limiter(3), 0, 0

        async def call() -> None:
            nonlocal most, done
            async with limiter.place():
                most = max(most, limiter.in_flight)
                await asyncio.sleep(1)
                done += 1

        await asyncio.gather(*(call() for _ in range(50)))
        return most, done

    assert run(main()) == (3, 50)


@pytest.mark.fault("N10")
def test_a_refusal_halves_the_flight_and_pauses_everyone() -> None:
    async def main() -> tuple[int, float, int]:
        limiter = Limiter(16)
        limiter.slow_down(30.0)
        limiter.slow_down(30.0)  # of the same storm
        halved = limiter.ceiling
        async with limiter.place():
            resumed = asyncio.get_running_loop().time()
        for _ in range(200):
            limiter.succeeded()
        return halved, resumed, limiter.ceiling

    halved, resumed, grown = run(main())
    assert (halved, grown) == (8, 16)
    assert resumed >= 30.0


def test_requests_and_tokens_a_minute_are_kept() -> None:
    async def starts(limiter: Limiter, tokens: int) -> list[float]:
        times: list[float] = []

        async def call() -> None:
            async with limiter.place(tokens):
                times.append(asyncio.get_running_loop().time())

        await asyncio.gather(*(call() for _ in range(25)))
        return times

    for limiter, tokens in ((Limiter(64, rpm=10), 0), (Limiter(64, tpm=1000), 100)):
        times = run(starts(limiter, tokens))
        for begin in times:
            assert sum(begin <= t < begin + 60 for t in times) <= 10


def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    async def main() -> bool:
        limiter = Limiter(1)
        hold = asyncio.Event()

        async def holder() -> None:
            async with limiter.place():
                await hold.wait()

        async def waiter() -> bool:
            async with limiter.place():
                return True

        first = asyncio.create_task(holder())
        await asyncio.sleep(0)
        lost, next_ = asyncio.create_task(waiter()), asyncio.create_task(waiter())
        await asyncio.sleep(0)
        hold.set()
        await asyncio.sleep(0)
        lost.cancel()
        await first
        return await asyncio.wait_for(next_, 60)

    assert run(main())


def test_one_limiter_per_endpoint() -> None:
    async def main() -> bool:
        limits = Limits(concurrency=4)
        one = limiter_for("host", 16, limits)
        return one is limiter_for("host", 16, limits) and one is not limiter_for("b", 16, limits)

    assert run(main())


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [(Limits(max_calls=3), 3), (Limits(max_tokens=350), 3), (Limits(max_cost=0.35), 3)],
)
def test_a_budget_stops_before_the_call_that_could_exceed_it(limits: Limits, allowed: int) -> None:
    budget = Budget(limits)
    for _ in range(allowed):
        budget.reserve(1, 100, 0.1)
    with pytest.raises(BudgetError, match="is reached"):
        budget.reserve(1, 100, 0.1)
    # What a call really cost, less than was set aside, leaves room for another.
    budget.settle(1, 100, 0.1)
    if limits.max_calls is None:
        budget.pay(Usage(1, 10, 10), 0.02)
        budget.reserve(1, 70, 0.07)


@pytest.mark.fault("R2")
def test_a_cost_limit_needs_a_known_price() -> None:
    with pytest.raises(BudgetError, match="needs a known price"):
        Budget(Limits(max_cost=1.0)).reserve(1, 100, None)
    budget = Budget(Limits())
    budget.reserve(1, 100, None)
    budget.pay(Usage(1, 50, 5), None)
    assert budget.to_dict()["cost_usd"] is None
    assert budget.to_dict()["prompt_tokens"] == 50
