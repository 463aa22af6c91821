"""Bulkheads: how many are inside, how many wait, and that no place is ever lost."""

import asyncio
import random

import pytest

from mcpearl.runtime.bulkhead import Bulkhead, BulkheadFull


async def test_so_many_enter_so_many_wait_and_the_next_is_refused() -> None:
    bulkhead = Bulkhead(2, queue=1, name="the database")
    await bulkhead.enter()
    await bulkhead.enter()
    third = asyncio.ensure_future(bulkhead.enter())
    await asyncio.sleep(0)
    assert (bulkhead.inside, bulkhead.waiting) == (2, 1)
    with pytest.raises(BulkheadFull, match="the database has 2 calls in hand and 1 waiting"):
        await bulkhead.enter()
    bulkhead.leave()
    await third
    assert (bulkhead.inside, bulkhead.waiting) == (2, 0)


async def test_those_who_wait_enter_in_order() -> None:
    bulkhead = Bulkhead(1, queue=10)
    order: list[int] = []

    async def work(number: int) -> None:
        async with bulkhead:
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, range(8)))
    assert order == list(range(8))
    assert bulkhead.inside == 0


async def test_no_place_is_lost_when_tasks_are_cancelled() -> None:
    chance = random.Random(7)
    bulkhead = Bulkhead(3, queue=50)
    most = 0

    async def work() -> None:
        nonlocal most
        async with bulkhead:
            most = max(most, bulkhead.inside)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

    for _ in range(200):
        tasks = [asyncio.ensure_future(work()) for _ in range(20)]
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        for task in chance.sample(tasks, 10):
            task.cancel()
        await asyncio.wait(tasks)
        assert (bulkhead.inside, bulkhead.waiting) == (0, 0)
    assert most == 3


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bulkhead(0)
