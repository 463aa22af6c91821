"""Rates, concurrency of tools, and shedding of load: on every wire, before arguments are decoded."""

import asyncio
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mcpearl import (
    Client,
    Http,
    McpError,
    Observer,
    Overloaded,
    RateLimit,
    RateLimited,
    Server,
    Shedding,
)
from mcpearl.auth import BearerToken, StaticTokens
from mcpearl.testing import MovableClock, connected
from mcpearl.types.base import Implementation
from mcpearl.types.jsonrpc import OVERLOADED, RATE_LIMITED
from tests.ports import free_port
from tests.transports.raw_http import LEGACY, Raw, Session
from tests.waiting import eventually


def server(**options: Any) -> Server:
    app = Server("limits", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


async def refused(client: Client, name: str = "add", **arguments: Any) -> McpError:
    with pytest.raises(McpError) as raised:
        await client.call_tool(name, arguments)
    return raised.value


async def test_over_the_rate_a_call_is_refused_with_the_time_to_wait(clock: MovableClock) -> None:
    bounds: list[str] = []

    class Watching(Observer):
        def bound_reached(self, bound: str, detail: str) -> None:
            bounds.append(bound)

    app = server(rate=RateLimit(1, per=10, burst=3), observer=Watching())
    async with Client(app) as client:
        for _ in range(3):  # the list of tools that results are checked with has a count of its own
            await client.call_tool("add", {"a": 1, "b": 2})
        # The arguments are wrong; they are not looked at.
        error = await refused(client, a="x")
        assert error.code == RATE_LIMITED
        wait = error.data["retryAfter"]
        assert 9 < wait <= 10
        assert error.message == f"Over the limit of 1 calls in 10 s; try again in {wait:g} s"
        assert bounds == ["Server.rate"]
        await client.ping()
        await clock.advance(wait)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("by", ["principal", "address"])
@pytest.mark.parametrize("wire", ["tcp", "http"])
async def test_a_caller_can_make_as_many_calls_as_its_rate_says(
    wire: Any, version: str, by: Any
) -> None:
    app = server(rate=RateLimit(3, per=1000, by=by))
    async with connected(app, wire, version) as client:
        # None of these is a call: a new client, pings, and lists, which have a count of their own.
        for _ in range(5):
            await client.ping()
        for _ in range(2):
            await client.list_tools()
        assert [(await client.call_tool("add", {"a": 1, "b": n})).data for n in range(3)] == [
            1,
            2,
            3,
        ]
        assert (await refused(client, a=1, b=2)).code == RATE_LIMITED


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_lists_are_limited_too(version: str) -> None:
    app = server(rate=RateLimit(3, per=1000))
    async with connected(app, "tcp", version, validate_output=False) as client:
        for _ in range(3):
            await client.list_tools()
        with pytest.raises(McpError) as raised:
            await client.list_tools()
        assert raised.value.code == RATE_LIMITED
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_over_http_it_is_a_429_with_retry_after(version: str) -> None:
    app = server()

    @app.tool(rate=RateLimit(1, per=100))
    async def rare() -> str:
        return "once"

    async with app.serving("http", port=0) as url, Client(url, protocol=version) as client:
        await client.call_tool("rare")
        error = await refused(client, "rare")
        assert error.code == RATE_LIMITED
        assert error.data["retryAfter"] > 90
        assert "of tool `rare`" in error.message
        await client.call_tool("add", {"a": 1, "b": 2})


async def test_the_response_is_what_any_http_client_reads() -> None:
    app = server(rate=RateLimit(1, per=100, burst=1))
    port = free_port()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
    }
    call = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "add",
    }

    def post() -> tuple[int, str | None, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.getheader("retry-after"), json.load(response)
        finally:
            connection.close()

    async with app.serving("http", port=port):
        status, _, _ = await asyncio.to_thread(post)
        assert status == 200
        status, wait, answer = await asyncio.to_thread(post)
    assert status == 429
    assert wait is not None
    assert 90 < int(wait) <= 100
    assert answer["id"] == 1
    assert answer["error"]["code"] == RATE_LIMITED
    assert answer["error"]["data"]["retryAfter"] > 90


def rated(where: str, **options: Any) -> Server:
    """A server with a rate of its own, or of its tool: one call."""
    once = RateLimit(1, per=100, burst=1)
    app = Server("limits", rate=once if where == "server" else None)

    @app.tool(rate=once if where != "server" else None, **options)
    async def rare(a: int) -> int:
        return a

    return app


@pytest.mark.parametrize("where", ["server", "tool"])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("wire", ["tcp", "ws", "memory"])
async def test_on_every_stream_the_arguments_are_not_looked_at(
    wire: Any, version: str, where: str
) -> None:
    async with connected(rated(where), wire, version, validate_output=False) as client:
        await client.call_tool("rare", {"a": 1})
        error = await refused(client, "rare", a="no number")
    assert error.code == RATE_LIMITED
    assert error.data["retryAfter"] > 90


@pytest.mark.parametrize("where", ["server", "tool", "isolated"])
@pytest.mark.parametrize("stateless", [False, True])
async def test_a_legacy_client_gets_a_429_too(where: str, stateless: bool) -> None:
    app = rated(where, **({"isolate": True} if where == "isolated" else {}))
    port = free_port()
    async with app.serving(Http(port=port, stateless=stateless)):
        client = Session(port)
        client.headers = {"MCP-Protocol-Version": LEGACY}
        if not stateless:
            client = await Raw(port).initialize()
        assert (await client.use("rare", {"a": 1})).status == 200
        answer = await client.use("rare", {"a": "no number"})
    assert answer.status == 429
    assert 90 < int(answer.headers["retry-after"]) <= 100
    assert answer.code == RATE_LIMITED


async def test_each_principal_has_its_own_count() -> None:
    tokens = StaticTokens({"a" * 32: "alice", "b" * 32: "bob"})
    app = server(rate=RateLimit(4, per=1000), auth=tokens)
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"

    async def use(token: str) -> int:
        answered = 0
        async with Client(url, auth=BearerToken(token), validate_output=False) as client:
            for _ in range(6):
                try:
                    await client.call_tool("add", {"a": 1, "b": 2})
                    answered += 1
                except McpError as error:
                    assert error.code == RATE_LIMITED
        return answered

    async with app.serving("http", port=port):
        assert await use("a" * 32) == 4
        assert await use("b" * 32) == 4
        assert await use("a" * 32) == 0


@pytest.mark.parametrize("by", ["client", "address"])
async def test_callers_can_be_told_apart_by_client_or_address(tmp_path: Path, by: Any) -> None:
    app = server()

    @app.tool(rate=RateLimit(1, per=1000, by=by))
    async def rare() -> str:
        return "once"

    async with app.serving("tcp", port=0) as one, app.serving("unix", path=tmp_path / "s") as two:
        tcp = Client(one, info=Implementation(name="one", version="1"))
        other = Client(two, info=Implementation(name="two", version="1"))
        async with tcp, other:
            for client in (tcp, other):
                await client.call_tool("rare")
                assert (await refused(client, "rare")).code == RATE_LIMITED


async def test_so_many_calls_of_a_tool_run_at_once() -> None:
    app = server()
    running = most = 0
    release = asyncio.Event()

    @app.tool(concurrency=2, queue=3)
    async def slow() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return "done"

    async with Client(app) as client:
        await client.list_tools()
        calls = [asyncio.ensure_future(client.call_tool("slow")) for _ in range(5)]
        await eventually(lambda: running == 2)
        error = await refused(client, "slow")
        assert error.code == OVERLOADED
        assert "tool `slow` has 2 calls in hand and 3 waiting already" in error.message
        calls[3].cancel()  # one that waits
        await asyncio.wait([calls[3]])
        await client.call_tool("add", {"a": 1, "b": 2})
        release.set()
        await asyncio.gather(*calls[:3], calls[4])
        assert (await client.call_tool("slow")).structured_content == {"result": "done"}
    assert most == 2


@pytest.mark.parametrize("wire", ["tcp", "http"])
async def test_a_client_that_fills_the_queue_of_a_tool_leaves_a_share_to_others(wire: str) -> None:
    tokens = {"f" * 32: "flood", "o" * 32: "other"}
    app = server(auth=StaticTokens(tokens)) if wire == "http" else server()
    begun: list[str] = []
    release = asyncio.Event()

    @app.tool(concurrency=1, queue=4)
    async def slow(name: str) -> str:
        begun.append(name)
        await release.wait()
        return name

    async def one_refused(calls: set["asyncio.Future[Any]"]) -> set["asyncio.Future[Any]"]:
        done, others = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert [each.exception().code for each in done] == [OVERLOADED]  # type: ignore[union-attr]
        return others

    async with app.serving(wire, port=0) as url:
        flood, other = (
            Client(url, auth=BearerToken(token) if wire == "http" else None, validate_output=False)
            for token in tokens
        )
        async with flood, other:
            arguments = {"name": "flood"}
            calls = {asyncio.ensure_future(flood.call_tool("slow", arguments)) for _ in range(6)}
            calls = await one_refused(calls)
            call = asyncio.ensure_future(other.call_tool("slow", {"name": "other"}))
            calls = await one_refused(calls)
            release.set()
            assert (await call).text == "other"
            await asyncio.gather(*calls)
    assert begun == ["flood", "flood", "other", "flood", "flood"]


async def test_calls_are_shed_while_the_loop_is_behind() -> None:
    app = server(shedding=Shedding(lag=0.3, retry_after=2.5))
    outcomes: list[str] = []

    @app.tool
    async def block(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    async with Client(app) as client:
        await client.list_tools()
        # Both are read in the same turn of the loop, which the first one holds up.
        first = asyncio.ensure_future(client.call_tool("block", {"seconds": 0.9}))
        second = asyncio.ensure_future(client.call_tool("add", {"a": 1, "b": 2}))
        await first
        try:
            await second
            outcomes.append("served")
        except McpError as error:
            assert error.code == OVERLOADED
            assert error.data == {"retryAfter": 2.5}
            outcomes.append("refused")
        assert outcomes == ["refused"]

        async def is_served() -> bool:  # once the machine leaves the loop alone
            try:
                added = await client.call_tool("add", {"a": 1, "b": 2})
            except McpError:
                return False
            return added.structured_content == {"result": 3}

        await eventually(is_served)


async def test_calls_that_waited_too_long_to_be_read_are_shed() -> None:
    app = server(shedding=Shedding(lag=0.3))

    @app.tool
    async def block() -> str:
        time.sleep(0.01)
        return "done"

    port = free_port()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "flood", "version": "1"}
    messages: list[dict[str, Any]] = [{"id": 0, "method": "initialize", "params": hello}]
    messages.append({"method": "notifications/initialized"})
    call = {"name": "block", "arguments": {}, "_meta": {"padding": "x" * 100}}
    messages += [{"id": n, "method": "tools/call", "params": call} for n in range(1, 101)]
    flood = b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)

    async def send() -> list[Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(flood)
        answers = [json.loads(await reader.readline()) for _ in range(101)]
        writer.close()
        return answers[1:]

    async with app.serving("tcp", port=port):
        # Their messages are handled in turn, a few at a time: no turn of the loop takes long.
        both = await asyncio.gather(send(), send())
    codes = [answer["error"]["code"] for answers in both for answer in answers if "error" in answer]
    assert 0 < len(codes) < 200
    assert set(codes) == {OVERLOADED}


async def test_calls_are_shed_while_too_many_wait_for_a_thread() -> None:
    app = server(shedding=Shedding(lag=4, queue=2), threads=1)
    release = threading.Event()

    @app.tool
    def slow() -> str:
        release.wait()
        return "done"

    async with Client(app) as client:
        await client.list_tools()
        calls = [asyncio.ensure_future(client.call_tool("slow")) for _ in range(4)]
        await eventually(lambda: app._pool.waiting == 3)

        async def outcome() -> str:
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
            except McpError as error:
                assert error.code == OVERLOADED
                return "refused"
            return "served"

        async def is_refused() -> bool:
            return await outcome() == "refused"

        async def is_served() -> bool:
            return await outcome() == "served"

        await eventually(is_refused)
        release.set()
        await asyncio.gather(*calls)
        await eventually(is_served)


async def test_pings_and_cancellations_pass_while_calls_are_shed() -> None:
    app = server(shedding=Shedding(lag=4, queue=2), threads=1)
    release = threading.Event()
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @app.tool
    def slow() -> str:
        release.wait()
        return "done"

    @app.tool
    async def endless() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with (
        app.serving("tcp", port=0) as url,
        Client(url, protocol="2025-11-25", validate_output=False) as client,
    ):
        call = asyncio.ensure_future(client.call_tool("endless"))
        await begun.wait()
        calls = [asyncio.ensure_future(client.call_tool("slow")) for _ in range(4)]

        async def is_refused() -> bool:
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
            except McpError as error:
                return error.code == OVERLOADED
            return False

        await eventually(is_refused)
        await client.ping()
        call.cancel()
        await cancelled.wait()
        assert await is_refused()  # the server has not caught up meanwhile
        release.set()
        await asyncio.gather(*calls)


def test_the_errors_say_how_long_to_wait() -> None:
    assert RateLimited("5 calls in 1 s", 0.12345).data == {"retryAfter": 0.124}
    assert str(Overloaded("The server is busy")).startswith("The server is busy; try again in 1 s")
