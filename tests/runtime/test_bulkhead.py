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


async def test_keys_take_turns() -> None:
    bulkhead = Bulkhead(1, queue=10)
    order: list[str] = []
    await bulkhead.enter("a")

    async def work(key: str) -> None:
        await bulkhead.enter(key)
        order.append(key)
        bulkhead.leave(key)

    tasks = [asyncio.ensure_future(work(key)) for key in "aaabbc"]
    await asyncio.sleep(0)
    bulkhead.leave("a")
    await asyncio.gather(*tasks)
    assert "".join(order) == "abcaba"


async def test_a_free_place_is_for_the_key_that_has_fewest_inside() -> None:
    bulkhead = Bulkhead(3, queue=10)
    order: list[str] = []

    async def enter(key: str) -> None:
        await bulkhead.enter(key)
        order.append(key)

    tasks = [asyncio.ensure_future(enter(key)) for key in "aaaaaabbbc"]  # three of `a` are inside
    await asyncio.sleep(0)
    for key, entered in (("a", "b"), ("a", "c"), ("b", "b"), ("b", "b"), ("c", "a"), ("b", "a")):
        before = len(order)
        bulkhead.leave(key)
        await asyncio.sleep(0)
        assert order[before:] == [entered]
    for key in "aaaa":
        bulkhead.leave(key)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert (bulkhead.inside, bulkhead.waiting) == (0, 0)


async def test_a_key_that_is_not_inside_cannot_leave() -> None:
    bulkhead = Bulkhead(1, name="the database")
    await bulkhead.enter("a")
    with pytest.raises(RuntimeError, match="no task is in the database with the key None"):
        bulkhead.leave()
    bulkhead.leave("a")
    assert bulkhead.inside == 0


async def test_each_key_has_a_share_of_a_full_queue() -> None:
    bulkhead = Bulkhead(1, queue=4)
    await bulkhead.enter("a")
    flood = [asyncio.ensure_future(bulkhead.enter("a")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(BulkheadFull):
        await bulkhead.enter("a")
    others = [asyncio.ensure_future(bulkhead.enter("b")) for _ in range(2)]
    await asyncio.wait(flood[2:])
    for task in flood[2:]:
        with pytest.raises(BulkheadFull, match="others have fewer"):
            task.result()
    with pytest.raises(BulkheadFull):
        await bulkhead.enter("b")
    assert bulkhead.waiting == 4
    for key in "aabab":  # in the order in which they get the place
        bulkhead.leave(key)
    await asyncio.gather(*flood[:2], *others)
    assert (bulkhead.inside, bulkhead.waiting) == (0, 0)


async def test_no_more_keys_wait_than_there_are_places() -> None:
    bulkhead = Bulkhead(1, queue=2)
    await bulkhead.enter("a")
    waiting = [asyncio.ensure_future(bulkhead.enter(key)) for key in "bc"]
    await asyncio.sleep(0)
    with pytest.raises(BulkheadFull):
        await bulkhead.enter("d")
    for key in "abc":
        bulkhead.leave(key)
    await asyncio.gather(*waiting)


async def test_a_bulkhead_without_a_queue_refuses_every_key() -> None:
    bulkhead = Bulkhead(1, queue=0)
    await bulkhead.enter("a")
    with pytest.raises(BulkheadFull):
        await bulkhead.enter("b")


async def test_no_place_is_lost_when_tasks_are_cancelled() -> None:
    chance = random.Random(7)
    bulkhead = Bulkhead(3, queue=8)
    most = refused = 0

    async def work() -> None:
        nonlocal most, refused
        key = chance.choice("aaaab")
        try:
            await bulkhead.enter(key)
        except BulkheadFull:
            refused += 1
            return
        most = max(most, bulkhead.inside)
        try:
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        finally:
            bulkhead.leave(key)

    for _ in range(200):
        tasks = [asyncio.ensure_future(work()) for _ in range(20)]
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        for task in chance.sample(tasks, 10):
            task.cancel()
        await asyncio.wait(tasks)
        assert (bulkhead.inside, bulkhead.waiting) == (0, 0)
    assert most == 3
    assert refused


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bulkhead(0)
