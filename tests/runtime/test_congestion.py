"""Whose turn it is while a loop has more to do than it can, and what is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from mcpearl.runtime.congestion import Congestion
from mcpearl.testing.clock import MovableClock, next_timer
from tests.waiting import turns

COST = 0.01  # seconds that everything served takes


class StandingClock(MovableClock):
    """A clock that only the test moves: what a busy machine takes for the work does not count."""

    def monotonic(self) -> float:
        return self._ahead


@pytest.fixture
def clock() -> Iterator[StandingClock]:
    with StandingClock() as standing:
        yield standing


class Server:
    """Serves work that takes its time, and notes what became of it."""

    def __init__(self, clock: MovableClock, limit: float = 1.0) -> None:
        self.clock = clock
        self.congestion = Congestion(limit)
        self.served: list[Any] = []
        self.refused: list[Any] = []
        self.congestion.start()

    def put(self, peer: str, *work: Any) -> None:
        for each in work:
            self.congestion.put(peer, self.begin, each)

    def begin(self, work: Any) -> None:
        if self.congestion.is_behind():
            self.refused.append(work)
        else:
            self.clock.move(COST)
            self.served.append(work)


async def test_a_burst_is_served_in_order(clock: MovableClock) -> None:
    server = Server(clock)
    server.put("a", *range(90))
    assert server.congestion.crowded
    await turns()
    assert server.served == list(range(90))
    assert not server.congestion.crowded


async def test_what_waited_longer_than_the_limit_is_refused(clock: MovableClock) -> None:
    server = Server(clock)
    server.put("a", *range(150))
    await turns()
    assert sorted(server.served + server.refused) == list(range(150))
    assert 95 <= len(server.served) <= 105


async def test_under_lasting_load_the_wait_is_short_and_nothing_stands_still(
    clock: MovableClock,
) -> None:
    server = Server(clock)
    put_at: dict[int, float] = {}
    waits: list[float] = []
    number = 0

    def begin(work: int) -> None:
        if not server.congestion.is_behind():
            waits.append(clock.monotonic() - put_at[work])
        server.begin(work)

    for _ in range(800):  # twice as many as can be served
        for _ in range(2):
            put_at[number] = clock.monotonic()
            server.congestion.put("a", begin, number)
            number += 1
        await asyncio.sleep(0)
        if not server.congestion.crowded:
            clock.move(COST)
    await turns(1000)
    assert len(server.served) + len(server.refused) == number
    assert len(server.served) > 400
    late = waits[len(waits) // 2 :]
    assert max(late) < 0.4, "a quarter of the limit, and what was under way"


async def test_a_peer_that_floods_does_not_delay_another(clock: MovableClock) -> None:
    server = Server(clock)
    server.put("flood", *range(1000))
    server.put("other", "one")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.served.index("one") <= 1
    server.put("other", "two", "three")
    await turns(1000)
    assert {"two", "three"} <= set(server.served)
    assert len(server.served) + len(server.refused) == 1003
    assert not server.congestion.crowded


async def test_if_there_are_more_than_can_be_refused_the_newest_is_served(
    clock: MovableClock,
) -> None:
    server = Server(clock)
    server.put("a", *range(500))
    clock.move(2)  # all of them have waited too long
    server.put("a", "new")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.served == ["new"]
    assert server.refused[:32] == list(range(32))
    await turns()
    assert len(server.refused) == 500


async def test_a_turn_that_takes_long_is_noticed_without_lines(clock: MovableClock) -> None:
    server = Server(clock, limit=0.1)
    behind = []
    for _ in range(20):
        behind.append(server.congestion.is_behind())
        clock.move(COST)
    assert behind[:10] == [False] * 10
    assert all(behind[12:])
    await turns()
    await clock.advance(0.1)
    assert not server.congestion.is_behind()


async def test_an_idle_loop_is_not_woken(clock: MovableClock) -> None:
    server = Server(clock)
    loop: Any = asyncio.get_running_loop()
    before = next_timer(loop)
    assert not server.congestion.is_behind()
    await clock.advance(1)
    assert next_timer(loop) == before


async def test_at_the_end_what_waits_is_refused_and_nothing_after_that(
    clock: MovableClock,
) -> None:
    server = Server(clock)
    server.put("a", *range(100))
    server.put("b", *range(100, 110))
    server.congestion.stop()
    assert sorted(server.refused) == list(range(110))
    clock.move(5)
    server.put("a", "late")
    assert server.served == ["late"]
    await turns()
    assert not server.congestion.crowded


async def test_what_raises_costs_no_other_its_turn(clock: MovableClock) -> None:
    server = Server(clock)

    def fail(work: Any) -> None:
        raise ZeroDivisionError

    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    server.congestion.put("a", fail, None)
    server.put("a", 1)
    server.put("b", 2)
    await turns()
    assert sorted(server.served) == [1, 2]
    assert len(errors) == 1


def test_a_limit_is_some_time() -> None:
    with pytest.raises(ValueError, match="some time to wait"):
        Congestion(0)
