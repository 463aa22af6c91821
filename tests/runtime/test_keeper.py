"""Keepers look while there is something to look after, and go on after a failure."""

import pytest

from mcpearl.runtime.keeper import Keeper
from mcpearl.testing.clock import MovableClock


async def test_it_looks_while_there_is_something_left(clock: MovableClock) -> None:
    left = [5.0, 5.0, None]
    looks: list[float | None] = []
    keeper = Keeper("sessions", lambda: looks.append(left[len(looks)]) or looks[-1])  # type: ignore[func-returns-value]
    keeper.wake(5)
    keeper.wake(1)
    await clock.advance(4)
    assert looks == []
    await clock.advance(100)
    assert looks == left


async def test_a_failed_look_is_not_the_last(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        if looks <= 3:
            raise ValueError("a bad entry")
        return 10.0

    keeper = Keeper("sessions", look)
    keeper.wake(1)
    await clock.advance(30)
    assert looks >= 4
    assert (keeper.failures, keeper.last_error) == (3, "ValueError: a bad entry")
    assert "sessions: a look failed" in caplog.text
    keeper.stop()
    before = looks
    await clock.advance(60)
    assert looks == before
