"""The process that isolated processes are forked from: stopped, and started again."""

import asyncio
import os
import signal

import psutil
import pytest

from mcpearl.runtime.isolation.nursery import Nursery, ZygoteEnded
from mcpearl.runtime.isolation.profile import Isolate
from tests.waiting import eventually


def _nursery() -> Nursery:
    return Nursery(lambda pool, wiring: None, lambda pool: Isolate())


async def test_a_stop_that_is_cancelled_ends_the_zygote_and_not_the_next_one() -> None:
    nursery = _nursery()
    await nursery.start()
    first = nursery.pid
    os.kill(first, signal.SIGSTOP)  # it does not end when it is asked to
    stopping = asyncio.ensure_future(nursery.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    await nursery.start()
    second = nursery.pid
    # Its end is noticed beside the life of the other, which must not be waited for.
    await eventually(lambda: not psutil.pid_exists(first))
    assert psutil.pid_exists(second)
    assert nursery.pid == second
    await nursery.stop()
    assert not psutil.pid_exists(second)


async def test_the_end_of_a_zygote_is_told() -> None:
    nursery = _nursery()
    await nursery.start()
    os.kill(nursery.pid, signal.SIGKILL)
    with pytest.raises(ZygoteEnded, match="the zygote was ended by SIGKILL"):
        await nursery.ended()
    assert nursery.pid == 0
    await nursery.stop()
