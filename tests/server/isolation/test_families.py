"""What a tool has started is bounded together with it, and ends with it."""

import asyncio

import pytest

from mcpearl import Client, Isolate
from mcpearl.runtime.isolation.family import Excess, excess, own_memory
from tests.server.isolation.apps import children, make
from tests.server.isolation.test_crashes import told
from tests.waiting import eventually


@pytest.mark.parametrize("most", [199, 200], ids=["in sessions of their own", "in its session"])
async def test_a_fork_bomb_costs_one_call(most: int) -> None:
    async with Client(make(Isolate(processes=2, descendants=50))) as client:
        bomb = asyncio.create_task(client.call_tool("bomb", {"most": most}))
        while not bomb.done():  # other calls go on beside it
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        failed = await bomb
        assert failed.is_error
        assert failed.text == "Tool `bomb` failed: it started more than 50 processes"
        await eventually(lambda: len(children()) <= 3)  # the zygote, and its two


async def test_memory_is_that_of_all_a_tool_has_started() -> None:
    async with Client(make(Isolate(processes=1, memory="100MB"))) as client:
        count = 5 + own_memory() // 40_000_000  # what a process begins with is not counted
        text = await told(client, "together", {"count": count, "megabytes": 40})
        assert text == (
            "Tool `together` failed: it and what it started exceeded its memory of 100MB"
        )


async def test_processor_time_is_that_of_all_a_tool_has_started() -> None:
    async with Client(make(Isolate(processes=1, cpu=1))) as client:
        text = await told(client, "together", {"count": 3, "seconds": 15})
        assert text == (
            "Tool `together` failed: what it started used more than 1 s of processor time"
        )


async def test_a_process_with_much_left_behind_is_replaced_between_calls() -> None:
    async with Client(make(Isolate(processes=1, descendants=10))) as client:
        first = (await client.call_tool("leave_behind")).data
        for _ in range(5):
            assert (await client.call_tool("leave_behind")).data == first

        async def replaced() -> bool:
            return (await client.call_tool("pid")).data != first

        await eventually(replaced)


async def test_any_number_may_be_allowed() -> None:
    unlimited, default = Isolate(processes=1, descendants=None), Isolate(processes=1)
    assert default.descendants is not None
    many = default.descendants + 10
    async with Client(make(unlimited)) as client:
        assert len((await client.call_tool("multiply", {"count": many})).data) == many
        parent = (await client.call_tool("pid")).data
        assert excess(parent, default, 0) is Excess.DESCENDANTS
        assert excess(parent, unlimited, 0) is None
