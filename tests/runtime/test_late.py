"""Being told of what takes long, and only of that."""

import asyncio

from mcpearl.runtime.late import LateWatch
from tests.client.peers import eventually


class Work:
    def __init__(self) -> None:
        self.told = 0

    def late(self) -> None:
        self.told += 1


async def test_only_what_lingers_is_told_and_only_once() -> None:
    lingering = LateWatch(0.02)
    quick, slow = Work(), Work()
    lingering.add(quick)
    lingering.add(slow)
    lingering.discard(quick)
    await eventually(lambda: slow.told)
    await asyncio.sleep(0.1)
    assert (quick.told, slow.told) == (0, 1)
    assert len(lingering) == 0
    lingering.discard(slow)


async def test_what_is_removed_between_ticks_is_not_told() -> None:
    lingering = LateWatch(0.02)
    work, last = Work(), Work()
    lingering.add(work)
    lingering._look()  # one tick has passed, the second has not
    lingering.discard(work)
    lingering.add(last)
    await eventually(lambda: last.told)  # two more have passed
    assert work.told == 0


async def test_it_goes_on_after_a_pause() -> None:
    lingering = LateWatch(0.02)
    first, second = Work(), Work()
    lingering.add(first)
    await eventually(lambda: first.told and lingering._timer is None)
    lingering.add(second)
    await eventually(lambda: second.told)
    assert (first.told, second.told) == (1, 1)
