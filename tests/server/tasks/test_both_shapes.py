"""Tools that run as tasks, in both shapes: created, looked at, asked, ended."""

from typing import Any

import pytest

from mcpearl import Server
from tests.server.tasks.apps import (
    EXTENSION,
    WITH,
    look,
    outcome,
    start,
    status,
    task_of,
    tasks_app,
)
from tests.server.wire import EVERYTHING, LEGACY, MODERN, text_of, wire
from tests.waiting import eventually

BOTH = pytest.mark.parametrize("version", [LEGACY, MODERN])


# Creating


async def test_the_extension_is_announced_with_the_first_task_tool() -> None:
    app = Server("x", grace=0)

    @app.tool
    def plain() -> None: ...

    async with wire(app) as client:
        before = (await client.ask("server/discover"))["result"]["capabilities"]
        assert "extensions" not in before and "tasks" not in before
        assert (await client.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601

        @app.tool(task=True)
        async def late() -> str:
            return "late"

        after = (await client.ask("server/discover"))["result"]["capabilities"]
        assert after["extensions"] == {EXTENSION: {}} and "tasks" not in after
        client.capabilities = WITH
        id = await start(client, "late")
        assert text_of(await outcome(client, id)) == "late"
        assert (await outcome(client, id))["result"]["resultType"] == "complete"


async def test_2025_11_25_has_a_capability_and_a_member_of_each_tool() -> None:
    app, _ = tasks_app()
    async with wire(app) as client:
        client.version = LEGACY
        answer = await client.ask(
            "initialize",
            {
                "protocolVersion": LEGACY,
                "capabilities": {"extensions": {EXTENSION: {}}},
                "clientInfo": {"name": "c", "version": "1"},
            },
        )
        capabilities = answer["result"]["capabilities"]
        expected = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert capabilities["tasks"] == expected
        assert "extensions" not in capabilities
        client.notify("notifications/initialized")
        tools = (await client.ask("tools/list"))["result"]["tools"]
        support = {tool["name"]: tool.get("execution") for tool in tools}
        assert support["plain"] is None
        assert support["add"] == {"taskSupport": "optional"}
        assert support["waits"] == {"taskSupport": "required"}


@BOTH
async def test_a_task_is_created_at_once_and_looked_at(version: str) -> None:
    app, gates = tasks_app()
    async with wire(app, version, WITH) as client:
        params: dict[str, Any] = {"name": "waits", "arguments": {}}
        if version == LEGACY:
            params["task"] = {"ttl": 60_000}
        answer = await client.ask("tools/call", params)
        task = task_of(answer)
        assert task["status"] == "working"
        assert task["createdAt"].endswith("Z") and task["lastUpdatedAt"].endswith("Z")
        assert not {"result", "error", "inputRequests", "requestState"} & answer["result"].keys()
        if version == LEGACY:
            assert (task["ttl"], task["pollInterval"]) == (60_000, 1000)
            assert set(answer["result"]) == {"task"}
        else:
            assert (task["ttlMs"], task["pollIntervalMs"]) == (3_600_000, 1000)
            assert "task" not in answer["result"]
        found = await look(client, task["taskId"])
        assert found["status"] == "working" and found["taskId"] == task["taskId"]
        assert found.get("resultType") == (None if version == LEGACY else "complete")
        gates.open.set()
        done = await outcome(client, task["taskId"])
        assert text_of(done) == "waited as True"
        related = "io.modelcontextprotocol/related-task"
        meta = done["result"].get("_meta", {}).get(related)
        assert meta == ({"taskId": task["taskId"]} if version == LEGACY else None)


@BOTH
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("add", {"a": 1, "b": 2}, "3"),
        ("threaded", {"text": "loud"}, "LOUD"),
        ("stream", {"count": 3}, "0 1 2 "),
        ("steps", {"count": 3}, "0 1 2 "),
    ],
)
async def test_tools_of_every_kind(version: str, tool: str, arguments: Any, text: str) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, tool, arguments)
        assert text_of(await outcome(client, id)) == text


@BOTH
async def test_ids_cannot_be_guessed(version: str) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        ids = {await start(client, "add", {"a": 1, "b": 2}) for _ in range(20)}
        assert len(ids) == 20 and all(len(id) == 32 for id in ids)


# Ending


@BOTH
async def test_a_tool_error_is_a_result_in_one_shape_and_a_failure_in_the_other(
    version: str,
) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, "fails")
        done = await outcome(client, id)
        assert done["result"]["isError"] is True and text_of(done) == "it is broken"
        found = await look(client, id)
        assert found["status"] == ("failed" if version == LEGACY else "completed")
        assert found["statusMessage"] == "it is broken"


@BOTH
async def test_a_protocol_error_fails_the_task(version: str) -> None:
    app, _ = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, "errs")
        found = await status(client, id, "failed")
        assert found["statusMessage"] == "out of order"
        done = await outcome(client, id)
        assert done["error"] == {"code": -32050, "message": "out of order", "data": {"floor": 3}}
        assert "result" not in done


@BOTH
async def test_cancelling(version: str) -> None:
    app, gates = tasks_app()
    async with wire(app, version, WITH) as client:
        id = await start(client, "waits")
        await eventually(lambda: gates.log)
        answer = await client.ask("tasks/cancel", {"taskId": id})
        if version == LEGACY:
            assert answer["result"]["status"] == "cancelled"
        else:
            assert set(answer["result"]) == {"resultType", "_meta"}
        assert (await look(client, id))["status"] == "cancelled"
        again = await client.ask("tasks/cancel", {"taskId": id})
        if version == LEGACY:
            assert again["error"]["code"] == -32602
            assert (await client.ask("tasks/result", {"taskId": id}))["error"]["code"] == -32603
        else:
            assert again["result"]["resultType"] == "complete"
        gates.open.set()
        await client.silence()
        assert gates.log == ["began", "cancelled"]
        assert (await look(client, id))["status"] == "cancelled"


@BOTH
async def test_the_end_of_the_request_does_not_cancel_the_task(version: str) -> None:
    app, gates = tasks_app()
    async with wire(app, version, WITH) as client:
        params: dict[str, Any] = {"name": "waits", "arguments": {}}
        if version == LEGACY:
            params["task"] = {}
        request = client.request("tools/call", params)
        id = task_of(await client.answer_to(request))["taskId"]
        client.cancel(request)
        async with wire(app, version, WITH) as other:
            await other.silence()
            gates.open.set()
            assert text_of(await outcome(other, id)) == "waited as True"


# Clients that cannot


async def test_a_client_that_does_not_declare_gets_a_plain_result() -> None:
    app, _ = tasks_app()
    legacy_only = {**EVERYTHING, "tasks": {"requests": {}}}
    for capabilities in (EVERYTHING, legacy_only):
        async with wire(app, MODERN, capabilities) as client:
            answer = await client.call("add", {"a": 1, "b": 2})
            assert text_of(answer) == "3" and answer["result"]["resultType"] == "complete"
            refused = await client.call("waits")
            assert refused["error"]["code"] == -32021
            required = refused["error"]["data"]["requiredCapabilities"]
            assert required == {"extensions": {EXTENSION: {}}}
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                params = {"taskId": "x", "inputResponses": {}}
                assert (await client.ask(method, params))["error"]["code"] == -32021
            # One request that declares it is enough.
            client.capabilities = WITH
            assert task_of(await client.call("add", {"a": 1, "b": 2}))["status"] == "working"


async def test_a_legacy_client_decides_itself() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as client:
        assert text_of(await client.call("add", {"a": 1, "b": 2})) == "3"
        refused = await client.call("waits")
        assert refused["error"]["code"] == -32601 and "task" in refused["error"]["message"]
        forbidden = await client.ask("tools/call", {"name": "plain", "task": {}})
        assert forbidden["error"]["code"] == -32601
        assert (await client.ask("tasks/update", {"taskId": "x", "inputResponses": {}}))["error"][
            "code"
        ] == -32601


async def test_without_the_capability_task_is_ignored() -> None:
    app = Server("x")

    @app.tool
    def plain() -> str:
        return "plain"

    for version in (LEGACY, MODERN):
        async with wire(app, version, WITH) as client:
            answer = await client.ask("tools/call", {"name": "plain", "task": {"ttl": 5}})
            assert text_of(answer) == "plain"


async def test_an_older_version_has_no_tasks() -> None:
    app, _ = tasks_app()
    async with wire(app, "2025-06-18") as client:
        answer = await client.ask(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}}
        )
        assert text_of(answer) == "3"
        assert (await client.call("waits"))["error"]["code"] == -32601
        assert (await client.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601


async def test_the_extension_has_no_list_and_no_result() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "add", {"a": 1, "b": 2})
        for method in ("tasks/list", "tasks/result"):
            assert (await client.ask(method, {"taskId": id}))["error"]["code"] == -32601
        answer = await client.ask("tools/call", {"name": "plain", "arguments": {}, "task": {}})
        assert text_of(answer) == "1"


# Becoming a task later


async def test_a_tool_that_ends_in_time_is_not_a_task() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        answer = await client.call("perhaps", {"fast": True})
        assert text_of(answer) == "done" and answer["result"]["resultType"] == "complete"
        slow = task_of(await client.call("perhaps", {"fast": False}))
        assert slow["status"] == "working"
        gates.open.set()
        assert text_of(await outcome(client, slow["taskId"])) == "done"
    async with wire(app, LEGACY, WITH) as client:
        # Here the client decides, and it has decided.
        assert text_of(await outcome(client, await start(client, "perhaps", {"fast": True})))


async def test_a_tool_that_asks_first_and_then_becomes_a_task() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        first = (await client.call("asks_first"))["result"]
        assert first["resultType"] == "input_required" and "taskId" not in first
        assert set(first["inputRequests"]) == {"who"}
        second = await client.ask(
            "tools/call",
            {
                "name": "asks_first",
                "arguments": {},
                "requestState": first["requestState"],
                "inputResponses": {"who": {"action": "accept", "content": {"name": "ann"}}},
            },
        )
        task = task_of(second)
        assert "requestState" not in task and "inputRequests" not in task
        gates.open.set()
        assert text_of(await outcome(client, task["taskId"])) == "ann True True"
    async with wire(app, MODERN, EVERYTHING) as client:
        answered = {"who": {"action": "accept", "content": {"name": "bob"}}}
        params = {"name": "asks_first", "arguments": {}, "inputResponses": answered}
        assert text_of(await client.ask("tools/call", params)) == "bob False False"


async def test_cancelling_a_call_before_it_is_a_task_stops_it() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        request = client.request("tools/call", {"name": "perhaps", "arguments": {"fast": False}})
        client.cancel(request)
        assert await client.silence() == []
        gates.open.set()
        assert await client.silence() == []
