"""Streamable HTTP as raw requests see it: requests that stand for themselves, and what is refused."""

import asyncio
import json
import random
import resource
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from mcpearl import Context, Handler, Limits, McpError, Server
from mcpearl.testing.clock import MovableClock
from mcpearl.types import CallToolRequestParams, CallToolResult, Tool
from tests.across import SharedFlag, SharedNotes
from tests.transports.http_server.conftest import at_one_server
from tests.transports.raw_http import (
    BOTH,
    HANGS,
    LEGACY,
    MODERN,
    PREFIX,
    Headers,
    Raw,
    message,
    meta,
    modern,
    response,
    serving,
    wrapped,
)
from tests.waiting import eventually, turns

pytestmark = pytest.mark.usefixtures("store")

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

REGION = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
    },
}


class Log:
    """What happened inside the server."""

    def __init__(self) -> None:
        self.started = SharedFlag()
        self.cancelled = SharedFlag()


def make_app(log: Log | None = None, **options: Any) -> Server:
    app = Server("raw", grace=1.0, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool(name="größe")
    async def size() -> str:
        return "big"

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.progress(number + 1, to)
        return "done"

    @app.tool(input_schema=REGION)
    async def query(region: str | None = None, count: int | None = None) -> str:
        return f"{region} {count}"

    @app.tool
    async def hang(ctx: Context, progress: bool = False) -> str:
        assert log is not None
        if progress:
            await ctx.progress(1)
        log.started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.cancelled.set()
            raise
        return "slept"

    @app.tool
    async def flood(ctx: Context) -> str:
        for number in range(2000):
            await ctx.progress(number, message="x" * 10_000)
        return "flooded"

    @app.tool
    async def ask(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        answer = await ctx.elicit("Which city?", schema)
        return f"{answer.action} {answer.data}"

    @app.resource("config://app")
    def config() -> str:
        return "on"

    return app


@pytest.fixture
async def client() -> AsyncIterator[Raw]:
    async with serving(make_app()) as raw:
        yield raw


# Answers


async def test_an_answer_is_plain_json(client: Raw) -> None:
    answer = await client.call("add", {"a": 1, "b": 2})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json["id"] == 1
    assert answer.json["result"]["structuredContent"] == {"result": 3}


async def test_an_answer_becomes_a_stream_with_the_first_progress(client: Raw) -> None:
    answer = await client.call("count", {"to": 3}, progressToken="t")
    assert (answer.status, answer.is_stream) == (200, True)
    assert answer.headers["x-accel-buffering"] == "no"
    *progress, last = await answer.rest()
    assert [each["params"]["progress"] for each in progress] == [1, 2, 3]
    assert last["result"]["content"][0]["text"] == "done"


async def test_a_modern_stream_has_no_event_ids(client: Raw) -> None:
    answer = await client.call("count", {"to": 1}, progressToken="t")
    assert await answer.event() is not None
    last = await answer.event()
    assert last is not None and "id" not in last


async def test_discover_says_what_there_is(client: Raw) -> None:
    headers, body = modern("server/discover")
    result = (await client.post(body, headers)).json["result"]
    assert MODERN in result["supportedVersions"]


async def test_a_notification_is_accepted_without_a_body(client: Raw) -> None:
    note = message("notifications/cancelled", {"requestId": 1, "_meta": meta()}, id=None)
    for headers in ({}, {"MCP-Protocol-Version": MODERN}):
        answer = await client.post(note, headers)
        assert (answer.status, answer.body) == (202, b"")


async def test_input_is_asked_for_in_a_result_and_given_in_a_second_request(client: Raw) -> None:
    first = (await client.call("ask")).json["result"]
    assert first["resultType"] == "input_required"
    ((key, request),) = first["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    params = {
        "name": "ask",
        "arguments": {},
        "inputResponses": {key: {"action": "accept", "content": {"city": "Oslo"}}},
        "requestState": first["requestState"],
    }
    headers, body = modern("tools/call", params, id=2)
    second = (await client.post(body, headers)).json["result"]
    assert second["content"][0]["text"] == "accept {'city': 'Oslo'}"


# Headers repeat the body


def renamed(name: str) -> tuple[Headers, dict[str, Any]]:
    headers, body = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    return {**headers, "Mcp-Name": name}, body


ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": LEGACY},
        {"MCP-Protocol-Version": f"{MODERN}\r\nMCP-Protocol-Version: {LEGACY}"},
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": None},
        {"Mcp-Name": "sub"},
        {"Mcp-Name": "sub\r\nMcp-Name: add"},
        {"Mcp-Name": "=?base64?not base64?="},
        {"Mcp-Name": "=?base64?/w==?="},
        {"Mcp-Name": wrapped("sub")},
    ],
    ids=str,
)
async def test_headers_that_do_not_repeat_the_body(client: Raw, wrong: Headers) -> None:
    headers, body = modern("tools/call", ADD)
    answer = await client.post(body, {**headers, **wrong})
    assert (answer.status, answer.code, answer.json["id"]) == (400, HEADER_MISMATCH, 1)


@pytest.mark.parametrize("version", [LEGACY, None])
@pytest.mark.parametrize(
    ("method", "params"), [("tools/call", ADD), ("tools/list", {}), ("server/discover", {})]
)
async def test_a_modern_message_with_the_headers_of_a_session(
    client: Raw, version: str | None, method: str, params: dict[str, Any]
) -> None:
    session = await client.initialize()
    headers, body = modern(method, params)
    answer = await session.post(body, {**headers, "MCP-Protocol-Version": version})
    assert (answer.status, answer.code, answer.json["id"]) == (400, HEADER_MISMATCH, 1)
    answer = await client.post(body, {**headers, "MCP-Protocol-Version": version})
    assert (answer.status, answer.code, answer.json["id"]) == (400, HEADER_MISMATCH, 1)
    assert (await session.use("add", {"a": 1, "b": 2})).json["result"]


async def test_a_call_that_does_not_agree_with_its_headers_is_not_run() -> None:
    app, ran = make_app(), SharedNotes()

    @app.tool
    async def act() -> str:
        ran.append("act")
        return "done"

    async with serving(app) as client:
        headers, body = modern("tools/call", {"name": "act", "arguments": {}})
        for _ in range(2):  # the second time its head is known
            answer = await client.post(body, {**headers, "Mcp-Name": "add"})
            assert (answer.status, answer.code) == (400, HEADER_MISMATCH)
        assert ran == []
        assert not any(connection.end.in_flight for connection in app.connections)
        assert (await client.post(body, headers)).status == 200
        assert ran == ["act"]


async def test_headers_may_be_wrapped_and_have_any_case_of_name(client: Raw) -> None:
    headers, body = modern("tools/call", ADD)
    lower: Headers = {name.lower(): value for name, value in headers.items()}
    assert (await client.post(body, {**lower, "mcp-name": wrapped("add")})).status == 200
    headers, body = modern("tools/call", {"name": "größe", "arguments": {}})
    assert (await client.post(body, {**headers, "Mcp-Name": wrapped("größe")})).status == 200


async def test_a_header_of_other_characters_is_refused_even_if_it_means_the_same(
    client: Raw,
) -> None:
    headers, body = modern("tools/call", {"name": "größe", "arguments": {}})
    answer = await client.post(body, {**headers, "Mcp-Name": "größe"})
    assert (answer.status, answer.code) == (400, HEADER_MISMATCH)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu", "count": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Count": "42"}),
        ({"region": "eu"}, {"mcp-param-region": wrapped("eu")}),
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}),
        ({"region": None}, {}),
        ({}, {"Mcp-Param-Other": "anything"}),
    ],
    ids=str,
)
async def test_parameters_that_agree(
    client: Raw, arguments: dict[str, Any], headers: Headers
) -> None:
    standard, body = modern("tools/call", {"name": "query", "arguments": arguments})
    answer = await client.post(body, {**standard, **headers})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}),
        ({"region": "eu"}, {"Mcp-Param-Region": wrapped("us")}),
        ({"region": "1000"}, {"Mcp-Param-Region": "1e3"}),
        ({"region": "007"}, {"Mcp-Param-Region": "7"}),
        ({"count": 10}, {"Mcp-Param-Count": "1_0"}),
        ({"count": 9007199254740993}, {"Mcp-Param-Count": "9007199254740992"}),
        ({}, {"Mcp-Param-Region": "eu"}),
        ({"region": None}, {"Mcp-Param-Region": "eu"}),
    ],
    ids=str,
)
async def test_parameters_that_do_not_agree(
    client: Raw, arguments: dict[str, Any], headers: Headers
) -> None:
    standard, body = modern("tools/call", {"name": "query", "arguments": arguments})
    answer = await client.post(body, {**standard, **headers})
    assert (answer.status, answer.code) == (400, HEADER_MISMATCH)


class Forwarding(Handler):
    """Knows the schema of its tools, and does not look at arguments."""

    def __init__(self) -> None:
        self.ran = SharedNotes()
        self.is_broken = False

    def tool(self, name: str) -> Tool | None:
        if self.is_broken:
            raise RuntimeError("the definitions are not there")
        return Tool(name=name, input_schema=REGION)

    async def call_tool(self, params: CallToolRequestParams, ctx: Context) -> CallToolResult:
        self.ran.append(params.name)
        return CallToolResult(content=[])


@pytest.mark.parametrize("unreadable", [b"1e400", b"9" * 5000, b'"\xff"'])
async def test_arguments_that_cannot_be_compared_are_refused(unreadable: bytes) -> None:
    handler = Forwarding()
    async with serving(Server("raw", handler=handler)) as client:
        arguments = {"region": "eu", "more": 4711}
        headers, body = modern("tools/call", {"name": "query", "arguments": arguments})
        data = json.dumps(body).encode().replace(b"4711", unreadable)
        answer = await client.post(data, {**headers, "Mcp-Param-Region": "us"})
        assert (answer.status, answer.code) == (400, -32602)
        assert not handler.ran


@pytest.mark.inside("looks for a call that a server kept")
async def test_a_call_that_could_not_be_compared_is_not_kept() -> None:
    handler = Forwarding()
    app = Server("raw", handler=handler)
    async with serving(app) as client:
        handler.is_broken = True
        assert (await client.call("query")).status == 500
        (solo,) = app.core.roster
        assert not solo.end.in_flight
        handler.is_broken = False
        assert (await client.call("query")).status == 200
        assert len(handler.ran) == 1


# Errors of a request


async def test_a_version_nobody_speaks(client: Raw) -> None:
    headers, body = modern("tools/list", **{f"{PREFIX}protocolVersion": "2099-01-01"})
    answer = await client.post(body, {**headers, "MCP-Protocol-Version": "2099-01-01"})
    assert (answer.status, answer.code) == (400, UNSUPPORTED_VERSION)
    assert answer.json["error"]["data"]["requested"] == "2099-01-01"
    assert MODERN in answer.json["error"]["data"]["supported"]


async def test_a_version_this_server_does_not_offer() -> None:
    async with serving(make_app(versions=(LEGACY,))) as client:
        headers, body = modern("tools/list")
        answer = await client.post(body, headers)
        assert (answer.status, answer.code) == (400, UNSUPPORTED_VERSION)
        assert answer.json["error"]["data"]["supported"] == [LEGACY]


@pytest.mark.parametrize("id", [1, "x" * 1000])
async def test_an_error_of_a_call_decides_the_status_however_long_its_id_is(id: Any) -> None:
    app = Server("errors")

    @app.tool
    async def fail() -> str:
        raise McpError(-32601, "not today")

    @app.tool
    async def report() -> dict[str, Any]:
        return {"error": {"code": -32601, "message": "not an error of the call"}}

    async with serving(app) as client:
        statuses = []
        for tool in ("fail", "report"):
            headers, body = modern("tools/call", {"name": tool}, id)
            statuses.append((await client.post(body, headers)).status)
        assert statuses == [404, 200]


@pytest.mark.parametrize("id", [1, "x" * 1000])
async def test_a_method_nobody_knows(client: Raw, id: Any) -> None:
    headers, body = modern("tools/unknown", id=id)
    answer = await client.post(body, headers)
    assert (answer.status, answer.code) == (404, -32601)


async def test_a_request_without_the_capabilities_of_its_client(client: Raw) -> None:
    headers, body = modern("tools/list")
    del body["params"]["_meta"][f"{PREFIX}clientCapabilities"]
    answer = await client.post(body, headers)
    assert (answer.status, answer.code) == (400, -32602)


@pytest.mark.parametrize("headers", [{"MCP-Protocol-Version": MODERN}, {}], ids=["modern", "none"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"{'a': 1}", b'{"method":"\xff"}', b"[" * 100_000]
)
async def test_a_body_that_is_no_json(client: Raw, body: bytes, headers: Headers) -> None:
    answer = await client.post(body, headers)
    assert (answer.status, answer.code) == (400, -32700)


@pytest.mark.parametrize("body", [[], 1, None, "text", [modern("tools/list")[1]], {"a": 1}])
async def test_a_body_that_is_no_message(client: Raw, body: Any) -> None:
    answer = await client.post(body, {"MCP-Protocol-Version": MODERN})
    assert (answer.status, answer.code) == (400, -32600)


async def test_arguments_nested_too_deeply(client: Raw) -> None:
    _, body = modern("tools/call", {"name": "add", "arguments": {"a": 0}})
    deep = json.dumps(body).replace('"a": 0', '"a": ' + "[" * 50_000 + "]" * 50_000).encode()
    answer = await client.post(deep, modern("tools/call", ADD)[0])
    assert answer.status == 400
    assert (await client.call("add", {"a": 1, "b": 2})).status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_only_post(client: Raw, method: str) -> None:
    answer = await client.request(
        method, {"MCP-Protocol-Version": MODERN, "Accept": "text/event-stream"}
    )
    assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE"])
async def test_other_methods(client: Raw, method: str) -> None:
    assert (await client.request(method, {})).status == 405


# Listening


def listening(**wanted: Any) -> tuple[Headers, dict[str, Any]]:
    return modern("subscriptions/listen", {"notifications": wanted}, id="sub")


async def test_listening_begins_with_an_acknowledgement_and_hears() -> None:
    app = make_app()
    async with serving(app) as client:
        headers, body = listening(toolsListChanged=True)
        stream = await client.post(body, headers)
        assert stream.is_stream
        assert (await stream.next())["method"] == "notifications/subscriptions/acknowledged"
        app.remove_tool("add")
        heard = await stream.next()
        assert heard["method"] == "notifications/tools/list_changed"
        assert heard["params"]["_meta"][f"{PREFIX}subscriptionId"] == "sub"
        stream.close()


async def test_a_quiet_stream_shows_signs_of_life() -> None:
    app = make_app()
    async with serving(app, keep_alive=0.05) as client:
        headers, body = listening(toolsListChanged=True)
        stream = await client.post(body, headers)
        await stream.next()
        hearing = asyncio.create_task(stream.next())
        await eventually(lambda: stream.comments >= 3)
        app.remove_tool("add")
        assert (await hearing)["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_listening_ends_with_a_result_when_the_server_stops() -> None:
    async with serving(make_app()) as client:
        headers, body = listening(toolsListChanged=True)
        stream = await client.post(body, headers)
        await stream.next()
    last, *more = await stream.rest()
    assert (last["id"], more) == ("sub", [])
    assert "result" in last


async def test_a_call_in_hand_is_answered_when_the_server_stops() -> None:
    app = Server("slow", grace=20.0)
    started = SharedNotes()

    @app.tool
    async def slow() -> str:
        started.append("slow")
        await asyncio.sleep(0.2)  # longer than it takes to begin to stop
        return "done"

    async with serving(app) as client:
        calls = [asyncio.create_task(client.call("slow"))]
        session = await client.initialize()
        calls.append(asyncio.create_task(session.use("slow")))
        await eventually(lambda: len(started) == 2)
    for call in calls:
        assert (await call).json["result"]["content"][0]["text"] == "done"


@pytest.mark.inside("looks at a server's subscriptions")
async def test_a_listener_that_leaves_is_forgotten() -> None:
    app = make_app()
    async with serving(app) as client:
        headers, body = listening(toolsListChanged=True)
        stream = await client.post(body, headers)
        await stream.next()
        assert app.core.subscriptions.counts()["tools"] == 1
        stream.close()
        await eventually(lambda: app.core.subscriptions.counts()["tools"] == 0)
        assert not in_hand(app)


@pytest.mark.parametrize("progress", [False, True], ids=["json", "stream"])
async def test_leaving_cancels_the_call(progress: bool) -> None:
    log = Log()
    async with serving(make_app(log)) as client:
        headers, body = modern(
            "tools/call", {"name": "hang", "arguments": {"progress": progress}}, progressToken=1
        )
        data = json.dumps(body).encode()
        _, writer = await client.connect()
        head: Headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        writer.write(client.head("POST", {**head, **headers}) + data)
        await asyncio.wait_for(log.started.wait(), HANGS)
        writer.transport.abort()
        await asyncio.wait_for(log.cancelled.wait(), HANGS)


# Who may ask


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://evil@x",
        "x://127.0.0.1",
        "chrome-extension://localhost",
        "tauri://localhost",
        "://127.0.0.1",
        "127.0.0.1",
        "http://127.0.0.1:\xb2",
    ],
)
async def test_a_page_from_elsewhere_is_refused(client: Raw, origin: str) -> None:
    headers, body = modern("tools/list")
    for answer in (
        await client.post(body, {**headers, "Origin": origin}),
        await client.request("OPTIONS", {"Origin": origin}),
        await client.get({"Origin": origin}),
    ):
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "", "localhost.evil", None])
async def test_another_name_of_this_machine_is_refused(client: Raw, host: str | None) -> None:
    headers, body = modern("tools/list")
    answer = await client.post(body, {**headers, "Host": host})
    assert answer.status in (400, 421)


async def test_a_rebound_name_is_refused_also_where_every_host_is_served() -> None:
    async with serving(make_app(), allowed_hosts=frozenset({"*"})) as client:
        headers, body = modern("tools/list")
        rebound: Headers = {"Host": "evil.example:80", "Origin": "http://evil.example:80"}
        assert (await client.post(body, {**headers, **rebound})).status == 403
        assert (await client.post(body, {**headers, "Host": "proxied.example"})).status == 200


async def test_a_local_page_may_read_what_it_needs(client: Raw) -> None:
    headers, body = modern("tools/list")
    answer = await client.post(body, {**headers, "Origin": "http://localhost:5173"})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "origin"
    assert "access-control-allow-origin" not in (await client.post(body, headers)).headers


async def test_a_page_that_was_allowed_may_ask_before_it_asks() -> None:
    class Nobody:
        def document(self, request: Any) -> None:
            return None

        def known(self, request: Any) -> str:
            raise AssertionError("a preflight has no credentials to look at")

        admit = known

    page = "https://app.example"
    async with serving(make_app(), allowed_origins=frozenset({page}), auth=Nobody()) as client:
        asked = "content-type, mcp-method, mcp-param-region"
        answer = await client.request(
            "OPTIONS",
            {
                "Origin": page,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": asked,
            },
        )
        assert answer.status == 204
        assert "content-length" not in answer.headers
        assert answer.headers["access-control-allow-origin"] == page
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == asked
        local = await client.request("OPTIONS", {"Origin": "http://localhost:1"})
        assert local.status == 403


async def test_what_is_not_the_endpoint(client: Raw) -> None:
    headers, body = modern("tools/list")
    for path, status in (("/mcp/", 200), ("/mcp?x=1", 200), ("/", 404), ("/mcp/x", 404)):
        assert (await client.post(body, headers, path=path)).status == status


# Bodies


async def test_types_of_content(client: Raw) -> None:
    headers, body = modern("tools/list")
    for kind, status in (
        ("application/json; charset=utf-8", 200),
        ("text/plain", 415),
        (None, 415),
    ):
        assert (await client.post(body, {**headers, "Content-Type": kind})).status == status
    for accept, status in (
        (BOTH, 200),
        ("application/json\r\nAccept: text/event-stream", 200),
        ("*/*", 200),
        ("text/html", 406),
        ("application/json", 406),
    ):
        assert (await client.post(body, {**headers, "Accept": accept})).status == status


async def test_a_body_over_the_limit() -> None:
    async with serving(make_app(limits=Limits(max_message=10_000))) as client:
        assert (await client.post(b" " * 10_001)).status == 413
        head = client.head(
            "POST", {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        )
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        assert (await client.send(head + chunk * 3)).status == 413
        declared = client.head(
            "POST", {"Content-Type": "application/json", "Content-Length": "99999999999"}
        )
        assert (await client.send(declared)).status == 413
        assert (await client.call("add", {"a": 1, "b": 2})).status == 200


async def test_a_body_that_drips() -> None:
    async with serving(make_app(), body_timeout=0.3) as client:
        reader, writer = await client.connect()
        writer.write(
            client.head("POST", {"Content-Type": "application/json", "Content-Length": "1000"})
        )

        async def drip() -> None:
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        answer = await response(reader, writer)
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        dripping.cancel()
        writer.close()


async def test_a_body_that_breaks_off(client: Raw) -> None:
    _, writer = await client.connect()
    writer.write(
        client.head("POST", {"Content-Type": "application/json", "Content-Length": "1000"}) + b"{"
    )
    await turns()
    writer.transport.abort()
    assert (await client.call("add", {"a": 1, "b": 2})).status == 200


async def test_a_head_without_end(client: Raw) -> None:
    for endless in (b"GET /mcp HTTP/1.1\r\nX: ", b"GET /mcp HTTP/1.1\r\n", b"GET /"):
        _, writer = await client.connect()
        writer.write(endless)
        line = b"x" * 1000 if endless[-1:] != b"\n" else b"X-Y: z\r\n" * 100
        async with asyncio.timeout(HANGS):
            with pytest.raises(ConnectionError):
                for _ in range(100_000):
                    writer.write(line)
                    await writer.drain()
        writer.close()
    assert (await client.call("add", {"a": 1, "b": 2})).status == 200


@pytest.mark.inside("moves a server's clock")
async def test_a_head_that_never_comes(clock: MovableClock) -> None:
    app = make_app()
    async with serving(app) as client:
        for begun in (b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: "):
            reader, writer = await client.connect()
            writer.write(begun)

            def is_closed(reader: asyncio.StreamReader = reader) -> bool:
                clock.move(10)
                return reader.at_eof()

            await eventually(is_closed)
            writer.close()
        headers, body = listening(toolsListChanged=True)
        stream = await client.post(body, headers)
        await stream.next()
        await clock.advance(1)
        clock.move(60)  # a request that came is not hurried
        await clock.advance(1)
        app.add_tool(lambda: 1, name="another")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


# Many


@at_one_server("each server counts its own requests")
async def test_too_many_requests_at_once() -> None:
    log = Log()
    async with serving(make_app(log), max_requests=1) as client:
        first = asyncio.create_task(client.call("hang"))
        await asyncio.wait_for(log.started.wait(), HANGS)
        answer = await client.call("add", {"a": 1, "b": 2})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        first.cancel()


@at_one_server("each server counts its own streams")
async def test_streams_that_wait_keep_nobody_from_calling() -> None:
    app = make_app()
    async with serving(app, max_requests=2, max_streams=5) as client:
        headers, body = listening(toolsListChanged=True)
        streams = [await client.post(body, headers) for _ in range(4)]
        session = await client.initialize()
        streams.append(await session.get())
        assert {stream.status for stream in streams} == {200}
        assert (await client.call("add", {"a": 1, "b": 2})).status == 200
        refused = await client.post(body, headers)
        assert refused.status == 503
        assert "Too many streams" in refused.json["error"]["message"]
        assert refused.headers["retry-after"] == "10"
        assert in_hand(app) == 4  # what was refused left nothing behind
        streams[0].close()
        await eventually(
            lambda: app.core.subscriptions.counts()["tools"] == 4
        )  # three, and the session
        assert (await client.post(body, headers)).status == 200


async def test_a_thousand_slow_connections_keep_nobody_waiting(client: Raw) -> None:
    allow_files(4096)
    slow = [await client.connect() for _ in range(1000)]
    head = client.head("POST", {"Content-Type": "application/json", "Content-Length": "1000"})
    for place, (_, writer) in enumerate(slow):
        writer.write(head[: 10 + place % len(head)] if place % 2 else head + b"{")
    for number in range(20):
        answer = await client.call("add", {"a": number, "b": 2})
        assert answer.json["result"]["structuredContent"] == {"result": number + 2}
    for _, writer in slow:
        writer.transport.abort()


def allow_files(count: int) -> None:
    """Let this process have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@pytest.mark.inside("looks at the calls a server has in hand")
async def test_a_client_that_never_reads_loses_its_stream() -> None:
    app = make_app(limits=Limits(max_outgoing=1_000_000))
    async with serving(app, stall_timeout=0.3) as client:
        headers, body = modern("tools/call", {"name": "flood"}, progressToken=1)
        data = json.dumps(body).encode()
        head: Headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        writers = []
        for _ in range(5):
            _, writer = await client.connect()
            writer.transport.pause_reading()
            writer.write(client.head("POST", {**head, **headers}) + data)
            writers.append(writer)
        assert (await client.call("add", {"a": 1, "b": 2})).status == 200
        await eventually(lambda: not in_hand(app))
        for writer in writers:
            writer.transport.abort()


def accepted(port: int) -> list[Any]:
    """The connections this process, as the server at a port, has open."""
    found = psutil.Process().net_connections("tcp")
    return [each for each in found if each.laddr.port == port and each.status != "LISTEN"]


@at_one_server("a balancer reads for the client")
async def test_an_answer_that_is_never_read_is_not_kept() -> None:
    app = Server("large", grace=1.0)

    @app.tool
    async def large() -> str:
        return "x" * 20_000_000

    async with serving(app, stall_timeout=0.2) as client:
        headers, body = modern("tools/call", {"name": "large"})
        data = json.dumps(body).encode()
        head: Headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        reader, writer = await client.connect()
        await eventually(lambda: accepted(client.port))
        writer.transport.pause_reading()
        writer.write(client.head("POST", {**head, **headers}) + data)
        await eventually(lambda: not accepted(client.port))
        writer.transport.resume_reading()
        assert len(await asyncio.wait_for(reader.read(), HANGS)) < 20_000_000


def in_hand(app: Server) -> int:
    """How many calls are being worked on."""
    return sum(len(connection.end.in_flight) for connection in app.core.roster)


class Fuzz:
    """Requests that are nearly right."""

    JUNK = (None, 0, 1.5, 10**30, "", "x" * 300, "é", "\ud800", [], {}, True, MODERN, "add")
    METHODS = ("tools/call", "tools/list", "resources/read", "initialize", "server/discover")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> tuple[Headers, bytes]:
        headers, body = modern(self._random.choice(self.METHODS), ADD)
        if self._random.random() < 0.3:
            headers[self._random.choice(list(headers))] = self._random.choice(("", "é", LEGACY))
        data = bytearray(json.dumps(self._spoil(body)).encode())
        if data and self._random.random() < 0.2:
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        return headers, bytes(data)

    def _spoil(self, value: Any) -> Any:
        if self._random.random() < 0.06:
            return self._random.choice(self.JUNK)
        if isinstance(value, dict):
            return {
                name: self._spoil(each)
                for name, each in value.items()
                if self._random.random() > 0.03
            }
        return value


async def test_whatever_comes_is_answered_and_never_the_servers_fault(client: Raw) -> None:
    fuzz = Fuzz(seed=1)
    statuses = set()
    for _ in range(500):
        headers, body = fuzz.request()
        statuses.add((await client.post(body, headers)).status)
    assert statuses == {200, 202, 400, 404}
