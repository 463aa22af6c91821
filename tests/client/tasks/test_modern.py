"""Tasks of the extension: a call is driven to its end, and handles do it step by step."""

import asyncio
from typing import Any

import pytest

from mcpearl import Client, InvalidResult, McpError, TaskCancelled, TaskTimeout
from tests.waiting import eventually

from ..peers import Error, Message, Peer, client_of
from .peers import TASKS, completed, created, detailed, extension_peer, state

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}}
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "how many?", "requestedSchema": FORM},
}


def in_turn(*results: Message) -> Any:
    waiting = list(results)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def announces(peer: Peer) -> None:
    """Have the peer acknowledge streams for the tasks asked for."""

    def listen(message: Message) -> None:
        asked = message["params"]["notifications"]
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        peer.send(
            method="notifications/subscriptions/acknowledged",
            params={"_meta": meta, "notifications": asked},
        )

    peer["subscriptions/listen"] = listen


def announce(peer: Peer, **members: Any) -> None:
    (listen,) = peer.asked("subscriptions/listen")
    meta = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    peer.send(method="notifications/tasks", params={"_meta": meta, **state(**members)})


async def test_a_call_that_becomes_a_task_is_polled_to_its_result() -> None:
    peer = extension_peer(
        tools_call=lambda _: created(),
        tasks_get=in_turn(detailed(), detailed(), completed()),
        subscriptions_listen=lambda _: Error(-32601),
    )
    async with await client_of(peer) as client:
        result = await client.call_tool("job")
    assert result.content[0].text == "done"  # type: ignore[union-attr]
    assert [m["params"]["taskId"] for m in peer.asked("tasks/get")] == ["t1"] * 3


async def test_every_request_declares_the_extension() -> None:
    peer = extension_peer(tools_call=lambda _: created(), tasks_get=lambda _: completed())
    peer["subscriptions/listen"] = lambda _: Error(-32601)
    async with await client_of(peer) as client:
        await client.call_tool("job")
    for method in ("tools/call", "tasks/get"):
        meta = peer.asked(method)[0]["params"]["_meta"]
        assert meta["io.modelcontextprotocol/clientCapabilities"]["extensions"] == {TASKS: {}}


async def test_a_notification_ends_the_waiting_before_the_next_poll() -> None:
    far = {**detailed(), "pollIntervalMs": 60_000}
    peer = extension_peer(tools_call=lambda _: created(), tasks_get=lambda _: far)
    announces(peer)
    async with await client_of(peer) as client:
        call = asyncio.ensure_future(client.call_tool("job"))
        await eventually(lambda: peer.asked("tasks/get"))
        announce(peer, status="completed", result={"content": []})
        assert (await call).content == []
    assert peer.asked("subscriptions/listen")[0]["params"]["notifications"] == {"taskIds": ["t1"]}
    assert len(peer.asked("tasks/get")) == 1
    assert peer.asked("notifications/cancelled"), "the stream was not given up"


async def test_a_question_is_asked_once_and_answered_under_its_key() -> None:
    asking = detailed("input_required", inputRequests={"k1": QUESTION})
    answered: list[Message] = []
    peer = extension_peer(tools_call=lambda _: created(), subscriptions_listen=lambda _: Error(-1))
    peer["tasks/get"] = lambda _: completed() if answered else asking

    def update(message: Message) -> Message:
        answered.append(message)
        return {"resultType": "complete"}

    peer["tasks/update"] = update
    asked: list[str] = []
    release = asyncio.Event()

    async def elicitation(form: Any) -> dict[str, int]:
        asked.append(form.message)
        await release.wait()
        return {"n": 3}

    async with await client_of(peer, elicitation=elicitation) as client:
        call = asyncio.ensure_future(client.call_tool("job"))
        await eventually(lambda: len(peer.asked("tasks/get")) >= 3)
        release.set()
        await call
    assert asked == ["how many?"]
    (sent,) = answered
    given = {"action": "accept", "content": {"n": 3}}
    assert sent["params"]["inputResponses"] == {"k1": given}


async def test_a_callback_that_fails_ends_the_waiting_with_its_error() -> None:
    asking = detailed("input_required", inputRequests={"k1": QUESTION})
    peer = extension_peer(tools_call=lambda _: created(), tasks_get=lambda _: asking)
    peer["subscriptions/listen"] = lambda _: Error(-1)

    def elicitation(form: Any) -> None:
        raise RuntimeError("no")

    async with await client_of(peer, elicitation=elicitation) as client:
        with pytest.raises(McpError, match="callback for `elicitation/create` raised"):
            await client.call_tool("job")
    assert not peer.asked("tasks/update")


async def test_a_task_without_end_of_questions_is_left() -> None:
    count = iter(range(10**9))

    def ask(_: Message) -> Message:
        requests = {f"k{next(count)}": {"method": "roots/list"} for _ in range(200)}
        return detailed("input_required", inputRequests=requests)

    peer = extension_peer(tools_call=lambda _: created(), tasks_get=ask)
    peer["tasks/update"] = lambda _: {"resultType": "complete"}
    peer["subscriptions/listen"] = lambda _: Error(-1)
    async with await client_of(peer, roots=[]) as client:
        with pytest.raises(InvalidResult, match="more than 1000 questions"):
            await client.call_tool("job")


@pytest.mark.parametrize(
    ("ending", "error", "text"),
    [
        (detailed("failed", error={"code": -32007, "message": "broken"}), McpError, "broken"),
        (detailed("failed"), InvalidResult, "did not say how"),
        (detailed("completed"), InvalidResult, "no result"),
        (detailed("completed", result={"content": 3}), InvalidResult, "not valid"),
        (detailed("cancelled", statusMessage="by admin"), TaskCancelled, "cancelled: by admin"),
    ],
)
async def test_every_other_end_is_an_error(ending: Message, error: Any, text: str) -> None:
    peer = extension_peer(tools_call=lambda _: created(), tasks_get=lambda _: ending)
    peer["subscriptions/listen"] = lambda _: Error(-1)
    async with await client_of(peer) as client:
        with pytest.raises(error, match=text):
            await client.call_tool("job")


async def test_a_task_where_the_method_has_none_is_an_invalid_result() -> None:
    peer = extension_peer(resources_read=lambda _: created())
    tools = {"resources": {}, "extensions": {TASKS: {}}}
    peer["server/discover"] = lambda _: {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": tools,
        "ttlMs": 0,
        "cacheScope": "private",
    }
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult, match="unknown resultType 'task'"):
            await client.read_resource("x://")


async def test_a_call_out_of_time_leaves_the_task_and_says_how_to_come_back() -> None:
    peer = extension_peer(tools_call=lambda _: created(), tasks_get=lambda _: detailed())
    peer["subscriptions/listen"] = lambda _: Error(-1)
    async with await client_of(peer, max_timeout=0.2, timeout=0.2) as client:
        with pytest.raises(TaskTimeout, match=r"task t1 .* `client.task\(id\)`") as caught:
            await client.call_tool("job")
    assert caught.value.task_id == "t1"
    assert not peer.asked("tasks/cancel")


async def test_a_handle_tells_states_cancels_and_is_taken_up_again() -> None:
    peer = extension_peer(
        tools_call=lambda _: created(),
        tasks_get=in_turn(detailed(statusMessage="1 of 2"), detailed(statusMessage="2 of 2")),
        tasks_cancel=lambda _: {"resultType": "complete"},
        subscriptions_listen=lambda _: Error(-1),
    )
    async with await client_of(peer) as client:
        task = await client.start_task("job", {"a": 1})
        assert task.id == "t1"
        assert peer.asked("tools/call")[0]["params"]["arguments"] == {"a": 1}
        assert (await task.status()).status_message == "1 of 2"
        await task.cancel()
        peer["tasks/get"] = in_turn(
            detailed(statusMessage="2 of 2"), detailed(statusMessage="2 of 2"), completed()
        )
        again = client.task("t1")
        seen = [(s.status, s.status_message) async for s in again]
        assert seen == [("working", "2 of 2"), ("completed", None)]
        assert (await again.result()).content


async def test_giving_up_the_waiting_cancels_the_task_only_when_asked() -> None:
    peer = extension_peer(
        tools_call=lambda _: created(),
        tasks_get=lambda _: detailed(),
        tasks_cancel=lambda _: {"resultType": "complete"},
        subscriptions_listen=lambda _: Error(-1),
    )
    async with await client_of(peer) as client:
        task = await client.start_task("job")
        with pytest.raises(TaskTimeout):
            await task.result(timeout=0.1)
        assert not peer.asked("tasks/cancel")
        with pytest.raises(TaskTimeout):
            await task.result(timeout=0.1, cancel=True)
        assert peer.asked("tasks/cancel")[0]["params"]["taskId"] == "t1"


async def test_a_call_answered_at_once_is_a_task_that_has_ended() -> None:
    done = {"resultType": "complete", "content": []}
    peer = extension_peer(tools_call=lambda _: done)
    async with await client_of(peer) as client:
        task = await client.start_task("job")
        assert [s.status async for s in task] == ["completed"]
        assert (await task.result()).content == []
        await task.cancel()
    assert not peer.asked("tasks/get")
    assert not peer.asked("tasks/cancel")


async def test_a_stream_that_does_not_grant_the_task_leaves_polling() -> None:
    peer = extension_peer(
        tools_call=lambda _: created(), tasks_get=in_turn(detailed(), completed())
    )

    def listen(message: Message) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        peer.send(
            method="notifications/subscriptions/acknowledged",
            params={"_meta": meta, "notifications": {}},
        )

    peer["subscriptions/listen"] = listen
    async with await client_of(peer) as client:
        await client.call_tool("job")
    assert len(peer.asked("tasks/get")) == 2


async def test_a_server_without_the_extension_is_not_asked_about_tasks() -> None:
    peer = extension_peer()
    peer["server/discover"] = lambda _: {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    async with await client_of(peer) as client:
        assert isinstance(client, Client)
        with pytest.raises(Exception, match="did not announce the capability `tasks`"):
            await client.task("t1").status()
        with pytest.raises(Exception, match=r"did not announce the capability `tasks.list`"):
            _ = [task async for task in client.tasks()]
