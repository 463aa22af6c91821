"""Starting work, at once."""

import asyncio

from mcpearl.runtime.eager import spawn


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
