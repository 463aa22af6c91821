"""HTTP as the client reads it: the answers of a hostile server to one request, in either version.

An exchange ends with a head and a body, or with `ExchangeFailed`, and nothing else; the same way however
the bytes are cut. What is held unread is bounded, and a connection that failed is not used again.
"""

import asyncio
from typing import Any

from mcpearl.net.http_client.exchange import MAX_HEAD, ExchangeFailed
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.net.http_client.http2 import Http2Connection
from mcpearl.net.http_client.pool import ConnectionPool
from tests.fuzz.target import Target, cuts, require
from tests.fuzz.wire import Wire, run, settle

_BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def _read(exchange: Any) -> tuple[int, dict[str, str], bytes]:
    exchange.send("POST", "/mcp", [("Accept", "application/json")], _BODY)
    await exchange.answered()
    body = bytearray()
    while part := await exchange.chunk():
        body += part
    return exchange.status, exchange.headers, bytes(body)


async def _answer(parts: list[bytes], http2: bool) -> Any:
    """Send one request, feed the server's bytes, hang up; return how the exchange ended."""
    pool = ConnectionPool("http://127.0.0.1:1")
    connection: Any = Http2Connection(pool, "127.0.0.1") if http2 else Http1Connection(pool, "h")
    wire = Wire(connection)
    if http2:
        # Settings that allow everything come first, as from every server.
        await wire.feed([b"\0\0\0\x04\0\0\0\0\0"])
    exchange = connection.stream() if http2 else connection
    reading = asyncio.ensure_future(_read(exchange))
    await settle()
    await wire.feed(parts)
    await wire.hang_up()
    require(reading.done(), "the exchange does not end with its connection")
    try:
        status, headers, body = reading.result()
    except ExchangeFailed as error:
        require(len(error.reason) < 1024, "a reason repeats too much of its cause")
        outcome: Any = "failed"
    else:
        require(100 <= status < 1000, "the status of an answer")
        require(sum(map(len, headers)) <= MAX_HEAD, "a head over the bound")
        outcome = (status, headers, body)
    exchange.release()
    await settle()
    require(not connection.usable(60.0), "a connection that ended is used again")
    pool.close()
    return outcome


def _checked(http2: bool) -> Any:
    def check(data: bytes) -> None:
        expected = None
        for parts in cuts(data[: 16 * 1024], is_slow=http2):
            outcome = run(_answer(parts, http2))
            expected = outcome if expected is None else expected
            require(outcome == expected, f"a cut changes the answer: {expected!r} {outcome!r}")

    return check


def _reader(http2: bool) -> Any:
    return lambda data: run(
        _answer([data[start : start + 4096] for start in range(0, len(data), 4096)], http2)
    )


HTTP1_WORDS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 \r\n",
    b"Content-Length: 2\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"WWW-Authenticate: Bearer\r\n",
    b"Content-Type: text/event-stream\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"2\r\n{}\r\n",
)
HTTP2_WORDS = (
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\x01\x01\x04\0\0\0\x01\x88",
    b"\0\0\x01\x01\x05\0\0\0\x01\x88",
    b"\0\0\x02\0\x01\0\0\0\x01{}",
    b"\0\0\x02\0\0\0\0\0\x01{}",
    b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
    b"\0\0\x08\x06\0\0\0\0\0abcdefgh",
    b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
    b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\0",
    b"\0\0\x01\x09\x04\0\0\0\x01\x88",
)
HTTP1 = Target("http1-client", _checked(False), HTTP1_WORDS, _reader(False))
HTTP2 = Target("http2-client", _checked(True), HTTP2_WORDS, _reader(True))
