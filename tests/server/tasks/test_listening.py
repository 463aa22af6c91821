"""Listeners of tasks: they hear what `tasks/get` would say, and only of their own."""

from typing import Any

from mcpearl.auth import Principal
from tests.server.tasks.apps import EXTENSION, WITH, look, start, status, tasks_app
from tests.server.wire import EVERYTHING, MODERN, Wire, wire

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def listen(client: Wire, *ids: str) -> tuple[Any, dict[str, Any]]:
    """Listen to tasks; return the request's id and what was acknowledged."""
    request = client.request("subscriptions/listen", {"notifications": {"taskIds": list(ids)}})
    message = await client.next()
    assert message["method"] == "notifications/subscriptions/acknowledged", message
    return request, message["params"]["notifications"]


async def next_of(client: Wire, id: str) -> dict[str, Any]:
    while True:
        message = await client.next()
        if message.get("method") == "notifications/tasks" and message["params"]["taskId"] == id:
            found: dict[str, Any] = message["params"]
            return found


async def test_a_listener_hears_every_state() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "greets")
        await status(client, id, "input_required")
        request, agreed = await listen(client, id)
        assert agreed == {"taskIds": [id]}
        heard = await next_of(client, id)
        assert heard["_meta"][SUBSCRIPTION] == request
        found = await look(client, id)
        assert {**heard, "_meta": None} == {
            **{k: v for k, v in found.items() if k != "resultType"},
            "_meta": None,
        }
        answers = {"elicitation-1": {"action": "accept", "content": {"name": "ann"}}}
        await client.ask("tasks/update", {"taskId": id, "inputResponses": answers})
        while (heard := await next_of(client, id))["status"] != "completed":
            assert heard["status"] == "working"
        assert heard["result"]["content"][0]["text"] == "hello ann"


async def test_progress_is_heard_as_the_status_message() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "reports")
        await listen(client, id)
        while (await next_of(client, id)).get("statusMessage") != "one third":
            pass
        gates.open.set()
        while (await next_of(client, id))["status"] != "completed":
            pass


async def test_a_task_that_is_over_is_heard_of_once() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "add", {"a": 1, "b": 2})
        await status(client, id, "completed")
        await listen(client, id)
        assert (await next_of(client, id))["status"] == "completed"
        assert await client.silence() == []


async def test_other_tasks_are_not_agreed_to() -> None:
    app, gates = tasks_app()
    ann, bob = Principal("ann"), Principal("bob")
    async with (
        wire(app, MODERN, WITH, ann) as first,
        wire(app, MODERN, WITH, bob) as second,
    ):
        hers = await start(first, "waits")
        his = await start(second, "waits")
        _, agreed = await listen(second, hers, "unknown", his)
        assert agreed == {"taskIds": [his]}
        assert (await next_of(second, his))["status"] == "working"
        gates.open.set()
        await status(first, hers, "completed")
        heard = [await second.next()]
        heard += await second.silence()
        assert {message["params"]["taskId"] for message in heard} == {his}


async def test_listening_needs_the_extension() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, EVERYTHING) as client:
        refused = await client.ask(
            "subscriptions/listen", {"notifications": {"taskIds": ["x"], "toolsListChanged": True}}
        )
        assert refused["error"]["code"] == -32021
        required = refused["error"]["data"]["requiredCapabilities"]
        assert required == {"extensions": {EXTENSION: {}}}


async def test_a_listener_that_leaves_is_forgotten() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "waits")
        request, _ = await listen(client, id)
        await next_of(client, id)
        client.cancel(request)
        await client.silence()
        assert app.core.tasks is not None and not app.core.tasks
        gates.open.set()
        await status(client, id, "completed")
        assert await client.silence() == []
