"""Tasks of 2025-11-25: the client asks for them where a tool allows or wants one."""

import asyncio
from typing import Any

import pytest

from mcpearl import CapabilityMissing, McpError, TaskCancelled
from tests.waiting import eventually

from ..peers import Error, Message, client_of
from .peers import TEXT, legacy_state, legacy_task_peer

CREATED = {"task": legacy_state()}


def only_as_task(message: Message) -> Any:
    """Answer `tools/call` as a server does whose tool only runs as a task."""
    return CREATED if "task" in message["params"] else Error(-32601, "needs a task")


async def test_a_tool_that_needs_a_task_is_called_as_one_once_that_is_known() -> None:
    peer = legacy_task_peer(tools_call=only_as_task, tasks_result=lambda _: TEXT)
    async with await client_of(peer) as client:
        for _ in range(2):
            result = await client.call_tool("job", {"a": 1})
            assert result.content[0].text == "done"  # type: ignore[union-attr]
    assert ["task" in m["params"] for m in peer.asked("tools/call")] == [True, True]
    assert len(peer.asked("tools/list")) == 1
    assert peer.asked("tasks/result")[0]["params"]["taskId"] == "t1"


@pytest.mark.parametrize("support", ["optional", "forbidden"])
async def test_other_tools_are_called_plainly(support: str) -> None:
    peer = legacy_task_peer(support, tools_call=lambda _: TEXT)
    async with await client_of(peer) as client:
        await client.list_tools()
        await client.call_tool("job")
    assert "task" not in peer.asked("tools/call")[0]["params"]


async def test_a_refusal_for_another_reason_is_raised() -> None:
    peer = legacy_task_peer("optional", tools_call=lambda _: Error(-32601, "no such tool"))
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="no such tool"):
            await client.call_tool("job")
    assert len(peer.asked("tools/call")) == 1


async def test_start_task_asks_for_a_task_and_a_time_to_live() -> None:
    peer = legacy_task_peer("optional", tools_call=only_as_task, tasks_result=lambda _: TEXT)
    async with await client_of(peer) as client:
        task = await client.start_task("job", ttl=30)
        assert (await task.result()).content
    assert peer.asked("tools/call")[0]["params"]["task"] == {"ttl": 30_000}


async def test_start_task_refuses_a_tool_that_cannot() -> None:
    peer = legacy_task_peer("forbidden")
    async with await client_of(peer) as client:
        with pytest.raises(CapabilityMissing, match="tool `job` does not run as a task"):
            await client.start_task("job")
    assert not peer.asked("tools/call")


async def test_questions_of_a_task_are_answered_while_its_result_is_awaited() -> None:
    peer = legacy_task_peer(tools_call=only_as_task)
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}

    def result(message: Message) -> None:
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        peer.send(id="q1", method="elicitation/create", params={**params, "_meta": related})

    peer["tasks/result"] = result
    async with await client_of(peer, elicitation=lambda form: {}) as client:
        call = asyncio.ensure_future(client.call_tool("job"))
        await eventually(lambda: [m for m in peer.received if m.get("id") == "q1"])
        assert peer.answered("q1")["result"]["action"] == "accept"
        peer.send(id=peer.asked("tasks/result")[0]["id"], result=TEXT)
        await call


async def test_a_server_that_does_not_wait_is_asked_again() -> None:
    peer = legacy_task_peer(tools_call=only_as_task)
    states = ["working", "working", "completed"]
    peer["tasks/result"] = lambda _: TEXT if not states else Error(-32602, "not ready")
    peer["tasks/get"] = lambda _: legacy_state(states.pop(0)) if states else None
    async with await client_of(peer) as client:
        await client.list_tools()
        call = asyncio.ensure_future(client.call_tool("job"))
        with pytest.raises(McpError, match="not ready"):
            await call  # it had ended, and the error is its outcome
    assert len(peer.asked("tasks/result")) == 3


async def test_a_cancelled_task_says_so() -> None:
    peer = legacy_task_peer(
        tools_call=only_as_task,
        tasks_result=lambda _: Error(-32603, "cancelled"),
        tasks_get=lambda _: legacy_state("cancelled"),
        tasks_cancel=lambda _: Error(-32602, "ended already"),
    )
    async with await client_of(peer) as client:
        task = client.task("t1")
        with pytest.raises(TaskCancelled):
            await task.result()
        await task.cancel()  # it is cancelled already


async def test_states_come_with_notifications() -> None:
    current = legacy_state("working", pollInterval=60_000)
    peer = legacy_task_peer(tasks_get=lambda _: current)
    async with await client_of(peer) as client:
        seen: list[str] = []

        async def follow() -> None:
            async for state in client.task("t1"):
                seen.append(state.status)  # noqa: PERF401 (looked at meanwhile)

        following = asyncio.ensure_future(follow())
        await eventually(lambda: seen == ["working"])
        current = legacy_state("completed")
        peer.send(method="notifications/tasks/status", params=current)
        await following
    assert seen == ["working", "completed"]


async def test_progress_of_a_task_carries_the_token_of_its_request() -> None:
    peer = legacy_task_peer(tools_call=only_as_task)
    heard: list[float] = []
    async with await client_of(peer) as client:
        await client.list_tools()
        call = asyncio.ensure_future(
            client.call_tool("job", on_progress=lambda p: heard.append(p.progress))
        )
        await eventually(lambda: peer.asked("tasks/result"))
        token = peer.asked("tools/call")[0]["params"]["_meta"]["progressToken"]
        peer.send(method="notifications/progress", params={"progressToken": token, "progress": 1})
        await eventually(lambda: heard == [1])
        peer.send(id=peer.asked("tasks/result")[0]["id"], result=TEXT)
        await call


async def test_tasks_are_listed_page_by_page() -> None:
    pages: dict[str | None, Message] = {
        None: {"tasks": [legacy_state()], "nextCursor": "2"},
        "2": {"tasks": [legacy_state("completed", taskId="t2")]},
    }
    peer = legacy_task_peer(tasks_list=lambda m: pages[m["params"].get("cursor")])
    async with await client_of(peer) as client:
        assert [task.task_id async for task in client.tasks()] == ["t1", "t2"]
