"""Circuit breakers: closed, open, half-open, and back."""

import asyncio

import pytest

from mcpearl.runtime.backoff import Backoff
from mcpearl.runtime.breaker import Breaker, BreakerOpen
from mcpearl.testing.clock import MovableClock

DELAYS = Backoff(delays=(1.0, 2.0, 4.0), jitter=0)


async def broken() -> None:
    raise OSError("down")


async def fine() -> str:
    return "fine"


async def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(OSError, match="down"):
            await breaker.call(broken)


async def test_it_opens_after_failures_in_a_row_and_says_why() -> None:
    breaker = Breaker("weather", 3, DELAYS)
    await fail(breaker, 2)
    assert await breaker.call(fine) == "fine"
    await fail(breaker, 2)
    assert breaker.state == "closed", "a success in between starts the count again"
    await fail(breaker, 1)
    assert breaker.state == "open"
    with pytest.raises(BreakerOpen, match=r"weather keeps failing \(OSError: down\)") as refused:
        await breaker.call(fine)
    assert 0 < refused.value.retry_after <= 1


async def test_one_call_is_tried_and_closes_it(clock: MovableClock) -> None:
    breaker = Breaker("weather", 1, DELAYS)
    await fail(breaker, 1)
    clock.move(1)
    assert breaker.state == "half-open"
    release = asyncio.Event()
    trial = asyncio.ensure_future(breaker.call(release.wait))
    await asyncio.sleep(0)
    with pytest.raises(BreakerOpen):
        await breaker.call(fine)
    release.set()
    await trial
    assert breaker.state == "closed"


async def test_a_trial_that_fails_opens_it_for_longer(clock: MovableClock) -> None:
    breaker = Breaker("weather", 1, DELAYS)
    await fail(breaker, 1)
    for seconds in (1, 2, 4, 4):
        clock.move(seconds - 0.01)
        assert breaker.state == "open"
        clock.move(0.02)
        await fail(breaker, 1)
    clock.move(4)
    assert await breaker.call(fine) == "fine"
    await fail(breaker, 1)
    clock.move(1)
    assert breaker.state == "half-open", "the delays have started again"


async def test_a_cancelled_trial_says_nothing(clock: MovableClock) -> None:
    breaker = Breaker("weather", 1, DELAYS)
    await fail(breaker, 1)
    clock.move(1)
    trial = asyncio.ensure_future(breaker.call(asyncio.Event().wait))
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.wait([trial])
    assert breaker.state == "half-open"
    assert await breaker.call(fine) == "fine"


async def test_only_what_counts_opens_it() -> None:
    breaker = Breaker("weather", 1, DELAYS, counts=(OSError,))
    with pytest.raises(ValueError, match="bad city"):
        async with breaker:
            raise ValueError("bad city")
    assert breaker.state == "closed"


async def late(breaker: Breaker, outcome: str, release: asyncio.Event) -> "asyncio.Task[None]":
    """Begin a call that fails, or is cancelled, once it is released."""

    async def call() -> None:
        await release.wait()
        raise OSError("late") if outcome == "fails" else asyncio.CancelledError

    task = asyncio.ensure_future(breaker.call(call))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("outcome", ["fails", "is cancelled"])
async def test_a_call_from_before_does_not_end_a_trial(clock: MovableClock, outcome: str) -> None:
    breaker = Breaker("weather", 1, DELAYS)
    before, release = asyncio.Event(), asyncio.Event()
    old = await late(breaker, outcome, before)
    await fail(breaker, 1)
    clock.move(1)
    trial = asyncio.ensure_future(breaker.call(release.wait))
    await asyncio.sleep(0)
    before.set()
    await asyncio.wait([old])
    assert old.cancelled() or isinstance(old.exception(), OSError)
    assert breaker.state == "half-open"
    with pytest.raises(BreakerOpen):
        await breaker.call(fine)  # which would be a second trial
    release.set()
    await trial
    assert breaker.state == "closed"


async def test_a_trial_whose_task_reports_nothing_is_over(clock: MovableClock) -> None:
    breaker = Breaker("weather", 1, DELAYS)
    await fail(breaker, 1)
    clock.move(1)

    async def enter() -> None:
        breaker.enter()

    await asyncio.ensure_future(enter())
    assert await breaker.call(fine) == "fine"
    assert breaker.state == "closed"
