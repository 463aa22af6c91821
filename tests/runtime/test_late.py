"""Finding what takes long, and only that."""

from mcpearl.runtime.late import LateWatch
from mcpearl.testing.clock import MovableClock


class Work:
    def __init__(self) -> None:
        self.told = 0

    def late(self) -> None:
        self.told += 1


async def test_only_what_takes_long_is_notified_and_only_once(clock: MovableClock) -> None:
    watch = LateWatch(10.0)
    quick, slow = Work(), Work()
    watch.add(quick)
    watch.add(slow)
    watch.discard(quick)
    await clock.advance(15.0)
    assert (quick.told, slow.told) == (0, 0)
    await clock.advance(100.0)
    assert (quick.told, slow.told) == (0, 1)
    assert len(watch) == 0
    watch.discard(slow)


async def test_what_is_removed_between_ticks_is_not_notified(clock: MovableClock) -> None:
    watch = LateWatch(10.0)
    work, last = Work(), Work()
    watch.add(work)
    await clock.advance(11.0)  # one tick has passed, the second has not
    watch.discard(work)
    watch.add(last)
    await clock.advance(100.0)
    assert (work.told, last.told) == (0, 1)


async def test_it_goes_on_after_a_pause(clock: MovableClock) -> None:
    watch = LateWatch(10.0)
    first, second = Work(), Work()
    watch.add(first)
    await clock.advance(100.0)
    watch.add(second)
    await clock.advance(100.0)
    assert (first.told, second.told) == (1, 1)


async def test_stopped_it_notifies_nothing_until_work_is_added(clock: MovableClock) -> None:
    watch = LateWatch(10.0)
    first, second = Work(), Work()
    watch.add(first)
    watch.stop()
    await clock.advance(100.0)
    assert first.told == 0
    watch.add(second)
    await clock.advance(100.0)
    assert (first.told, second.told) == (1, 1)
