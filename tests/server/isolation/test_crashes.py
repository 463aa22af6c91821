"""What a tool does to its process costs that call, and the next call finds a fresh process."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import Client, Isolate, Server
from tests.server.isolation.apps import TWO, alive, children, descriptors, make
from tests.waiting import eventually


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(make()) as client:
        yield client


async def told(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """Call a tool that fails, and return what the client is told; the next call must work."""
    result = await client.call_tool(tool, arguments or {})
    assert result.is_error
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    return str(result.text)


async def test_a_call_runs_in_another_process(client: Client) -> None:
    assert (await client.call_tool("pid")).data != os.getpid()
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_segmentation_fault_costs_one_call(client: Client) -> None:
    text = await told(client, "segfault")
    assert "was ended by SIGSEGV" in text
    assert "Fatal Python error: Segmentation fault" in text
    assert "in segfault" in text
    assert "mcpearl/server/isolation" not in text


async def test_an_exit_costs_one_call(client: Client) -> None:
    assert "ended with code 3" in await told(client, "leave", {"code": 3})
    assert "ended with code 0" in await told(client, "leave", {"code": 0})


async def test_closed_descriptors_cost_one_call(client: Client) -> None:
    assert "closed its connection" in await told(client, "close_descriptors")


async def test_garbage_on_the_connection_costs_one_call(client: Client) -> None:
    assert "not a message" in await told(client, "garbage")


async def test_an_exception_is_told_as_of_other_tools(client: Client) -> None:
    assert (
        await told(client, "fail", {"text": "no luck"}) == "Tool `fail` failed: ValueError: no luck"
    )


async def test_wrong_arguments_are_told_as_of_other_tools(client: Client) -> None:
    assert "Invalid arguments for tool `add`" in await told(client, "add", {"a": 1, "b": "two"})


async def test_an_endless_loop_ends_with_its_timeout() -> None:
    async with Client(make(tool_timeout=0.5)) as client:
        assert "did not finish within 0.5 s" in await told(client, "loop")


async def test_a_cancelled_call_is_killed(client: Client) -> None:
    call = asyncio.create_task(client.call_tool("loop"))
    await eventually(lambda: any(each.cpu_times().user > 0.1 for each in children()))
    (busy,) = [each for each in children() if each.cpu_times().user > 0.1]
    call.cancel()
    await eventually(lambda: not alive(busy.pid))
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_too_much_memory_costs_one_call() -> None:
    async with Client(make(Isolate(processes=1, memory="200MB"))) as client:
        assert (await client.call_tool("eat", {"megabytes": 50})).data == 50_000_000
        first = (await client.call_tool("pid")).data
        text = await told(client, "eat", {"megabytes": 500})
        assert text == "Tool `eat` exceeded its memory of 200MB"
        assert (await client.call_tool("pid")).data != first


async def test_too_much_processor_time_costs_one_call() -> None:
    async with Client(make(Isolate(processes=1, cpu=1))) as client:
        assert "used more than 1 s of processor time" in await told(client, "loop")


async def test_each_call_has_its_own_processor_time() -> None:
    app = Server("busy")

    @app.tool(isolate=Isolate(processes=1, cpu=1))
    def spin(seconds: float) -> float:
        import time

        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return seconds

    async with Client(app) as client:
        for _ in range(4):
            assert (await client.call_tool("spin", {"seconds": 0.5})).data == 0.5


async def test_what_a_tool_has_started_ends_with_its_process(client: Client) -> None:
    started = (await client.call_tool("multiply", {"count": 40})).data
    assert len(started) == 40
    assert all(alive(pid) for pid in started)
    process = psutil.Process(started[1]).parent()
    assert process is not None
    process.kill()
    await eventually(lambda: not any(alive(pid) for pid in started))
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_an_interpreter_killed_from_outside_is_told_as_such(client: Client) -> None:
    pid = (await client.call_tool("pid")).data
    call = asyncio.create_task(client.call_tool("doze", {"seconds": 60}))
    await eventually(lambda: sleeps(pid))
    psutil.Process(pid).kill()
    assert "was ended by SIGKILL, which the server did not send" in (await call).text


def sleeps(pid: int) -> bool:
    """Whether a process is in `time.sleep`."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


async def test_nothing_is_left_when_the_server_stops() -> None:
    app = make(Isolate(processes=2, reuse=10))
    async with Client(app) as client:
        await asyncio.gather(*(client.call_tool("add", {"a": 1, "b": n}) for n in range(50)))
    before = descriptors()
    for _ in range(3):
        async with Client(app) as client:
            await asyncio.gather(*(client.call_tool("add", {"a": 1, "b": n}) for n in range(50)))
            await client.call_tool("segfault")
            assert children()
    assert children() == []
    assert descriptors() == before


async def test_a_process_is_replaced_after_so_many_calls() -> None:
    async with Client(make(Isolate(processes=1, reuse=3))) as client:
        pids = [(await client.call_tool("pid")).data for _ in range(7)]
    assert len(set(pids)) == 3
    assert pids == sorted(pids, key=pids.index)
    assert [pids.count(each) for each in dict.fromkeys(pids)] == [3, 3, 1]


async def test_calls_beyond_the_queue_are_refused() -> None:
    async with Client(make(Isolate(processes=1, queue=2))) as client:
        calls = [asyncio.create_task(client.call_tool("doze", {"seconds": 60})) for _ in range(3)]
        await eventually(lambda: len(children()) >= 2)
        refused = asyncio.create_task(client.call_tool("add", {"a": 1, "b": 2}))
        done, _ = await asyncio.wait([refused, *calls], return_when=asyncio.FIRST_COMPLETED)
        assert done == {refused}
        error = refused.exception()
        assert error is not None
        assert "1 processes at work and 2 calls waiting" in str(error)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_plain_functions_run_in_parallel(tmp_path: Path) -> None:
    app = make(TWO, tool_timeout=30)

    @app.tool(isolate=TWO)
    def meet(path: str, mode: str) -> int:
        with Path(path).open(mode):  # once another process has opened the other end
            return os.getpid()

    os.mkfifo(path := tmp_path / "fifo")
    async with Client(app) as client:
        answers = await asyncio.gather(
            *(client.call_tool("meet", {"path": str(path), "mode": mode}) for mode in "rw")
        )
        assert len({each.data for each in answers}) == 2
