"""Streamable HTTP from the client's side, against servers that behave, misbehave and disappear."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from mcpearl import Client
from mcpearl.auth.client.bearer import BearerToken
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.protocol.errors import AuthorizationFailed, ConnectionLost, McpearlError, McpError
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.transport import HttpTransport
from mcpearl.types.tools import Tool
from tests.ports import free_port
from tests.transports.http_peer import (
    HttpPeer,
    Listener,
    Request,
    http_peer,
    in_session,
    legacy,
    modern,
    modern_request,
    notification,
    request,
    wired,
)
from tests.waiting import at_rest, eventually, turns

CALLED = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


@pytest_asyncio.fixture
async def peer() -> AsyncIterator[HttpPeer]:
    async with http_peer() as peer:
        yield peer


async def call(request: Request) -> None:
    await request.result(CALLED)


# What is sent


async def test_a_modern_request_and_its_headers(peer: HttpPeer) -> None:
    peer.on("tools/call")(call)
    async with wired(peer, headers={"X-Mine": "1"}, authorizer=BearerToken("t")) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="add", arguments={"a": 1}))
        assert (await heard.answer(1))["result"] == CALLED
    (sent,) = peer.requests
    assert sent.method == "POST"
    assert sent.target == "/mcp"
    expected = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "add",
        "x-mine": "1",
        "authorization": "Bearer t",
    }
    assert expected.items() <= sent.headers.items()
    assert "mcp-session-id" not in sent.headers


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "Größe"}, "=?base64?R3LDtsOfZQ==?="),
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "file:///a%20b?c=1"}, "file:///a%20b?c=1"),
        ("tasks/get", {"taskId": "t-1"}, "t-1"),
        ("resources/subscribe", {"uri": "a:b"}, None),
        ("tools/list", {"name": 5}, None),
        ("tools/call", {}, None),
    ],
)
async def test_the_name_of_what_is_asked_for(
    peer: HttpPeer, method: str, params: dict[str, Any], name: str | None
) -> None:
    peer.on(method)(call)
    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, method, **params))
        await heard.answer(1)
    assert peer.requests[0].headers.get("mcp-name") == name
    assert peer.requests[0].headers["mcp-method"] == method


async def test_parameters_that_tools_want_in_headers(peer: HttpPeer) -> None:
    peer.on("tools/call")(call)
    schema = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    bad = Tool(name="bad", input_schema={"x-mcp-header": "No"})
    async with wired(peer) as (wire, heard):
        assert wire.learn_tools([bad, Tool(name="sql", input_schema=schema)])[0].name == "sql"
        wire.send(modern_request(1, "tools/call", name="sql", arguments={"region": "us-west1"}))
        wire.send(modern_request(2, "tools/call", name="sql"))
        wire.send(modern_request(3, "tools/call", name="other", arguments={"region": "x"}))
        await asyncio.gather(*map(heard.answer, (1, 2, 3)))
    sent = {each.message["id"]: each.headers.get("mcp-param-region") for each in peer.requests}
    assert sent == {1: "us-west1", 2: None, 3: None}


async def test_authorization_may_take_time_and_change(peer: HttpPeer) -> None:
    peer.on("tools/call")(call)
    tokens = iter([None, "2"])

    async def token() -> str | None:
        await asyncio.sleep(0)
        return next(tokens)

    async with wired(peer, authorizer=BearerToken(token)) as (wire, heard):
        for id in (1, 2):
            wire.send(modern_request(id, "tools/call", name="x"))
            await heard.answer(id)
    assert [each.headers.get("authorization") for each in peer.requests] == [None, "Bearer 2"]


async def test_authorization_that_fails_costs_its_request(peer: HttpPeer) -> None:
    peer.on("tools/call")(call)

    def broken() -> str:
        raise OSError("the keyring is locked")

    async with wired(peer, authorizer=BearerToken(broken)) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "keyring" in str(await heard.failure(1))


@pytest.mark.parametrize("headers", [{"A": "x\r\nB: y"}, {"A\n": "x"}, {"A": "x\0"}])
def test_no_header_can_hold_another(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        HttpTransport("http://localhost/", Limits(), headers=headers)


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "/mcp", "http://a/ b", "http://a/\r\nX: y"])
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        HttpTransport(url, Limits())


# What comes back


async def test_json_in_pieces(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def pieces(request: Request) -> None:
        answer = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": CALLED})
        await request.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: appli")
        await asyncio.sleep(0.01)
        await request.raw(b"cation/JSON ; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        for character in answer:
            await request.chunk(character)
            await asyncio.sleep(0)
        await request.end()

    async with wired(peer) as (wire, heard):
        for id in (1, 2):
            wire.send(modern_request(id, "tools/call", name="x"))
            assert (await heard.answer(id))["result"] == CALLED
    assert peer.connections == 1


async def test_a_body_that_ends_with_the_connection(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def until_eof(request: Request) -> None:
        answer = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": CALLED})
        await request.raw(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n")
        await request.raw(answer.encode())
        request.writer.close()

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert (await heard.answer(1))["result"] == CALLED


async def test_events_before_the_answer(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk(": keep-alive\n\n")
        for number in (1, 2):
            await request.event({"method": "notifications/progress", "params": {"at": number}})
        await request.chunk("event: other\ndata: {}\n\n")
        await request.event_result(CALLED)
        await request.end()

    async with wired(peer) as (wire, heard):
        for id in (1, 2):
            wire.send(modern_request(id, "tools/call", name="x"))
            await heard.answer(id)
    methods = [message.get("method", "answer") for message in heard.messages]
    assert methods == ["notifications/progress", "notifications/progress", "answer"] * 2
    assert peer.connections == 1


async def test_a_stream_that_stays_open_after_the_answer_is_closed(peer: HttpPeer) -> None:
    closed: list[Request] = []

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.event_result(CALLED)
        await asyncio.wait_for(request.gone.wait(), 30)
        closed.append(request)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        await heard.answer(1)
        await eventually(lambda: closed)
        await eventually(lambda: not wire._exchanges)


async def test_a_batch_is_passed_on_as_it_is(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def batch(request: Request) -> None:
        await request.respond(200, '[{"jsonrpc":"2.0","id":1,"result":{}}]')

    async with wired(peer) as (wire, heard):
        wire.send(request(1, "tools/call"))
        await heard.until(lambda: heard.messages)
    assert heard.messages == [[{"jsonrpc": "2.0", "id": 1, "result": {}}]]


ERROR = {"code": -32601, "message": "no"}


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "error": ERROR},
        {"jsonrpc": "2.0", "id": None, "error": ERROR},
        {"jsonrpc": "2.0", "id": "server-error", "error": ERROR},
        {"jsonrpc": "2.0", "id": 1, "error": ERROR},
    ],
)
@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_error_answer_gets_the_id_of_its_request(
    peer: HttpPeer, status: int, body: dict[str, Any]
) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        await request.respond(status, body)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert await heard.answer(1) == {"jsonrpc": "2.0", "id": 1, "error": ERROR}


@pytest.mark.parametrize(
    ("status", "body", "kind", "code", "words"),
    [
        (400, "", "", -32600, "HTTP status 400"),
        (404, "<html>" + "x" * 500, "text/html", -32600, "HTTP status 404: <html>"),
        (405, "{}", "application/json", -32600, "HTTP status 405: {}"),
        (500, b"\xff\xfe", "text/plain", -32603, "HTTP status 500"),
        (503, "busy", "text/plain", -32603, "HTTP status 503: busy"),
        (200, "<html>", "text/html", -32603, "content type 'text/html'"),
        (200, "", "", -32603, "content type ''"),
        (202, "", "", -32603, "HTTP status 202"),
        (204, "", "", -32603, "HTTP status 204"),
        (
            200,
            "no JSON",
            "application/json",
            -32603,
            "something else than the answer to the request: no JSON",
        ),
        (
            200,
            "{}",
            "application/json",
            -32603,
            "something else than the answer to the request: {}",
        ),
        (200, '{"jsonrpc":"2.0","id":9,"result":{}}', "application/json", -32603, "something else"),
        (200, '{"jsonrpc":"2.0","method":"x"}', "application/json", -32603, "something else"),
        (302, "", "", -32603, "HTTP status 302"),
    ],
)
async def test_what_is_no_answer_becomes_an_error(
    peer: HttpPeer, status: int, body: str | bytes, kind: str, code: int, words: str
) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        await request.respond(status, body, kind=kind)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        error = (await heard.answer(1))["error"]
    assert error["code"] == code
    assert words in error["message"]
    assert len(error["message"]) < 300
    assert error["data"]["status"] == status


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, "Who are you?", "401: Who are you?; pass `auth=`"),
        (401, "", "the server answered 401; pass `auth=`"),
        (401, '{"error":"invalid_token"}', "401 (invalid_token); pass `auth=`"),
        (
            403,
            '{"error":"insufficient_scope","error_description":"Needs write"}',
            "403 (insufficient_scope: Needs write); pass `auth=`",
        ),
        (
            401,
            '{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"No token"}}',
            "(No token)",
        ),
    ],
)
async def test_a_client_that_is_not_let_in_is_told_why_and_what_to_pass(
    peer: HttpPeer, status: int, body: str, words: str
) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        await request.respond(status, body, kind="application/json")

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        error = await heard.failure(1)
    assert isinstance(error, AuthorizationFailed)
    assert words in str(error)


async def test_a_header_that_is_not_accepted_is_named(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        await request.respond(401, '{"error":"invalid_token"}', kind="application/json")

    async with wired(peer, headers={"authorization": "Bearer old"}) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "`Authorization` header of `headers=`" in str(await heard.failure(1))


async def test_a_challenge_says_why_where_the_body_does_not(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        words = 'Bearer error="invalid_token", error_description="Token expired"'
        await request.respond(401, WWW_Authenticate=words)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "answered 401 (Token expired); pass" in str(await heard.failure(1))


async def test_a_refusal_says_when_to_come_back(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def refuse(request: Request) -> None:
        await request.respond(429, Retry_After="7")

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        data = (await heard.answer(1))["error"]["data"]
    assert data == {"status": 429, "retryAfter": "7"}


# Connections that fail


async def test_nobody_there() -> None:
    transport = HttpTransport(f"http://127.0.0.1:{free_port()}/mcp", Limits())
    with pytest.raises(ConnectionLost, match="cannot connect to http") as caught:
        await transport.open(Listener())
    assert not caught.value.maybe_executed


@pytest.mark.parametrize("url", ["http://no-such-host.invalid/", "https://localhost:1/"])
async def test_nowhere_to_connect_to(url: str) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect"):
        await HttpTransport(url, Limits()).open(Listener())


async def test_no_tls_there(peer: HttpPeer) -> None:
    transport = HttpTransport(peer.url.replace("http:", "https:"), Limits(), connect_timeout=1)
    with pytest.raises(ConnectionLost, match="cannot connect to https"):
        await transport.open(Listener())


async def test_a_server_that_went_away_and_came_back() -> None:
    async with http_peer() as first:
        first.on("tools/call")(call)
        async with wired(first) as (wire, heard):
            wire.send(modern_request(1, "tools/call", name="x"))
            await heard.answer(1)
            await first.stop()
            await eventually(lambda: not wire._endpoint.pool._kept)
            wire.send(modern_request(2, "tools/call", name="x"))
            failure = await heard.failure(2)
            assert "cannot connect" in str(failure)
            assert not failure.maybe_executed
            async with http_peer(first.port) as second:
                second.on("tools/call")(call)
                wire.send(modern_request(3, "tools/call", name="x"))
                await heard.answer(3)
            assert not heard.losses


CUTS = {
    "before the answer": b"",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-",
    "in a body with a length": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"jsonrpc"',
    "between chunks": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "in a stream": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n8\r\ndata: {}\r\n",
    "in a stream without an end": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: \n",
    "garbage": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    "an endless header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    "an endless tail": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 20_000,
}


@pytest.mark.parametrize("sent", CUTS.values(), ids=CUTS)
async def test_an_exchange_that_breaks_may_have_run(peer: HttpPeer, sent: bytes) -> None:
    @peer.on("tools/call")
    async def cut(request: Request) -> None:
        if request.message["id"] == 1:
            await request.raw(sent)
            request.writer.close()
        else:
            await request.result(CALLED)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        failure = await heard.failure(1)
        assert failure.maybe_executed
        wire.send(modern_request(2, "tools/call", name="x"))
        await heard.answer(2)
        assert not heard.losses


async def test_one_request_that_breaks_costs_no_other(peer: HttpPeer) -> None:
    gate = asyncio.Event()

    @peer.on("tools/call")
    async def each(request: Request) -> None:
        if request.message["id"] == 1:
            request.cut()
        else:
            await gate.wait()
            await request.result(CALLED)

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(2, "tools/call", name="x"))
        wire.send(modern_request(1, "tools/call", name="x"))
        await heard.failure(1)
        gate.set()
        await heard.answer(2)


async def test_the_receiver_has_to_be_a_clients(peer: HttpPeer) -> None:
    class Simple:
        def received(self, frames: list[Frame]) -> None: ...

        def ended(self) -> None: ...

        def lost(self, reason: Exception | None) -> None: ...

        def writable(self, flowing: bool) -> None: ...

    with pytest.raises(TypeError, match="Simple is not a `ClientReceiver`"):
        await HttpTransport(peer.url, Limits()).open(Simple())


async def test_a_message_without_a_description_is_not_sent(peer: HttpPeer) -> None:
    transport = HttpTransport(peer.url, Limits())
    await transport.open(Listener())
    with pytest.raises(TypeError, match="needs `about`"):
        transport.send(b"{}")
    await transport.close()
    assert not peer.requests


async def test_an_idle_connection_closed_by_the_server_is_not_used(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def once(request: Request) -> None:
        await request.result(CALLED)
        request.writer.close()

    async with wired(peer) as (wire, heard):
        for id in range(5):
            wire.send(modern_request(id, "tools/call", name="x"))
            await heard.answer(id)
            await eventually(lambda: not wire._exchanges and not wire._endpoint.pool._kept)
    assert peer.connections == 5


async def test_a_server_that_speaks_unasked_is_dropped(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def twice(request: Request) -> None:
        await request.result(CALLED)
        await request.result({"evil": True})

    async with wired(peer) as (wire, heard):
        for id in (1, 2):
            wire.send(modern_request(id, "tools/call", name="x"))
            assert (await heard.answer(id))["result"] == CALLED
            await eventually(lambda: not wire._exchanges and not wire._endpoint.pool._kept)
    assert peer.connections == 2


# Bounds


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_answer_over_the_bound(peer: HttpPeer, chunked: bool) -> None:
    @peer.on("tools/call")
    async def endless(request: Request) -> None:
        if chunked:
            await request.raw(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            while not request.gone.is_set():
                await request.chunk(b" " * 10_000)
        else:
            await request.respond(200, " " * 200_000)

    async with wired(peer, limits=Limits(max_message=100_000)) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "limit of 100000 bytes" in str(await heard.failure(1))


async def test_an_event_over_the_bound(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def endless(request: Request) -> None:
        await request.stream()
        await request.event({"method": "notifications/message", "params": {"data": "x" * 5000}})
        await request.event_result(CALLED)
        await request.end()

    async with wired(peer, limits=Limits(max_message=1000)) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "limit of 1000 bytes" in str(await heard.failure(1))
    assert heard.broken == ["event is over the limit of 1000 bytes"]


async def test_an_endless_stream_is_read_only_as_fast_as_it_is_taken(peer: HttpPeer) -> None:
    written = 0

    @peer.on("tools/call")
    async def endless(request: Request) -> None:
        nonlocal written
        await request.stream()
        while not request.gone.is_set():
            await request.event({"method": "notifications/message", "params": {"x": "y" * 10_000}})
            written += 10_000

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        await heard.until(lambda: len(heard.messages) > 10)
        wire.pause()
        before = await at_rest(lambda: written)
        seen = len(heard.messages)
        await turns()
        assert written == before
        assert len(heard.messages) == seen
        wire.resume()
        await heard.until(lambda: len(heard.messages) > seen + 10)


async def test_only_so_many_requests_at_once(peer: HttpPeer) -> None:
    running = most = 0
    all_there = asyncio.Event()

    @peer.on("tools/call")
    async def slow(request: Request) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 4:
            all_there.set()
        await all_there.wait()
        await asyncio.sleep(0.01)
        running -= 1
        await request.result(CALLED)

    async with wired(peer, max_exchanges=4) as (wire, heard):
        for id in range(20):
            wire.send(modern_request(id, "tools/call", name="x"))
        await asyncio.gather(*map(heard.answer, range(20)))
    assert most == 4
    assert peer.connections <= 5


async def test_subscriptions_take_no_place_of_calls(peer: HttpPeer) -> None:
    peer.on("tools/call")(call)

    @peer.on("subscriptions/listen")
    async def listen(request: Request) -> None:
        await request.stream()
        await request.gone.wait()

    async with wired(peer, max_exchanges=1) as (wire, heard):
        for id in (1, 2, 3):
            wire.send(modern_request(id, "subscriptions/listen"))
        await peer.until_asked("subscriptions/listen", 3)
        wire.send(modern_request(4, "tools/call", name="x"))
        await heard.answer(4)
        assert not [each for each in heard.messages if each.get("id") in (1, 2, 3)], "all are open"


# Redirects


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed(peer: HttpPeer, status: int) -> None:
    @peer.on("tools/call")
    async def move(request: Request) -> None:
        if request.target == "/mcp":
            await request.respond(status, Location="/mcp/?x=1")
        else:
            await request.result({"at": request.target})

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert (await heard.answer(1))["result"] == {"at": "/mcp/?x=1"}
    assert peer.requests[0].body == peer.requests[1].body


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/", "http://localhost:{port}/", "https://127.0.0.1:{port}/", "//evil/"],
)
async def test_a_redirect_to_another_origin_is_not(peer: HttpPeer, location: str) -> None:
    @peer.on("tools/call")
    async def move(request: Request) -> None:
        await request.respond(307, Location=location.format(port=peer.port))

    async with wired(peer, authorizer=BearerToken("secret")) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "points to" in (await heard.answer(1))["error"]["message"]
    assert len(peer.requests) == 1


async def test_redirects_in_a_circle_end(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def move(request: Request) -> None:
        await request.respond(307, Location="/mcp")

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert "redirects" in str(await heard.failure(1))
    assert len(peer.requests) == 5


# Giving up


@pytest.mark.parametrize("begun", [False, True])
async def test_giving_up_a_modern_request_closes_its_response(peer: HttpPeer, begun: bool) -> None:
    told = asyncio.Event()

    @peer.on("tools/call")
    async def wait(request: Request) -> None:
        if begun:
            await request.stream()
        await request.gone.wait()
        told.set()

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        await peer.until_asked("tools/call")
        await turns()
        wire.send(notification("notifications/cancelled", requestId=1))
        await asyncio.wait_for(told.wait(), 30)
        wire.send(notification("notifications/cancelled", requestId=1))
        wire.send(notification("notifications/cancelled", requestId=77))
        await turns()
    assert not heard.messages
    assert not heard.failures
    assert len(peer.requests) == 1


async def test_giving_up_a_legacy_request_is_said(peer: HttpPeer) -> None:
    legacy(peer)
    told = asyncio.Event()

    @peer.on("tools/call")
    async def wait(request: Request) -> None:
        await request.gone.wait()
        told.set()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        await peer.until_asked("tools/call")
        wire.send(notification("notifications/cancelled", requestId=1))
        await asyncio.wait_for(told.wait(), 30)
        assert not wire._exchanges
    (cancelled,) = peer.asked("notifications/cancelled")
    assert cancelled.message["params"] == {"requestId": 1}


async def test_giving_up_a_request_that_has_not_left(peer: HttpPeer) -> None:
    legacy(peer)
    gate = asyncio.Event()

    @peer.on("tools/call")
    async def wait(request: Request) -> None:
        await gate.wait()
        await request.result(CALLED)

    async with wired(peer, max_exchanges=1) as (wire, heard):
        await in_session(wire, heard)
        for id in (1, 2, 3):
            wire.send(request(id, "tools/call", name="x"))
        wire.send(notification("notifications/cancelled", requestId=3))
        await peer.until_asked("tools/call")
        wire.send(notification("notifications/cancelled", requestId=2))
        wire.send(notification("notifications/roots/list_changed"))
        await peer.until_asked("notifications/roots/list_changed")
        wire.send(request(4, "tools/call", name="x"))
        wire.send(notification("notifications/cancelled", requestId=1))
        gate.set()
        await heard.answer(4)
        await eventually(lambda: not wire._exchanges and not wire._order._unsent)
    assert [each.message["id"] for each in peer.asked("tools/call")] == [1, 4]
    assert len(peer.asked("notifications/cancelled")) == 1


async def test_a_notification_leaves_after_the_requests_before_it(
    peer: HttpPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.on("tools/call")(call)
    left: list[str] = []
    send = Http1Connection.send

    def noted(connection: Http1Connection, method: str, target: str, *rest: Any) -> None:
        left.append(json.loads(rest[-1])["method"])
        send(connection, method, target, *rest)

    post = Http1Connection.post

    def noted_post(connection: Http1Connection, head: bytes, body: bytes, told: Any) -> None:
        left.append(json.loads(body)["method"])
        post(connection, head, body, told)

    monkeypatch.setattr(Http1Connection, "send", noted)
    monkeypatch.setattr(Http1Connection, "post", noted_post)
    async with wired(peer) as (wire, heard):
        for id in range(20):
            wire.send(modern_request(id, "tools/call", name="x"))
        wire.send(notification("notifications/roots/list_changed"))
        await peer.until_asked("notifications/roots/list_changed")
        await asyncio.gather(*map(heard.answer, range(20)))
    assert left == ["tools/call"] * 20 + ["notifications/roots/list_changed"]


async def test_a_subscription_that_drops_is_a_failed_request(peer: HttpPeer) -> None:
    @peer.on("subscriptions/listen")
    async def listen(request: Request) -> None:
        await request.stream()
        await request.event({"method": "notifications/subscriptions/acknowledged", "params": {}})
        await request.end()

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "subscriptions/listen"))
        assert "ended the stream before the answer" in str(await heard.failure(1))
    assert heard.messages[0]["method"] == "notifications/subscriptions/acknowledged"


# Sessions


async def test_a_session_from_beginning_to_end(peer: HttpPeer) -> None:
    legacy(peer, "s-42", protocolVersion="2025-06-18")
    peer.on("tools/call")(call)
    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        await heard.answer(1)
        await peer.until_asked("GET")
    start, *rest = peer.requests
    assert "mcp-session-id" not in start.headers
    assert "mcp-protocol-version" not in start.headers
    assert {each.method for each in rest} == {"POST", "GET", "DELETE"}
    for each in rest:
        assert each.headers["mcp-session-id"] == "s-42"
        assert each.headers["mcp-protocol-version"] == "2025-06-18"
    (get,) = peer.asked("GET")
    assert get.headers["accept"] == "text/event-stream"
    assert rest[-1].method == "DELETE"


async def test_a_session_named_in_a_stream(peer: HttpPeer) -> None:
    @peer.on("initialize")
    async def initialize(request: Request) -> None:
        await request.stream(Mcp_Session_Id="s-1")
        await request.event_result({"protocolVersion": "2025-03-26"})
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
    assert peer.asked("notifications/initialized")[0].headers["mcp-session-id"] == "s-1"
    assert peer.asked("DELETE")[0].headers["mcp-protocol-version"] == "2025-03-26"


@pytest.mark.parametrize("session", ["a b", "é", ""])
async def test_a_session_id_no_header_can_carry_is_none(peer: HttpPeer, session: str) -> None:
    legacy(peer, session)
    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await peer.until_asked("GET")
    assert all("mcp-session-id" not in each.headers for each in peer.requests)
    assert not peer.asked("DELETE")


async def test_nothing_overtakes_the_start_of_a_session(peer: HttpPeer) -> None:
    legacy(peer)
    peer.on("tools/call")(call)
    ready = False

    @peer.on("notifications/initialized")
    async def initialized(request: Request) -> None:
        nonlocal ready
        await turns()
        ready = True
        await request.respond(202)

    @peer.on("tools/list")
    async def listing(request: Request) -> None:
        await request.result({"ready": ready})

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/list"))
        assert (await heard.answer(1))["result"] == {"ready": True}


async def test_notifications_arrive_in_order(peer: HttpPeer) -> None:
    @peer.on("notifications/progress")
    async def progress(request: Request) -> None:
        await asyncio.sleep(0.02 / request.message["params"]["progress"])
        await request.respond(202)

    async with wired(peer) as (wire, _):
        for number in range(1, 10):
            wire.send(notification("notifications/progress", progress=number))
    seen = [each.message["params"]["progress"] for each in peer.asked("notifications/progress")]
    assert seen == list(range(1, 10))


async def test_what_is_refused_for_now_is_sent_again(peer: HttpPeer) -> None:
    times = {"busy": 0, "answer": 0}

    @peer.on("notifications/x")
    async def busy(request: Request) -> None:
        times["busy"] += 1
        status = 503 if times["busy"] < 3 else 202
        await request.respond(status, **{"Retry-After": "0"})

    @peer.on("")
    async def answered(request: Request) -> None:
        times["answer"] += 1
        match times["answer"]:
            case 1:
                await request.respond(503, **{"Retry-After": "0"})
            case 2:
                request.cut()
            case _:
                await request.respond(202)

    async with wired(peer) as (wire, heard):
        wire.send(notification("notifications/x"))
        wire.send(b'{"jsonrpc":"2.0","id":7,"result":{}}')
        await eventually(lambda: (times["busy"], times["answer"]) == (3, 3))
    assert heard.losses == [None]


async def test_a_standing_stream_whose_position_is_gone_begins_anew(peer: HttpPeer) -> None:
    legacy(peer)
    named: list[str | None] = []

    @peer.on("GET")
    async def stream(request: Request) -> None:
        named.append(request.headers.get("last-event-id"))
        if len(named) == 2:
            await request.respond(400, "Last-Event-ID names no event that is still kept")
            return
        await request.stream()
        if len(named) == 1:
            await request.chunk("id: s.1\ndata: \n\n")
            await request.end()
        else:
            await request.gone.wait()

    async with wired(peer, reconnect_delay=0.01) as (wire, heard):
        await in_session(wire, heard)
        await eventually(lambda: named == [None, "s.1", None])


async def test_a_notification_that_is_refused_is_logged(
    peer: HttpPeer, caplog: pytest.LogCaptureFixture
) -> None:
    @peer.on("notifications/x")
    async def refuse(request: Request) -> None:
        await request.respond(400, "no thanks", kind="text/plain")

    @peer.on("notifications/y")
    async def cut(request: Request) -> None:
        request.cut()

    with caplog.at_level(logging.WARNING, "mcpearl.http"):
        async with wired(peer) as (wire, heard):
            wire.send(notification("notifications/x"))
            wire.send(notification("notifications/y"))
    assert "`notifications/x` was refused with HTTP status 400: no thanks" in caplog.text
    assert "`notifications/y` was not delivered" in caplog.text
    assert heard.losses == [None]


async def test_a_session_the_server_forgot(peer: HttpPeer) -> None:
    legacy(peer)
    waiting = asyncio.Event()

    @peer.on("tools/call")
    async def forget(request: Request) -> None:
        if request.message["id"] == 1:
            waiting.set()
            await request.gone.wait()
        else:
            await request.respond(404, {"jsonrpc": "2.0", "error": {"code": -1, "message": "?"}})

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        await waiting.wait()
        wire.send(request(2, "tools/call", name="x"))
        failure = await heard.failure(2)
        assert not failure.maybe_executed
        await heard.until(lambda: heard.losses)
        (reason,) = heard.losses
        assert isinstance(reason, ConnectionLost)
        assert reason.maybe_executed
        wire.send(request(3, "tools/call", name="x"))
    assert 1 not in heard.failures
    assert not peer.asked("DELETE")


async def test_a_server_that_will_not_hear_goodbye(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("DELETE")
    async def ignore(request: Request) -> None:
        await request.gone.wait()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await peer.until_asked("GET")
        begun = time.monotonic()
    assert time.monotonic() - begun < 30


# The standing stream


async def test_what_the_server_says_on_its_own(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("GET")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.event({"id": 9, "method": "roots/list"})
        await request.gone.wait()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await heard.until(lambda: len(heard.messages) == 2)
        assert heard.messages[-1]["method"] == "roots/list"
        wire.send(b'{"jsonrpc":"2.0","id":9,"result":{"roots":[]}}')
        await eventually(lambda: any("result" in each.message for each in peer.requests))
    answer = next(each for each in peer.requests if "result" in each.message)
    assert "mcp-method" not in answer.headers


async def test_the_standing_stream_comes_back_where_it_was(peer: HttpPeer) -> None:
    legacy(peer)
    times: list[float] = []

    @peer.on("GET")
    async def stream(request: Request) -> None:
        times.append(time.monotonic())
        await request.stream()
        match len(times):
            case 1:
                await request.chunk("retry: 150\nid: e-1\ndata:\n\n")
                await request.event({"method": "notifications/a"}, id="e-2")
                await request.end()
            case 2:
                await request.event({"method": "notifications/b"}, id="e-3")
                await request.chunk("id: e-4\ndata: cut off")
                request.cut()
            case _:
                await request.event({"method": "notifications/c"})
                await request.gone.wait()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await heard.until(lambda: len(heard.messages) == 4)
    assert [each["method"][-1] for each in heard.messages[1:]] == ["a", "b", "c"]
    ids = [each.headers.get("last-event-id") for each in peer.asked("GET")]
    assert ids == [None, "e-2", "e-3"]
    assert times[1] - times[0] > 0.1


async def test_the_standing_stream_is_tried_again_after_failures(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("GET")
    async def stream(request: Request) -> None:
        match len(peer.asked("GET")):
            case 1:
                await request.respond(503)
            case 2:
                request.cut()
            case _:
                await request.stream()
                await request.event({"method": "notifications/a"})
                await request.gone.wait()

    async with wired(peer, reconnect_delay=0.02) as (wire, heard):
        await in_session(wire, heard)
        await heard.until(lambda: len(heard.messages) == 2)


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_a_server_without_a_standing_stream_is_left_alone(
    peer: HttpPeer, status: int
) -> None:
    legacy(peer, session=None)

    @peer.on("GET")
    async def refuse(request: Request) -> None:
        await request.respond(status)

    async with wired(peer, reconnect_delay=10) as (wire, heard):
        await in_session(wire, heard)
        await peer.until_asked("GET")
        await turns()
        assert not heard.losses
    assert len(peer.asked("GET")) == 1


# Streams that break


async def test_a_broken_stream_is_resumed(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk("retry: 30\nid: p-0\ndata:\n\n")
        await request.event({"method": "notifications/progress", "params": {"at": 1}}, id="p-1")
        request.cut()

    @peer.on("GET")
    async def resume(request: Request) -> None:
        match request.headers.get("last-event-id"):
            case None:
                await request.respond(405)
            case "p-1":
                await request.stream()
                await request.event({"method": "notifications/progress", "params": {}}, id="p-2")
                await request.end()
            case "p-2":
                await request.stream()
                await request.event({"id": 1, "result": CALLED}, id="p-3")
                await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        assert (await heard.answer(1))["result"] == CALLED
    assert len(peer.asked("tools/call")) == 1


async def test_a_server_may_hang_up_and_be_polled(peer: HttpPeer) -> None:
    """SEP-1699: the first event primes, `retry` says when to come back."""
    legacy(peer)
    hung_up = returned = 0.0

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        nonlocal hung_up
        await request.stream()
        await request.chunk("id: prime\nretry: 200\ndata: \n\n")
        await request.end()
        hung_up = time.monotonic()

    @peer.on("GET")
    async def resume(request: Request) -> None:
        nonlocal returned
        if "last-event-id" not in request.headers:
            await request.respond(405)
            return
        returned = time.monotonic()
        assert request.headers["last-event-id"] == "prime"
        await request.stream()
        await request.event({"id": 1, "result": CALLED})
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        await heard.answer(1)
    assert 0.15 < returned - hung_up < 1


@pytest.mark.parametrize("status", [400, 405, 500])
async def test_a_stream_that_cannot_be_resumed(peer: HttpPeer, status: int) -> None:
    legacy(peer)

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk("id: 1\ndata:\n\n")
        request.cut()

    @peer.on("GET")
    async def refuse(request: Request) -> None:
        await request.respond(status if "last-event-id" in request.headers else 405)

    async with wired(peer, reconnect_delay=0.01) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        failure = await heard.failure(1)
        assert failure.maybe_executed
        assert f"could not be resumed: HTTP status {status}" in str(failure)
        assert not heard.losses


async def test_a_stream_without_ids_is_not_resumed(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.event({"method": "notifications/progress"})
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        assert (await heard.failure(1)).maybe_executed


async def test_a_modern_stream_is_not_resumed(peer: HttpPeer) -> None:
    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.event({"method": "notifications/progress"}, id="1")
        await request.end()

    async with wired(peer) as (wire, heard):
        wire.send(modern_request(1, "tools/call", name="x"))
        assert (await heard.failure(1)).maybe_executed
    assert not peer.asked("GET")


async def test_giving_up_while_waiting_to_resume(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk("id: 1\nretry: 60000\ndata:\n\n")
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(1, "tools/call", name="x"))
        await peer.until_asked("tools/call")
        await turns()
        wire.send(notification("notifications/cancelled", requestId=1))
        await peer.until_asked("notifications/cancelled")
        await eventually(lambda: not wire._exchanges)


# HTTP+SSE of 2024-11-05


def old(peer: HttpPeer, endpoint: str = "/messages?session=7", status: int = 405) -> None:
    streams: list[Request] = []

    @peer.on("GET")
    async def sse(request: Request) -> None:
        await request.stream()
        await request.chunk(f"event: endpoint\ndata: {endpoint}\n\n")
        streams.append(request)
        await request.gone.wait()

    @peer.on("POST")
    async def post(request: Request) -> None:
        if request.target == "/mcp":
            await request.respond(status, "Method Not Allowed", kind="text/plain")
            return
        await request.respond(202, "Accepted", kind="text/plain")
        if request.rpc == "initialize":
            result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}
            info = {"serverInfo": {"name": "old", "version": "1"}}
            await streams[0].event({"id": request.message["id"], "result": result | info})
        elif request.rpc == "tools/call":
            if request.message["params"]["name"] == "die":
                streams[0].cut()
            else:
                await streams[0].event({"id": request.message["id"], "result": CALLED})


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_of_http_and_sse(peer: HttpPeer, status: int) -> None:
    old(peer, status=status)
    async with Client(HttpTransport(peer.url, Limits()), validate_output=False) as client:
        assert client.protocol_version == "2024-11-05"
        result = await client.call_tool("x", {"a": 1})
        assert result.content[0].text == "done"
    targets = [(each.method, each.target) for each in peer.requests]
    assert targets == [
        ("POST", "/mcp"),
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        *[("POST", "/messages?session=7")] * 3,
    ]


async def test_the_end_of_the_stream_of_http_and_sse_is_the_end(peer: HttpPeer) -> None:
    old(peer)
    async with Client(HttpTransport(peer.url, Limits()), validate_output=False) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.call_tool("die")
        assert caught.value.maybe_executed


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/m", "//elsewhere/m", "http://[bad/"])
async def test_an_endpoint_elsewhere_is_not_used(peer: HttpPeer, endpoint: str) -> None:
    old(peer, endpoint)
    with pytest.raises(McpError, match="HTTP status 405"):
        await Client(HttpTransport(peer.url, Limits())).connect()


async def test_a_stream_that_names_no_endpoint(peer: HttpPeer) -> None:
    legacy(peer)

    @peer.on("initialize")
    async def refuse(request: Request) -> None:
        await request.respond(404)

    @peer.on("GET")
    async def silent(request: Request) -> None:
        await request.stream()
        await request.chunk("event: message\ndata: {}\n\n")
        await request.gone.wait()

    transport = HttpTransport(peer.url, Limits(), connect_timeout=2)
    with pytest.raises(McpError, match="HTTP status 404"):
        await Client(transport).connect()


# With everything above


async def test_a_client_finds_the_modern_era(peer: HttpPeer) -> None:
    modern(peer)
    peer.on("tools/call")(call)
    async with Client(HttpTransport(peer.url, Limits()), validate_output=False) as client:
        assert client.era == "modern"
        await client.call_tool("x")
    assert [each.rpc for each in peer.requests] == ["server/discover", "tools/call"]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422, 500, 501])
@pytest.mark.parametrize("body", ["", "Bad Request", '{"error":"no session"}'])
async def test_a_client_falls_back_to_the_legacy_era(
    peer: HttpPeer, status: int, body: str
) -> None:
    legacy(peer)

    @peer.on("server/discover")
    async def refuse(request: Request) -> None:
        await request.respond(status, body)

    async with Client(HttpTransport(peer.url, Limits())) as client:
        assert client.protocol_version == "2025-11-25"


async def test_a_client_does_not_fall_back_from_a_modern_error(peer: HttpPeer) -> None:
    @peer.on("server/discover")
    async def refuse(request: Request) -> None:
        error = {"code": -32022, "message": "no", "data": {"supported": ["2099-01-01"]}}
        await request.respond(400, {"jsonrpc": "2.0", "id": 1, "error": error})

    with pytest.raises(McpError, match="no"):
        await Client(HttpTransport(peer.url, Limits())).connect()
    assert not peer.asked("initialize")


async def test_a_client_that_gives_up_waiting(peer: HttpPeer) -> None:
    modern(peer)
    told = asyncio.Event()

    @peer.on("tools/call")
    async def wait(request: Request) -> None:
        await request.gone.wait()
        told.set()

    async with Client(HttpTransport(peer.url, Limits())) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("x", timeout=0.1)
        await asyncio.wait_for(told.wait(), 30)


async def test_a_call_that_broke_is_an_error_of_that_call(peer: HttpPeer) -> None:
    modern(peer)

    @peer.on("tools/call")
    async def cut(request: Request) -> None:
        if request.headers["mcp-name"] == "die":
            request.cut()
        else:
            await request.result(CALLED)

    async with Client(HttpTransport(peer.url, Limits()), validate_output=False) as client:
        with pytest.raises(McpearlError, match="closed the connection"):
            await client.call_tool("die")
        await client.call_tool("x")


async def test_closing_ends_what_is_under_way(peer: HttpPeer) -> None:
    modern(peer)

    @peer.on("tools/call")
    async def wait(request: Request) -> None:
        await request.gone.wait()

    async with Client(HttpTransport(peer.url, Limits())) as client:
        calls = [asyncio.ensure_future(client.call_tool("x")) for _ in range(3)]
        await peer.until_asked("tools/call", 3)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3


async def test_closing_twice_and_before_opening() -> None:
    transport = HttpTransport("http://127.0.0.1:1/", Limits())
    transport.send(notification("notifications/x"))
    await transport.close()
    await transport.close()


# Requests that are sent without a task


async def test_a_request_sent_at_once_outlives_the_session_it_was_sent_in(peer: HttpPeer) -> None:
    """Another request finds the session gone: the one before it still gets its answer, once."""
    legacy(peer)
    go_on, asked = asyncio.Event(), []

    @peer.on("tools/call")
    async def called(request: Request) -> None:
        asked.append(request.message["id"])
        if request.message["id"] == 2:
            await request.respond(404)
            return
        if request.message["id"] == 1:
            await go_on.wait()
        await request.result(CALLED)

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        wire.send(request(3, "tools/call", name="first"))  # which waits for the session to be open
        await heard.answer(3)
        await eventually(lambda: not wire._exchanges)
        wire.send(request(1, "tools/call", name="slow"))
        assert wire._exchanges[1].begun is not None
        await eventually(lambda: asked == [3, 1])
        wire.send(request(2, "tools/call", name="quick"))
        await eventually(lambda: wire._retiring is not None)
        go_on.set()
        assert (await heard.answer(1))["result"] == CALLED
        await eventually(lambda: heard.losses)
    assert asked == [3, 1, 2]


async def test_a_request_sent_at_once_is_given_up_when_it_is_closed(peer: HttpPeer) -> None:
    gone = asyncio.Event()

    @peer.on("tools/call")
    async def called(request: Request) -> None:
        await request.gone.wait()
        gone.set()

    for end in ("cancel", "close"):
        gone.clear()
        async with wired(peer) as (wire, _):
            wire.send(modern_request(1, "tools/call", name="slow"))
            exchange = wire._exchanges[1]
            assert exchange.begun is not None
            await peer.until_asked("tools/call")
            if end == "cancel":
                wire._give_up(exchange)
                assert not wire._exchanges
                await gone.wait()
        await gone.wait()
        peer.requests.clear()
