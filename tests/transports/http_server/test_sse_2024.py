"""HTTP+SSE of 2024-11-05: one stream down, POSTs up, for clients that know nothing newer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from mcpearl import Client, Context, Limits, Server
from tests.ports import free_port
from tests.transports.http_server.conftest import at_one_server
from tests.transports.raw_http import HANGS, Raw, Response, message, response, serving, until_open
from tests.waiting import eventually, turns

pytestmark = pytest.mark.usefixtures("store")

OLDEST = "2024-11-05"


def make_app(**options: Any) -> Server:
    app = Server("old", grace=1.0, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.progress(number + 1, to)
        return "done"

    @app.tool
    async def hang() -> str:
        await asyncio.sleep(60)
        return "never"

    @app.tool
    async def about(ctx: Context) -> list[str | None]:
        return [ctx.headers.get("accept"), ctx.client_address, ctx.session_id]

    return app


@pytest.fixture
async def client() -> AsyncIterator[Raw]:
    async with serving(make_app(), http_sse=True) as client:
        yield client


async def begin(client: Raw) -> tuple[Response, str]:
    """Open a stream: the response, and where to POST."""
    stream = await client.request("GET", {"Accept": "text/event-stream"}, path="/sse")
    assert stream.status == 200
    event = await stream.event()
    assert event is not None and event["event"] == "endpoint"
    return stream, event["data"]


def initialize() -> dict[str, Any]:
    info = {"name": "old", "version": "1"}
    params = {"protocolVersion": OLDEST, "capabilities": {}, "clientInfo": info}
    return message("initialize", params)


async def test_the_first_event_says_where_to_post_and_answers_come_on_the_stream(
    client: Raw,
) -> None:
    stream, place = await begin(client)
    assert place.startswith("/messages?session_id=")
    assert (await client.post(initialize(), path=place)).status == 202
    assert (await stream.next())["result"]["protocolVersion"] == OLDEST
    await client.post(message("notifications/initialized", id=None), path=place)
    call = message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id=7)
    assert (await client.post(call, path=place)).status == 202
    answer = await stream.next()
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (7, "3")


async def test_a_handler_sees_the_request_that_opened_the_stream(client: Raw) -> None:
    stream, place = await begin(client)
    await client.post(initialize(), path=place)
    await stream.next()
    await client.post(message("notifications/initialized", id=None), path=place)
    await client.post(message("tools/call", {"name": "about", "arguments": {}}, id=7), path=place)
    said = json.loads((await stream.next())["result"]["content"][0]["text"])
    assert said == [
        "text/event-stream",
        "127.0.0.1",
        place.partition("session_id=")[2].partition("&")[0],
    ]


async def test_the_official_client(client: Raw) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    address = f"http://127.0.0.1:{client.port}/sse"
    async with sse_client(address) as streams, ClientSession(*streams) as session:
        agreed = await session.initialize()
        assert agreed.server_info.name == "old"
        result = await session.call_tool("add", {"a": 2, "b": 3})
        assert result.content[0].text == "5"  # type: ignore[union-attr]
        await session.call_tool("count", {"to": 3}, progress_callback=note)
        assert steps == [1, 2, 3]


async def test_our_own_client_finds_its_way_to_it(client: Raw) -> None:
    async with Client(f"http://127.0.0.1:{client.port}/sse") as own:
        assert (await own.call_tool("add", {"a": 20, "b": 22})).content[0].text == "42"


@at_one_server("elsewhere a message is acknowledged once it is stored")
async def test_the_session_ends_with_its_stream() -> None:
    app = make_app()
    async with serving(app, http_sse=True) as client:
        stream, place = await begin(client)
        await client.post(initialize(), path=place)
        await stream.next()
        assert len(app.core.roster) == 1
        stream.close()
        await eventually(lambda: not app.core.roster)
        answer = await client.post(message("ping"), path=place)
        assert answer.status == 404
        assert "no such session" in answer.json["error"]["message"]


async def test_at_shutdown_streams_end_once_their_calls_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> str:
        begun.set()
        await go_on.wait()
        return "answered"

    port = free_port()
    task = asyncio.create_task(app.serve("http", port=port, http_sse=True))
    await until_open(port, task)
    client = Raw(port)
    idle, _ = await begin(client)
    busy, place = await begin(client)
    await client.post(initialize(), path=place)
    await busy.next()
    await client.post(message("notifications/initialized", id=None), path=place)
    await client.post(message("tools/call", {"name": "wait", "arguments": {}}), path=place)
    await asyncio.wait_for(begun.wait(), HANGS)
    task.cancel()
    assert await idle.rest() == []  # in order, while the other call goes on
    go_on.set()
    (answer,) = await busy.rest()
    assert answer["result"]["content"][0]["text"] == "answered"
    await asyncio.wait([task])
    assert "Cancel" not in caplog.text
    assert not app.connections


async def test_bad_requests(client: Raw) -> None:
    stream, place = await begin(client)
    assert (await client.post(message("ping"), path="/messages?session_id=nobody")).status == 404
    assert (await client.post(message("ping"), path="/messages")).status == 404
    assert (
        await client.post(message("ping"), {"Content-Type": "text/x"}, path=place)
    ).status == 415
    assert (await client.request("GET", {"Accept": "text/html"}, path="/sse")).status == 406
    assert (await client.request("GET", {}, path="/messages")).status == 405
    assert (await client.post(message("ping"), path="/sse")).status == 405
    assert (await client.post(message("ping"), {"Host": "evil.example"}, path=place)).status == 421
    forged = {"Origin": "http://evil.example"}
    assert (await client.post(message("ping"), forged, path=place)).status == 403
    await client.post(b"not JSON", path=place)
    assert (await stream.next())["error"]["code"] == -32700


async def test_it_is_there_only_when_asked_for() -> None:
    async with serving(make_app()) as client:
        assert (await client.request("GET", {}, path="/sse")).status == 404


@at_one_server("elsewhere a message is acknowledged once it is stored")
async def test_a_session_that_has_enough_in_hand_refuses_more() -> None:
    app = make_app(limits=Limits(max_in_flight=3))
    async with serving(app, http_sse=True) as client:
        stream, place = await begin(client)
        await client.post(initialize(), path=place)
        await stream.next()
        await client.post(message("notifications/initialized", id=None), path=place)
        statuses = []
        for id in range(10, 16):
            call = message("tools/call", {"name": "hang", "arguments": {}}, id=id)
            statuses.append((await client.post(call, path=place)).status)
        assert statuses == [202, 202, 202, 503, 503, 503]
        stream.close()


async def test_a_body_that_ends_when_enough_is_in_hand_is_refused() -> None:
    app = make_app(limits=Limits(max_in_flight=1))
    async with serving(app, http_sse=True) as client:
        stream, place = await begin(client)
        await client.post(initialize(), path=place)
        await stream.next()
        await client.post(message("notifications/initialized", id=None), path=place)
        reader, writer = await client.connect()
        head = {"Content-Type": "application/json", "Content-Length": "2"}
        writer.write(client.head("POST", head, place) + b"{")
        await turns()
        call = message("tools/call", {"name": "hang", "arguments": {}})
        assert (await client.post(call, path=place)).status == 202
        writer.write(b"}")
        assert (await response(reader, writer)).status == 503
        writer.close()
        stream.close()
