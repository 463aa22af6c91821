"""One timer for many deadlines, and a timeout that can be held."""

import asyncio

import pytest

from mcpearl.runtime.timers import DeadlineTimer, HeldTimeout
from mcpearl.testing.clock import MovableClock


class Deadlines:
    """Deadlines that note when they are over."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: list[float] = []
        self.over: list[float] = []
        self.timer = DeadlineTimer(self.loop, self.expire)

    def add(self, seconds: float) -> None:
        deadline = self.loop.time() + seconds
        self.waiting = sorted([*self.waiting, deadline])
        self.timer.at_latest(deadline)

    def expire(self, now: float) -> float | None:
        self.over += [deadline for deadline in self.waiting if deadline <= now]
        self.waiting = [deadline for deadline in self.waiting if deadline > now]
        return self.waiting[0] if self.waiting else None


async def test_deadlines_are_met_in_order_whatever_the_order_of_adding(
    clock: MovableClock,
) -> None:
    deadlines = Deadlines()
    for seconds in (5, 1, 3):
        deadlines.add(seconds)
    await clock.advance(2)
    assert len(deadlines.over) == 1
    await clock.advance(4)
    assert deadlines.over == sorted(deadlines.over)
    assert len(deadlines.over) == 3


async def test_it_runs_again_after_it_was_idle(clock: MovableClock) -> None:
    deadlines = Deadlines()
    for _ in range(2):
        deadlines.add(1)
        await clock.advance(10)
    assert len(deadlines.over) == 2


async def test_cancelled_it_never_runs_again(clock: MovableClock) -> None:
    deadlines = Deadlines()
    deadlines.add(1)
    deadlines.timer.cancel()
    deadlines.add(1)
    await clock.advance(10)
    assert deadlines.over == []


async def test_a_timeout_stands_still_while_it_is_held(clock: MovableClock) -> None:
    timeout = HeldTimeout(asyncio.get_running_loop())
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def timed() -> None:
        async with timeout.within(10):
            await over

    task = asyncio.create_task(timed())
    await clock.advance(6)
    timeout.hold(True)
    await clock.advance(100)
    assert not task.done()
    timeout.hold(False)
    await clock.advance(3)
    assert not task.done()
    await clock.advance(2)
    with pytest.raises(TimeoutError):
        await task


async def test_a_timeout_that_was_never_set_can_be_held(clock: MovableClock) -> None:
    timeout = HeldTimeout(asyncio.get_running_loop())
    timeout.hold(True)
    await clock.advance(100)
    timeout.hold(False)
    with pytest.raises(TimeoutError):
        async with timeout.within(60):
            await clock.advance(59)
            await clock.advance(2)
            raise AssertionError("it is not cancelled")
