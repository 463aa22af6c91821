"""Tasks through a gateway, in all combinations of eras."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Client, McpError, Server
from mcpearl.auth import BearerToken, StaticTokens
from mcpearl.gateway.gateway import Gateway
from mcpearl.protocol.errors import TaskCancelled
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.waiting import eventually

OF = {"legacy": LEGACY, "modern": MODERN}
CELLS = [(client, upstream) for client in OF for upstream in OF]
Cell = tuple[str, str]
TOKENS = StaticTokens({"token-of-ada-1234": "ada", "token-of-bob-1234": "bob"})


@pytest.fixture(params=CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


@asynccontextmanager
async def through(
    cell: Cell, *others: dict[str, Any], tokens: Any = None, **options: Any
) -> AsyncIterator[tuple[Any, ...]]:
    """The upstream, and clients of a gateway over HTTP in front of it."""
    upstream = make(OF[cell[1]])
    gateway = Gateway({"up": upstream}, auth=tokens, eager=True)
    clients: list[Client] = []
    async with gateway.serving("http", port=0) as url:
        try:
            for each in (options, *others):
                client = Client(url, protocol=OF[cell[0]][0], **each)
                clients.append(client)
                await client.connect()
            yield upstream, *clients
        finally:
            for client in clients:
                await client.close()


async def test_a_task_is_started_followed_and_collected(cell: Cell) -> None:
    async with through(cell) as (upstream, client):
        task = await client.start_task("up__job")
        assert task.id
        assert (await task.result()).text == "worked"
        assert (await task.status()).status == "completed"
        assert upstream.calls == 1
        assert (await client.call_tool("up__job")).text == "worked"
        required = await client.start_task("up__long_job")
        assert (await required.result()).text == "worked for long"


async def test_states_of_a_task_show_what_the_upstream_says(cell: Cell) -> None:
    async with through(cell) as (_, client):
        task = await client.start_task("up__job", {"seconds": 100})

        async def shown() -> bool:
            return "half done" in ((await task.status()).status_message or "")

        await eventually(shown)
        await task.cancel()


async def test_questions_of_a_task_reach_its_client(cell: Cell) -> None:
    def answer(params: Any) -> Any:
        return {"value": f"yes to {params.message}"}

    async with through(cell, elicitation=answer) as (_, client):
        task = await client.start_task("up__job", {"question": "Sure?"})
        assert (await task.result()).text == "Sure? accept yes to Sure?"


async def test_a_cancelled_task_is_cancelled_at_the_upstream(cell: Cell) -> None:
    async with through(cell) as (upstream, client):
        task = await client.start_task("up__job", {"seconds": 100})
        await eventually(lambda: upstream.calls == 1)
        await task.cancel()
        assert (await task.status()).status == "cancelled"
        with pytest.raises(TaskCancelled):
            await task.result()
        await eventually(lambda: getattr(upstream, "cancelled", False))


async def test_a_failure_is_the_upstreams(cell: Cell) -> None:
    async with through(cell) as (_, client):
        result = await (await client.start_task("up__broken_job")).result()
        assert result.is_error
        assert "no luck" in (result.text or "")


async def test_a_task_is_its_own_callers(cell: Cell) -> None:
    ada = {"auth": BearerToken("token-of-ada-1234")}
    bob = {"auth": BearerToken("token-of-bob-1234")}
    async with through(cell, bob, tokens=TOKENS, **ada) as (_, hers, his):
        task = await hers.start_task("up__job", {"seconds": 100})
        stolen = his.task(task.id)
        for steal in (stolen.status, stolen.cancel):
            with pytest.raises(McpError, match="Unknown task"):
                await steal()
        assert (await task.status()).status == "working"
        if cell[0] == "legacy":
            listed = await hers.request("tasks/list")
            assert [each["taskId"] for each in listed.extra["tasks"]] == [task.id]
            assert (await his.request("tasks/list")).extra["tasks"] == []
        await task.cancel()


async def test_ids_of_the_upstream_never_leave(cell: Cell) -> None:
    async with through(cell) as (upstream, client):
        task = await client.start_task("up__job")
        result = await task.result()
        (extension,) = upstream._extensions
        ids = list(extension.engine.store._tasks)
        assert len(ids) == 1
        assert task.id not in ids
        assert not any(id in repr(result.meta) for id in ids)


async def test_an_upstream_without_tasks_has_none() -> None:
    app = Server("plain")
    app.add_tool(lambda: "x", name="x")
    gateway = Gateway({"up": app}, eager=True)
    async with Client(gateway, protocol=LEGACY[0]) as client:
        assert client.server_capabilities.tasks is None
