"""Iterators over changes: taken on one loop, put in by any thread, and left behind by a fork."""

import asyncio
import threading

from mcpearl.runtime.feed import Audience
from tests.waiting import eventually


async def test_changes_may_be_put_in_by_another_thread() -> None:
    audience: Audience[int] = Audience()
    feed = audience.iterate(limit=10_000)

    def tell() -> None:
        for number in range(5000):
            audience.tell(number)
        feed.close()

    thread = threading.Thread(target=tell)
    thread.start()
    taken = [change async for change in feed]
    thread.join()
    assert taken == list(range(5000))
    assert len(audience) == 0


async def test_one_that_waits_is_woken_by_another_thread() -> None:
    audience: Audience[str] = Audience()
    feed = audience.iterate(limit=10)
    waiting = asyncio.ensure_future(anext(feed))
    await eventually(lambda: feed.loop is not None)
    await asyncio.to_thread(audience.tell, "news")
    assert await waiting == "news"


def test_changes_after_the_end_of_a_loop_are_kept() -> None:
    audience: Audience[str] = Audience()
    feed = audience.iterate(limit=10)
    audience.tell("one")

    async def take() -> str:
        return await anext(feed)

    assert asyncio.run(take()) == "one"
    audience.tell("two")
    assert asyncio.run(take()) == "two"


async def test_a_fork_leaves_those_to_its_parent_that_a_loop_takes() -> None:
    audience: Audience[str] = Audience()
    heard: list[str] = []
    audience.call(heard.append)
    taken, untaken = audience.iterate(limit=10), audience.iterate(limit=10)
    audience.tell("before")
    assert await anext(taken) == "before"
    audience.leave_to_parent()
    audience.tell("after")
    assert heard == ["before", "after"]
    assert [await anext(untaken), await anext(untaken)] == ["before", "after"]
    taken.close()
    assert [change async for change in taken] == []
