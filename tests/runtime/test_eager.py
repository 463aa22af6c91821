"""Starting work, at once."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from mcpearl.runtime.eager import nothing, run_through, spawn


async def test_work_is_begun_and_finished() -> None:
    trace: list[str] = []

    async def work() -> None:
        trace.append("begun")
        await asyncio.sleep(0)
        trace.append("finished")

    task = spawn(asyncio.get_running_loop(), work())
    assert trace == ["begun"]
    await task
    assert trace == ["begun", "finished"]


async def test_work_can_be_cancelled() -> None:
    async def work() -> None:
        await asyncio.sleep(3600)

    task = spawn(asyncio.get_running_loop(), work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_the_work_is_the_current_task_from_its_first_step() -> None:
    seen: list[asyncio.Task[None] | None] = []

    async def work() -> None:
        seen.append(asyncio.current_task())
        async with asyncio.timeout(30):
            await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    outer = asyncio.current_task()
    task = spawn(asyncio.get_running_loop(), work())
    assert asyncio.current_task() is outer
    await task
    assert seen == [task, task]


async def test_the_loop_schedules_as_before() -> None:
    loop = asyncio.get_running_loop()

    async def work() -> None:
        raise ValueError("at once")

    task = spawn(loop, work())
    assert isinstance(task.exception(), ValueError)
    called = asyncio.Event()
    loop.call_soon(called.set)
    await asyncio.wait_for(called.wait(), 30)


async def test_a_timeout_of_the_first_step_ends_the_work() -> None:
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)

    task = spawn(asyncio.get_running_loop(), work())
    await asyncio.wait([task])
    assert isinstance(task.exception(), TimeoutError)


# Work that is expected not to wait

VALUE: ContextVar[str] = ContextVar("VALUE", default="outside")


def through(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    loop = asyncio.get_running_loop()
    return run_through(loop, work, spawn(loop, nothing()))


async def test_work_that_does_not_wait_has_no_task() -> None:
    seen: list[Any] = []

    async def work() -> None:
        seen.append(asyncio.current_task())
        VALUE.set("inside")

    this = asyncio.current_task()
    assert through(work()) is None
    assert seen[0] is not this
    assert seen[0].done()
    assert asyncio.current_task() is this
    assert VALUE.get() == "outside"


async def test_work_that_waits_after_all_continues_in_a_task() -> None:
    seen: list[Any] = []
    go = asyncio.Event()

    async def work() -> None:
        VALUE.set("inside")
        await go.wait()
        await asyncio.sleep(0)
        seen.extend((VALUE.get(), asyncio.current_task()))

    task = through(work())
    assert task is not None
    assert not seen
    go.set()
    await task
    assert seen == ["inside", task]


async def test_work_that_waits_after_all_can_be_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # its cleaning up may wait as well
            seen.append("cleaned up")
            raise

    task = through(work())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert seen == ["cleaned up"]


async def test_work_that_survives_a_cancellation_ends_by_itself() -> None:
    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    task = through(work())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    await task


async def test_errors_of_work_without_a_task_are_raised() -> None:
    async def work() -> None:
        raise ValueError("no bread")

    this = asyncio.current_task()
    with pytest.raises(ValueError, match="no bread"):
        through(work())
    assert asyncio.current_task() is this


async def test_work_that_waits_after_all_and_is_cancelled_at_once_is_told() -> None:
    trace: list[str] = []
    variable: ContextVar[str] = ContextVar("variable")

    async def work() -> None:
        token = variable.set("own")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            trace.append("cancelled")
            raise
        finally:
            variable.reset(token)

    task = through(work())
    assert task is not None
    task.cancel()  # before the loop has turned
    await asyncio.wait([task])
    assert task.cancelled()
    assert trace == ["cancelled"]
