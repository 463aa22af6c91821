"""HTTP/2 below Streamable HTTP, against a server that sends what it should and what it should not."""

import asyncio
import gc
import random
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.net.http_client.http2 import _PONG, _QUIET
from mcpearl.net.http_client.pool import _MAX_IDLE, ConnectionPool
from mcpearl.net.tls import Tls
from mcpearl.testing.clock import MovableClock
from tests.net.http_client.http2_peer import Asked, Connection, Http2Peer, http2_peer
from tests.transports.http_peer import Request, http_peer
from tests.transports.proxies import proxy
from tests.waiting import at_rest, eventually, turns

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
SECONDS = 30
MODULE = "mcpearl.net.http_client.http2"


@asynccontextmanager
async def linked(
    certificate: Path, connect_timeout: float = 10.0, **settings: int
) -> AsyncIterator[tuple[Http2Peer, ConnectionPool]]:
    """Run a server with these settings, and a wire to it."""
    async with http2_peer(certificate, **settings) as peer:
        tls = tls_context(Tls(certificate))
        wire = ConnectionPool(peer.url, tls=tls, connect_timeout=connect_timeout)
        try:
            yield peer, wire
        finally:
            wire.close()


async def ask(
    wire: ConnectionPool, target: str = "/", body: bytes = b"", headers: Any = ()
) -> HttpExchange:
    """Ask and wait for the head of the answer."""
    stream = await wire.acquire()
    try:
        stream.send("POST" if body else "GET", target, list(headers), body)
        async with asyncio.timeout(SECONDS):
            await stream.answered()
    except BaseException:
        stream.release()
        raise
    return stream


async def whole(stream: HttpExchange) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(SECONDS):
            while part := await stream.chunk():
                body += part
    finally:
        stream.release()
    return body


async def fetch(wire: ConnectionPool, target: str = "/", body: bytes = b"") -> bytes:
    return await whole(await ask(wire, target, body))


async def failure(work: Any) -> ExchangeFailed:
    with pytest.raises(ExchangeFailed) as caught:
        await asyncio.wait_for(work, SECONDS)
    return caught.value


# What one exchange sees


async def test_an_exchange(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/echo?a=b")
        async def echo(asked: Asked) -> None:
            await asked.ended.wait()
            await asked.answer(asked.body, 201, content_type="text/plain", x_twice="1")

        given = [("X-Given", " as it is "), ("Authorization", "Bearer x"), ("Connection", "close")]
        stream = await ask(wire, "/echo?a=b", b"body", given)
        assert (stream.status, stream.headers["content-type"]) == (201, "text/plain")
        assert await whole(stream) == b"body"
        assert peer.asked[0].headers == {
            ":method": "POST",
            ":scheme": "https",
            ":authority": f"127.0.0.1:{peer.port}",
            ":path": "/echo?a=b",
            "x-given": "as it is",
            "authorization": "Bearer x",
            "content-length": "4",
        }


async def test_many_at_once_share_one_connection(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        assert await asyncio.gather(*(fetch(wire) for _ in range(50))) == [b"hello"] * 50
        assert await fetch(wire) == b"hello"
        assert peer.streams == [51]


@pytest.mark.parametrize("begun", [False, True])
async def test_giving_up_is_told_at_once(certificate: Path, begun: bool) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/slow")
        async def slow(asked: Asked) -> None:
            if begun:
                asked.head(200)
                await asked.data(b"x" * 100)

        stream = await wire.acquire()
        stream.send("GET", "/slow", [])
        if begun:
            await stream.answered()
        (asked,) = await peer.until_asked()
        stream.release()
        assert await asyncio.wait_for(asked.cancelled, SECONDS) == ErrorCodes.CANCEL
        assert await fetch(wire) == b"hello"
        assert len(peer.connections) == 1


async def test_a_stream_given_back_unused_leaves_no_trace(certificate: Path) -> None:
    async with linked(certificate, MAX_CONCURRENT_STREAMS=1) as (peer, wire):
        (await wire.acquire()).release()
        assert await fetch(wire) == b"hello"
        assert peer.streams == [1]


@pytest.mark.parametrize("bad", ["a\r\nb", "a\nb", "a\0b"])
async def test_nothing_ends_a_header_early(certificate: Path, bad: str) -> None:
    async with linked(certificate) as (peer, wire):
        for headers in ([("x", bad)], [(bad, "x")], [(":path", "/other")], [("", "x")]):
            with pytest.raises(ValueError, match="header"):
                await ask(wire, headers=headers)
        assert await fetch(wire) == b"hello"
        assert len(peer.asked) == 1


async def test_answers_that_announce_and_trailers_are_passed_over(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/much")
        async def much(asked: Asked) -> None:
            asked.head(103, link="</style.css>")
            asked.head(200)
            await asked.data(b"body")
            asked.host.h2.send_headers(asked.number, [("x-late", "1")], end_stream=True)
            asked.host.flush()

        stream = await ask(wire, "/much")
        assert (stream.status, stream.headers) == (200, {})
        assert await whole(stream) == b"body"


async def test_the_server_answers_before_it_read_everything(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        peer.takes = False

        @peer.on("/big")
        async def big(asked: Asked) -> None:
            await asked.answer(b"too big", 413)
            asked.reset(ErrorCodes.NO_ERROR)

        stream = await ask(wire, "/big", b"x" * 1_000_000)
        assert stream.status == 413
        assert await whole(stream) == b"too big"
        assert await fetch(wire) == b"hello"


# Which HTTP is spoken


async def test_a_server_without_http2_is_spoken_to_in_http1(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with http_peer(tls=context) as peer:

        @peer.on("GET")
        async def get(request: Request) -> None:
            await peer.until_asked("GET", 4)  # all at once
            await request.respond(200, b"one")

        url = f"https://127.0.0.1:{peer.port}"
        wire = ConnectionPool(url, tls=tls_context(Tls(certificate)))
        assert await asyncio.gather(*(fetch(wire) for _ in range(4))) == [b"one"] * 4
        assert peer.connections == 4
        wire.close()
        tls = tls_context(Tls(certificate), http2=True)
        error = await failure(ConnectionPool(url, tls=tls, http2=True).acquire())
        assert "HTTP/2" in error.reason
        assert not error.sent


async def test_http2_turned_off(certificate: Path) -> None:
    async with http2_peer(certificate) as peer:
        wire = ConnectionPool(peer.url, tls=tls_context(Tls(certificate), http2=False))
        connection = await wire.acquire()
        assert isinstance(connection, Http1Connection)
        connection.drop()
        assert not peer.asked
    with pytest.raises(ValueError, match="https"):
        ConnectionPool("http://127.0.0.1", http2=True)


async def test_through_a_proxy(certificate: Path) -> None:
    async with http2_peer(certificate) as peer, proxy() as (port, heads):
        tls = tls_context(Tls(certificate))
        wire = ConnectionPool(peer.url, tls=tls, proxy=f"http://127.0.0.1:{port}")
        assert await asyncio.gather(*(fetch(wire) for _ in range(10))) == [b"hello"] * 10
        wire.close()
        assert [head.split("\r\n")[0] for head in heads] == [
            f"CONNECT 127.0.0.1:{peer.port} HTTP/1.1"
        ]


def test_h2_is_loaded_only_when_it_is_spoken() -> None:
    code = "import sys, mcpearl.transports.http_client.transport; print('h2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


# Bounds: how much is taken, and how much is sent


async def test_a_slow_reader_holds_up_nobody_and_piles_up_nothing(certificate: Path) -> None:
    sent = 0
    async with linked(certificate) as (peer, wire):

        @peer.on("/endless")
        async def endless(asked: Asked) -> None:
            nonlocal sent
            asked.head()
            while True:
                await asked.data(b"x" * 16_000)
                sent += 16_000

        @peer.on("/large")
        async def large(asked: Asked) -> None:
            await asked.answer(b"y" * 3_000_000)

        unread = [await ask(wire, "/endless") for _ in range(8)]
        assert await fetch(wire, "/large") == b"y" * 3_000_000
        before = await at_rest(lambda: sent)
        assert before <= 8 * 256 * 1024
        for _ in range(4):  # it goes on where it is read
            await unread[0].chunk()
        await eventually(lambda: sent > before)
        for each in unread:
            each.release()
        assert await fetch(wire, "/large") == b"y" * 3_000_000
        assert len(peer.connections) == 1


async def test_a_window_of_one_byte(certificate: Path) -> None:
    async with linked(certificate, INITIAL_WINDOW_SIZE=1) as (peer, wire):

        @peer.on("/echo")
        async def echo(asked: Asked) -> None:
            await asked.ended.wait()
            await asked.answer(asked.body)

        assert await fetch(wire, "/echo", b"z" * 200) == b"z" * 200


async def test_windows_that_open_late_and_settings_that_change(certificate: Path) -> None:
    async with linked(certificate, INITIAL_WINDOW_SIZE=0) as (peer, wire):
        got: dict[str, Asked] = {}

        async def take(asked: Asked) -> None:
            got[asked.path] = asked
            await asked.ended.wait()
            await asked.answer(str(len(asked.body)).encode())

        for path in ("/a", "/b"):
            peer.on(path)(take)
        work = [asyncio.ensure_future(fetch(wire, p, b"x" * 100_000)) for p in ("/a", "/b")]
        await peer.until_asked(2)
        await turns()
        assert [asked.body for asked in got.values()] == [b"", b""]
        host = peer.connections[0]
        host.set(INITIAL_WINDOW_SIZE=70_000)
        await eventually(lambda: all(len(asked.body) > 10 for asked in got.values()))
        host.set(INITIAL_WINDOW_SIZE=10)  # less than was sent already
        await turns()
        host.set(INITIAL_WINDOW_SIZE=200_000)
        assert await asyncio.gather(*work) == [b"100000", b"100000"]


async def test_a_window_that_opens_as_the_stream_ends(certificate: Path) -> None:
    async with linked(certificate, INITIAL_WINDOW_SIZE=0) as (peer, wire):

        @peer.on("/late")
        async def late(asked: Asked) -> None:
            asked.host.frames(
                WindowUpdateFrame(asked.number, window_increment=10_000),
                RstStreamFrame(asked.number, error_code=ErrorCodes.REFUSED_STREAM),
            )

        beside = asyncio.ensure_future(fetch(wire, "/never"))
        error = await failure(fetch(wire, "/late", b"x" * 50_000))
        assert "REFUSED_STREAM" in error.reason
        assert not error.sent
        assert await fetch(wire) == b"hello"
        assert len(peer.connections) == 1
        beside.cancel()


async def test_two_uploads_take_turns(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        peer.takes = False  # so that only the first window of the connection is used: 65,535

        @peer.on("/take")
        async def take(asked: Asked) -> None:
            await eventually(lambda: sum(len(each.body) for each in peer.asked[1:]) >= 65_535)
            await asked.answer(b"done")

        assert await fetch(wire) == b"hello"
        streams = [await wire.acquire() for _ in range(2)]
        wire._shared[0].pause_writing()
        for each in streams:
            each.send("POST", "/take", [], b"x" * 1_000_000)
        wire._shared[0].resume_writing()
        for each in streams:
            await asyncio.wait_for(each.answered(), SECONDS)
            each.release()
        first, second = (len(asked.body) for asked in peer.asked[1:])
        assert first + second == 65_535
        assert abs(first - second) <= 16_384


async def test_only_so_many_streams_as_the_server_takes(certificate: Path) -> None:
    at_once = highest = 0
    all_there = asyncio.Event()
    async with linked(certificate, MAX_CONCURRENT_STREAMS=2) as (peer, wire):

        @peer.on("/work")
        async def work(asked: Asked) -> None:
            nonlocal at_once, highest
            at_once += 1
            highest = max(highest, at_once)
            if at_once == 16:
                all_there.set()
            await all_there.wait()
            await turns(10)
            at_once -= 1
            await asked.answer(b"done")

        answers = await asyncio.gather(*(fetch(wire, "/work") for _ in range(60)))
        assert answers == [b"done"] * 60
        assert len(peer.connections) == 8
        assert highest == 16
        assert sum(peer.streams) == 60


async def test_who_waits_for_a_stream_can_give_up(certificate: Path) -> None:
    async with linked(certificate, MAX_CONCURRENT_STREAMS=1) as (peer, wire):
        taken = []
        for number in range(8):
            taken.append(await wire.acquire())
            taken[-1].send("GET", "/never", [])
            await peer.until_asked(number + 1)
        waiting = [asyncio.ensure_future(wire.acquire()) for _ in range(3)]
        await turns()
        assert not any(each.done() for each in waiting)
        waiting[0].cancel()
        taken[0].release()
        done, _ = await asyncio.wait(waiting[1:], timeout=SECONDS, return_when="FIRST_COMPLETED")
        assert len(done) == 1
        assert len(peer.connections) == 8
        for each in waiting:
            each.cancel()
        for each in [*taken, done.pop().result()]:
            each.release()


async def test_a_server_that_takes_no_streams_for_now(certificate: Path) -> None:
    async with linked(certificate, MAX_CONCURRENT_STREAMS=0) as (peer, wire):
        work = asyncio.ensure_future(fetch(wire))
        await eventually(lambda: peer.connections)
        await turns()
        assert not work.done()
        assert len(peer.connections) == 1
        peer.connections[0].set(MAX_CONCURRENT_STREAMS=5)
        assert await asyncio.wait_for(work, SECONDS) == b"hello"


async def test_headers_the_server_does_not_want(certificate: Path) -> None:
    async with linked(certificate, MAX_HEADER_LIST_SIZE=1000) as (peer, wire):
        error = await failure(ask(wire, headers=[("x-large", "x" * 1000)]))
        assert "over the 1000 bytes" in error.reason
        assert not error.sent
        assert await fetch(wire) == b"hello"
        assert len(peer.asked) == 1


async def test_a_long_header_travels_in_several_frames(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        value = "".join(random.choices("abcdefgh", k=40_000))
        stream = await ask(wire, headers=[("x-large", value)])
        stream.release()
        assert peer.asked[0].headers["x-large"] == value


# The server ends a stream, or takes its leave


async def test_a_refused_stream_was_not_processed(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/refused")
        async def refused(asked: Asked) -> None:
            asked.reset(ErrorCodes.REFUSED_STREAM)

        @peer.on("/contradicted")
        async def contradicted(asked: Asked) -> None:
            asked.head()
            asked.reset(ErrorCodes.REFUSED_STREAM)

        error = await failure(ask(wire, "/refused"))
        assert "REFUSED_STREAM" in error.reason
        assert not error.sent
        assert (await failure(fetch(wire, "/contradicted"))).sent
        assert await fetch(wire) == b"hello"


@pytest.mark.parametrize("code", [*ErrorCodes, 4711])
async def test_a_stream_cut_in_the_middle(certificate: Path, code: int) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/cut")
        async def cut(asked: Asked) -> None:
            asked.head()
            await asked.data(b"part")
            asked.reset(code)

        @peer.on("/at once")
        async def at_once(asked: Asked) -> None:
            asked.reset(code)

        stream = await ask(wire, "/cut")
        assert await stream.chunk() == b"part"
        error = await failure(whole(stream))
        name = code.name if isinstance(code, ErrorCodes) else "4711"
        assert name in error.reason
        assert error.sent
        error = await failure(ask(wire, "/at once"))
        assert error.sent is (code != ErrorCodes.REFUSED_STREAM)
        assert await fetch(wire) == b"hello"
        assert len(peer.connections) == 1


def goaway(last: int, code: int = 0, said: bytes = b"") -> GoAwayFrame:
    return GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=said)


async def test_a_server_that_takes_its_leave_finishes_what_it_took(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        go = asyncio.Event()

        @peer.on("/slow")
        async def slow(asked: Asked) -> None:
            await asked.ended.wait()
            asked.head()
            await asked.data(b"before ")
            await go.wait()
            await asked.data(b"and after", end=True)

        @peer.on("/late")
        async def late(asked: Asked) -> None:
            pass

        under_way = await ask(wire, "/slow", b"x" * 10)
        not_taken = asyncio.ensure_future(ask(wire, "/late"))
        await peer.until_asked(2)
        host = peer.connections[0]
        host.frames(SettingsFrame(0), goaway(2**31 - 1))
        await eventually(lambda: not wire._shared)
        assert await asyncio.wait_for(fetch(wire), SECONDS) == b"hello"  # on another
        host.frames(goaway(1))
        error = await failure(not_taken)
        assert "takes no more" in error.reason
        assert not error.sent
        go.set()
        assert await whole(under_way) == b"before and after"
        await asyncio.wait_for(host.gone.wait(), SECONDS)  # the last one closes
        assert peer.streams == [2, 1]


async def test_uploads_go_on_after_the_server_took_its_leave(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/upload")
        async def upload(asked: Asked) -> None:
            asked.host.frames(goaway(asked.number))
            await asked.ended.wait()
            await asked.answer(str(len(asked.body)).encode())

        assert await fetch(wire, "/upload", b"x" * 1_000_000) == b"1000000"


async def test_a_server_that_leaves_in_anger(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/anger")
        async def anger(asked: Asked) -> None:
            asked.host.frames(goaway(1, ErrorCodes.ENHANCE_YOUR_CALM, b"too many"))
            asked.host.transport.close()

        error = await failure(ask(wire, "/anger"))
        assert "ENHANCE_YOUR_CALM" in error.reason
        assert "too many" in error.reason
        assert error.sent
        assert await fetch(wire) == b"hello"


async def test_a_server_that_leaves_as_it_comes(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        peer.greets = False
        work = asyncio.ensure_future(wire.acquire())
        await eventually(lambda: peer.connections)
        peer.connections[0].frames(goaway(0, ErrorCodes.INADEQUATE_SECURITY))
        error = await failure(work)
        assert "INADEQUATE_SECURITY" in error.reason
        assert not error.sent


async def test_a_server_that_always_takes_its_leave_at_once(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings come with the farewell, so that each connection opens, and then takes no stream."""
    connection_made = Connection.connection_made

    def leave(host: Connection, transport: Any) -> None:
        connection_made(host, transport)
        host.frames(goaway(0))

    monkeypatch.setattr(Connection, "connection_made", leave)
    async with linked(certificate) as (peer, wire):
        errors = await asyncio.gather(*(failure(wire.acquire()) for _ in range(5)))
        assert all("the server takes no requests" in error.reason for error in errors)
        assert not any(error.sent for error in errors)
        assert len(peer.connections) == 1
        assert not wire._shared


@pytest.mark.parametrize("farewell", ["goaway", "close"])
async def test_a_server_that_takes_its_leave_while_requests_wait_for_a_stream(
    certificate: Path, farewell: str
) -> None:
    async with linked(certificate, MAX_CONCURRENT_STREAMS=0) as (peer, wire):
        work = [asyncio.ensure_future(wire.acquire()) for _ in range(3)]
        await eventually(lambda: wire._shared)
        if farewell == "goaway":
            peer.connections[0].frames(goaway(0))
        else:
            peer.connections[0].transport.close()
        errors = [await failure(each) for each in work]
        assert all("the server takes no requests" in error.reason for error in errors)
        assert not any(error.sent for error in errors)
        assert len(peer.connections) == 1


async def test_a_server_that_never_introduces_itself(certificate: Path) -> None:
    async with linked(certificate, connect_timeout=2.0) as (peer, wire):
        peer.greets = False
        errors = await asyncio.gather(*(failure(wire.acquire()) for _ in range(5)))
        assert all("no connection within" in error.reason for error in errors)
        assert len(peer.connections) == 1
        await asyncio.wait_for(peer.connections[0].gone.wait(), SECONDS)


async def test_a_cut_connection_fails_everything_on_it(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        work = [asyncio.ensure_future(failure(ask(wire, "/never"))) for _ in range(5)]
        await peer.until_asked(5)
        unsent = await wire.acquire()
        peer.connections[0].transport.abort()
        errors = await asyncio.gather(*work)
        assert all(error.sent and "closed the connection" in error.reason for error in errors)
        with pytest.raises(ExchangeFailed) as caught:
            unsent.send("GET", "/", [])
        assert not caught.value.sent
        unsent.release()
        assert await fetch(wire) == b"hello"


async def test_a_connection_left_alone_is_not_trusted(
    certificate: Path, clock: MovableClock
) -> None:
    async with linked(certificate) as (peer, wire):
        await fetch(wire)
        await clock.advance(_MAX_IDLE)
        await fetch(wire)
        assert peer.streams == [1, 1]
        await eventually(peer.connections[0].gone.is_set)
        held = await wire.acquire()  # a stream in use is reason enough to trust it
        held.send("GET", "/never", [])
        await clock.advance(_MAX_IDLE)
        await fetch(wire)
        assert peer.streams == [1, 3]
        held.release()


async def test_the_numbers_of_streams_run_out(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        await fetch(wire)
        wire._shared[0]._h2.highest_outbound_stream_id = 2**31 - 5
        assert [await fetch(wire) for _ in range(4)] == [b"hello"] * 4
        assert peer.streams == [2, 3]


async def test_closing_waits_for_what_is_in_use(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):
        stream = await ask(wire)
        wire.close()
        assert await whole(stream) == b"hello"
        await asyncio.wait_for(peer.connections[0].gone.wait(), SECONDS)
        assert not (await failure(wire.acquire())).sent


# Liveness


async def test_a_quiet_connection_is_asked_whether_it_lives(
    certificate: Path, clock: MovableClock
) -> None:
    async with linked(certificate) as (peer, wire):
        stream = await wire.acquire()
        stream.send("GET", "/never", [])
        work = asyncio.ensure_future(stream.answered())
        await peer.until_asked()
        for _ in range(10):  # each time a ping, which is answered
            await clock.advance(_QUIET)
            await turns()
        assert not work.done()
        peer.connections[0].transport.pause_reading()
        await clock.advance(2 * _QUIET + _PONG)
        error = await failure(work)
        stream.release()
        assert "did not answer a ping" in error.reason
        assert error.sent
        assert await fetch(wire) == b"hello"


# A server at odds with the protocol


def block(host: Connection, *headers: tuple[str, str]) -> bytes:
    return host.h2.encoder.encode(headers)


def odd_length(asked: Asked) -> bytes:
    return struct.pack(">I", 2**24 - 1)[1:] + b"\0\0" + struct.pack(">I", asked.number)


BROKEN: dict[str, Callable[[Asked], bytes]] = {
    "no frames": lambda asked: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" * 10,
    "zeros": lambda asked: b"\0" * 100,
    "push": lambda asked: PushPromiseFrame(
        asked.number,
        promised_stream_id=2,
        data=block(asked.host, (":method", "GET"), (":path", "/")),
        flags=["END_HEADERS"],
    ).serialize(),
    "data before the head": lambda asked: DataFrame(asked.number, b"x").serialize(),
    "data on a stream nobody opened": lambda asked: DataFrame(99, b"x").serialize(),
    "a head on a stream nobody opened": lambda asked: HeadersFrame(
        99, block(asked.host, (":status", "200")), flags=["END_HEADERS"]
    ).serialize(),
    "broken compression": lambda asked: HeadersFrame(
        asked.number, b"\xff" * 20, flags=["END_HEADERS"]
    ).serialize(),
    "no status": lambda asked: HeadersFrame(
        asked.number, block(asked.host, ("x", "y")), flags=["END_HEADERS"]
    ).serialize(),
    "a capital in a name": lambda asked: HeadersFrame(
        asked.number, block(asked.host, (":status", "200"), ("X-Up", "y")), flags=["END_HEADERS"]
    ).serialize(),
    "something inside a head": lambda asked: (
        HeadersFrame(asked.number, block(asked.host, (":status", "200"))).serialize()
        + PingFrame(0, b"12345678").serialize()
    ),
    "a head without end": lambda asked: (
        HeadersFrame(asked.number, b"").serialize()
        + ContinuationFrame(asked.number, b"").serialize() * 1000
    ),
    "a window of nothing": lambda asked: b"\0\0\4\x08\0" + b"\0" * 8,
    "a window beyond its size": lambda asked: (
        WindowUpdateFrame(0, window_increment=2**31 - 1).serialize() * 2
    ),
    "a setting that cannot be": lambda asked: SettingsFrame(0, {4: 2**31}).serialize(),
    "settings of half a setting": lambda asked: b"\0\0\5\4\0" + b"\0" * 9,
    "a ping of three bytes": lambda asked: b"\0\0\3\6\0" + b"\0" * 7,
    "a body longer than it said": lambda asked: (
        HeadersFrame(
            asked.number,
            block(asked.host, (":status", "200"), ("content-length", "1")),
            flags=["END_HEADERS"],
        ).serialize()
        + DataFrame(asked.number, b"longer").serialize()
    ),
    "a frame over the size": lambda asked: odd_length(asked) + b"x" * 2_000_000,
    "a thousand announcements": lambda asked: (
        HeadersFrame(
            asked.number,
            block(asked.host, (":status", "103"), ("link", "x" * 2000)),
            flags=["END_HEADERS"],
        ).serialize()
        * 1000
    ),
    "a head too large": lambda asked: b"".join(
        frame.serialize()
        for frame in (
            HeadersFrame(asked.number, block(asked.host, (":status", "200"))),
            *(
                ContinuationFrame(asked.number, block(asked.host, (f"x{n}", "y" * 12_000)))
                for n in range(10)
            ),
            ContinuationFrame(asked.number, b"", flags=["END_HEADERS"]),
        )
    ),
}


@pytest.mark.parametrize("attack", BROKEN)
async def test_what_breaks_the_connection(certificate: Path, attack: str) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/attack")
        async def hit(asked: Asked) -> None:
            asked.host.transport.write(BROKEN[attack](asked))

        beside = asyncio.ensure_future(failure(ask(wire, "/never")))
        await peer.until_asked()
        error = await failure(fetch(wire, "/attack"))
        assert error.sent
        assert "the server" in error.reason
        assert "the server" in (await beside).reason
        assert await fetch(wire) == b"hello"  # on a new connection
        assert len(peer.connections) == 2


FLOODS: dict[str, bytes] = {
    "pings": PingFrame(0, b"floodeds").serialize(),
    "settings": SettingsFrame(0).serialize(),
    "windows": WindowUpdateFrame(0, window_increment=1).serialize(),
    "unknown frames": b"\0\0\x64\xf0\0\0\0\0\0" + b"x" * 100,
    "resets of what is over": RstStreamFrame(1, error_code=8).serialize(),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_frames_that_say_nothing(certificate: Path, flood: str) -> None:
    async with linked(certificate) as (peer, wire):
        await fetch(wire)

        @peer.on("/flood")
        async def send(asked: Asked) -> None:
            some = FLOODS[flood] * (64_000 // len(FLOODS[flood]))
            while not asked.host.transport.is_closing():
                asked.host.transport.write(some)
                await asyncio.sleep(0)

        error = await failure(ask(wire, "/flood"))
        assert "serve no request" in error.reason
        assert await fetch(wire) == b"hello"


async def test_some_noise_is_no_flood(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/noisy")
        async def noisy(asked: Asked) -> None:
            asked.host.transport.write(FLOODS["pings"] * 5000)
            await asked.answer(b"after all")

        assert await fetch(wire, "/noisy") == b"after all"


async def test_padding_and_empty_frames_cost_nothing_of_the_window(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/padded")
        async def padded(asked: Asked) -> None:
            asked.head()
            for _ in range(3000):  # 768,000 bytes of padding, over the window of the stream
                await asked.data(b"x", pad=255)
            await asked.data(b"", end=True)

        assert await fetch(wire, "/padded") == b"x" * 3000


async def test_a_server_that_sends_pings_and_reads_no_answers(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._MAX_NOISE", 2**40)
    monkeypatch.setattr(f"{MODULE}._MAX_UNREAD", 256 * 1024)
    async with linked(certificate) as (peer, wire):

        @peer.on("/deaf")
        async def deaf(asked: Asked) -> None:
            asked.host.transport.pause_reading()
            ours, theirs = (
                transport.get_extra_info("socket")
                for transport in (wire._shared[0]._transport, asked.host.transport)
            )
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the system takes
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # megabytes otherwise
            while not asked.host.transport.is_closing():
                asked.host.transport.write(FLOODS["pings"] * 4000)
                await asyncio.sleep(0.001)

        with pytest.raises(ExchangeFailed, match="does not read"):
            async with asyncio.timeout(60):
                stream = await wire.acquire()
                stream.send("GET", "/deaf", [])
                try:
                    await stream.answered()
                finally:
                    stream.release()


async def test_more_than_fits_the_window(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/over")
        async def over(asked: Asked) -> None:
            asked.head()
            asked.host.frames(*[DataFrame(asked.number, b"x" * 16_000)] * 20)

        stream = await ask(wire, "/over")
        await asyncio.wait_for(peer.connections[0].gone.wait(), SECONDS)
        error = await failure(whole(stream))
        assert "window" in error.reason
        assert await fetch(wire) == b"hello"


async def test_a_status_that_is_none(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/odd")
        async def odd(asked: Asked) -> None:
            asked.head("2x0")

        error = await failure(ask(wire, "/odd"))
        assert "'2x0'" in error.reason
        assert await asyncio.wait_for(peer.asked[0].cancelled, SECONDS) == ErrorCodes.CANCEL
        assert await fetch(wire) == b"hello"
        assert len(peer.connections) == 1


async def test_random_frames_end_in_an_answer_or_a_failure(certificate: Path) -> None:
    chance = random.Random(7)
    outcomes = set()
    async with linked(certificate) as (peer, wire):

        @peer.on("/random")
        async def anything(asked: Asked) -> None:
            for _ in range(20):
                body = chance.randbytes(chance.choice((0, 1, 4, 5, 8, 30)))
                number = chance.choice((0, 1, 2, asked.number, asked.number + 2))
                kind, flags = chance.randrange(12), chance.randrange(256)
                head = struct.pack(">IBBI", len(body), kind, flags, number)[1:]
                asked.host.transport.write(head + body)
            asked.host.transport.close()

        for _ in range(150):
            try:
                outcomes.add(type(await fetch(wire, "/random")))
            except ExchangeFailed as error:
                outcomes.add(error.reason.partition(":")[0])
        assert await fetch(wire) == b"hello"
    assert "the server violated HTTP/2" in outcomes


async def test_nothing_is_left_of_streams_that_are_over(certificate: Path) -> None:
    async with linked(certificate) as (peer, wire):

        @peer.on("/cancelled")
        async def cancelled(asked: Asked) -> None:
            asked.head()
            await asked.data(b"x" * 200_000)

        for _ in range(30):
            await fetch(wire)
            (await ask(wire, "/cancelled")).release()
        shared = wire._shared[0]
        assert not shared._streams
        assert not shared._sent
        assert not shared._uploads
        gc.collect()
        assert sum(type(each).__name__ == "Http2Stream" for each in gc.get_objects()) == 0
