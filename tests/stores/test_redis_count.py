"""How many sessions all machines have, and each caller, on Redis and Valkey."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mcpearl.stores import redis_count
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_count import HURRY, SessionCount
from mcpearl.stores.redis_link import RedisLink
from tests.redis_server import fresh_address
from tests.waiting import eventually

TTL = 1000.0


class Counting:
    """The counts of two processes."""

    def __init__(self, address: str) -> None:
        self.links = [RedisLink(parse(address)) for _ in range(2)]
        self.one, self.two = (SessionCount(link) for link in self.links)

    async def look(self) -> None:
        """Have both write what changed, then both read it."""
        for each in (self.one, self.two, self.one):
            await each.look()

    async def keys(self) -> list[bytes]:
        found: list[bytes] = await self.links[0].send("KEYS", "*")
        prefix = self.links[0].prefix.encode()
        return [key for key in found if key.startswith(b"{" + prefix + b"}")]


@pytest.fixture(params=["redis", "valkey"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[Counting]:
    made = Counting(fresh_address(request.param))
    for link in made.links:
        await link.start()
    yield made
    for link in made.links:
        await link.close()


async def test_sessions_of_a_caller_are_counted_over_processes(both: Counting) -> None:
    assert both.one.of("ann") == both.two.of("ann") == both.two.of("bob") == 0
    for number in range(3):
        both.one.begun(f"a{number}", "ann", TTL)
    both.two.begun("a3", "ann", TTL)
    both.two.begun("b0", "bob", TTL)
    both.two.begun("x0", "", TTL)
    assert (both.one.of("ann"), both.two.of("ann")) == (3, 1)
    await both.look()
    assert (both.one.of("ann"), both.two.of("ann"), both.two.of("bob")) == (4, 4, 1)
    assert both.one.now == both.two.now == 6


async def test_a_session_that_is_used_is_counted_once_and_ends_anywhere(both: Counting) -> None:
    for each in (both.one, both.two):
        each.of("ann")
    both.one.begun("a", "ann", TTL)
    await both.look()
    both.one.used("a", "ann", TTL)
    both.two.used("a", "ann", TTL)
    await both.look()
    assert both.one.of("ann") == both.two.of("ann") == both.one.now == 1
    both.two.ended("a", "ann")
    both.one.ended("a", "ann")  # at the same time
    await both.look()
    await both.look()
    assert both.one.of("ann") == both.two.of("ann") == both.one.now == both.two.now == 0
    assert await both.keys() == []


async def test_sessions_that_expire_are_no_longer_counted(both: Counting) -> None:
    both.one.of("ann")
    both.one.begun("short", "ann", 0.01)
    both.one.begun("long", "ann", TTL)

    async def one_is_left() -> bool:
        await both.one.look()
        return both.one.of("ann") == both.one.now == 1

    await eventually(one_is_left)
    for key in await both.keys():
        assert await both.links[0].send("PTTL", key) > 0


async def test_a_caller_is_forgotten_that_begins_nothing(both: Counting) -> None:
    both.one.of("ann")
    for _ in range(20):
        await both.one.look()
    assert not both.one._callers


async def test_callers_that_are_asked_for_are_bounded(
    both: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_count, "MAX_CALLERS", 10)
    for number in range(50):
        both.one.of(f"caller {number}")
        both.one.begun(str(number), f"caller {number}", TTL)
    assert len(both.one._callers) == 10
    await both.one.look()
    assert both.one.now == 50


async def test_as_many_callers_as_may_be_asked_for_are_asked_for(both: Counting) -> None:
    for number in range(redis_count.MAX_CALLERS):
        both.one.of(str(number))
    both.one.begun("session", "7", TTL)
    await both.one.look()
    assert (both.one.of("7"), both.one.of("8")) == (1, 0)


async def test_many_that_begin_are_counted_sooner(
    both: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_count, "EVERY", 3600.0)
    running = asyncio.create_task(both.one.run())
    await asyncio.sleep(0)
    for number in range(HURRY):
        both.one.begun(str(number), "ann", TTL)
    await eventually(lambda: both.one._known == HURRY)
    running.cancel()
    await asyncio.wait([running])


async def test_processes_that_ask_never_admit_more_than_there_may_be(both: Counting) -> None:
    names = [str(number) for number in range(40)]
    asked = [
        (both.one, both.two)[number % 2].admit(name, "ann", TTL, 12)
        for number, name in enumerate(names)
    ]
    admitted = await asyncio.gather(*asked)
    assert admitted.count(True) == 6
    both.one.ended(names[admitted.index(True)], "ann")
    assert await both.one.admit("another", "ann", TTL, 12)
    assert not await both.two.admit("another", "ann", TTL, 12)
    await both.look()
    assert (both.one.now, both.two.now) == (6, 6)


async def test_a_process_begins_a_part_of_what_is_left_without_asking(both: Counting) -> None:
    one = both.one
    assert not one.may_begin("ann", 100_000), "it does not know yet how many there are"
    one.of("ann")
    await one.look()
    allowed = 0
    while one.may_begin("ann", 1000):
        one.begun(str(allowed), "ann", TTL)
        allowed += 1
    assert allowed == 1000 // 2 // 128
    await one.look()
    assert one.may_begin("ann", 1000) and not one.may_begin("ann", 200)


async def test_a_session_of_which_it_is_not_known_whether_it_was_admitted_is_not_counted(
    both: Counting,
) -> None:
    one, (link, _) = both.one, both.links
    asking = asyncio.create_task(one.admit("lost", "ann", TTL, 12))
    await asyncio.sleep(0)  # the command is on its way
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    await link.send("PING")
    await both.look()
    assert both.one.now == both.two.now == 0
