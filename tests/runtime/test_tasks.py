"""Starting work, at once where Python can."""

import asyncio
import sys

from mcpearl.runtime.tasks import spawn


async def test_work_is_begun_and_finished() -> None:
    trace: list[str] = []

    async def work() -> None:
        trace.append("begun")
        await asyncio.sleep(0)
        trace.append("finished")

    task = spawn(asyncio.get_running_loop(), work())
    assert trace == (["begun"] if sys.version_info >= (3, 12) else [])
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
