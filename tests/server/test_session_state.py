"""What a handler knows of the request, and what it keeps for a client beyond one call."""

from typing import Any

import pytest

from mcpearl import Client, Context, Server
from mcpearl.auth import Principal
from mcpearl.stores.memory_state import MemoryStateStore
from mcpearl.testing import connected
from tests.server.wire import LEGACY, MODERN, wire


def make(**options: Any) -> Server:
    app = Server("remembering", **options)

    @app.tool
    async def put(key: str, value: Any, ctx: Context) -> list[str]:
        await ctx.session.set(key, value)
        return await ctx.session.keys()

    @app.tool
    def take(key: str, ctx: Context) -> Any:
        return {"value": ctx.wait(ctx.session.get(key, "nothing"))}

    @app.tool
    async def drop(key: str, ctx: Context) -> bool:
        return await ctx.session.delete(key)

    @app.tool
    async def about(ctx: Context) -> dict[str, Any]:
        return {
            "id": ctx.session_id,
            "address": ctx.client_address,
            "header": ctx.headers.get("x-tenant"),
        }

    return app


@pytest.fixture
def mcp_app() -> Server:
    return make()


@pytest.mark.mcpearl(era="legacy")
async def test_a_session_keeps_its_values_from_call_to_call(mcp_app: Server, mcp_client: Client):
    one = mcp_client
    async with connected(mcp_app, era="legacy") as other:
        await one.call_tool("put", {"key": "cart", "value": ["tea"]})
        await other.call_tool("put", {"key": "cart", "value": 5})
        result = await one.call_tool("put", {"key": "more", "value": None})
        assert result.structured_content == {"result": ["cart", "more"]}
        taken = await one.call_tool("take", {"key": "cart"})
        assert taken.structured_content == {"value": ["tea"]}
        assert (await other.call_tool("take", {"key": "cart"})).structured_content == {"value": 5}
        assert (await one.call_tool("drop", {"key": "cart"})).structured_content == {"result": True}
        taken = await one.call_tool("take", {"key": "cart"})
        assert taken.structured_content == {"value": "nothing"}


async def test_a_principal_keeps_its_values_where_there_is_no_session():
    app = make()
    for subject, expected in (("ann", "nothing"), ("ann", 1), ("bob", "nothing")):
        async with wire(app, MODERN, principal=Principal(subject)) as client:
            answer = await client.call("take", {"key": "n"})
            assert answer["result"]["structuredContent"] == {"value": expected}
            await client.call("put", {"key": "n", "value": 1})


async def test_a_client_without_session_and_principal_is_told_so():
    async with wire(make(), MODERN) as client:
        answer = await client.call("take", {"key": "n"})
    assert "nothing can be kept for this client" in answer["result"]["content"][0]["text"]


async def test_over_http_a_session_has_an_id_headers_and_an_address(mcp_url: str):
    async with Client(mcp_url, protocol=LEGACY, headers={"X-Tenant": "blue"}) as one:
        first = (await one.call_tool("about")).structured_content
        assert first["address"] == "127.0.0.1"
        assert first["header"] == "blue"
        assert (await one.call_tool("about")).structured_content["id"] == first["id"]
        await one.call_tool("put", {"key": "a", "value": 1})
        async with Client(mcp_url, protocol=LEGACY) as other:
            second = (await other.call_tool("about")).structured_content
            assert second["id"] not in (None, first["id"])
            assert second["header"] is None
            taken = await other.call_tool("take", {"key": "a"})
            assert taken.structured_content == {"value": "nothing"}
        taken = await one.call_tool("take", {"key": "a"})
        assert taken.structured_content == {"value": 1}
    async with Client(mcp_url, protocol=MODERN, headers={"X-Tenant": "red"}) as modern:
        said = (await modern.call_tool("about")).structured_content
        assert said == {"id": None, "address": "127.0.0.1", "header": "red"}


@pytest.mark.mcpearl(wire="ws", headers={"X-Tenant": "blue"})
async def test_on_a_websocket_the_headers_are_those_that_opened_it(mcp_client: Client):
    said = (await mcp_client.call_tool("about")).structured_content
    assert (said["address"], said["header"]) == ("127.0.0.1", "blue")


async def test_under_another_server_a_websocket_has_them_too(mcp_app: Server):
    async with mcp_app.serving("http", server="granian", port=0, websocket="/ws") as url:
        socket = url.replace("http://", "ws://").replace("/mcp", "/ws")
        async with Client(socket, headers={"X-Tenant": "blue"}) as client:
            said = (await client.call_tool("about")).structured_content
        assert (said["address"], said["header"]) == ("127.0.0.1", "blue")


async def test_the_bound_of_a_session_is_named():
    app = make(state_store=MemoryStateStore(max_owner=1000))
    async with connected(app, era="legacy") as client:
        result = await client.call_tool("put", {"key": "big", "value": "x" * 2000})
        assert result.is_error
        assert "`MemoryStateStore(max_owner=…)`" in result.content[0].text
        result = await client.call_tool("put", {"key": "small", "value": "x"})
        assert not result.is_error


@pytest.mark.mcpearl(era=["legacy", "modern"])
async def test_in_memory_there_are_no_headers(mcp_client: Client):
    said = (await mcp_client.call_tool("about")).structured_content
    assert (said["address"], said["header"]) == (None, None)
    assert (said["id"] is None) is (mcp_client.era == "modern")
