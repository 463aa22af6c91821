"""Answers whose heads came before: read without the parser, and exactly as with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mcpearl.net.http_client.http1 import AnswerHeads, Http1Connection
from mcpearl.net.http_client.pool import ConnectionPool

KIND = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
BODIES = [b'{"a":1}', b'{"a":2}', b'{"longer":true}']
JSON = "application/json"


def answer(body: bytes) -> bytes:
    return KIND + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def chunked(body: bytes) -> bytes:
    return KIND + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@asynccontextmanager
async def server(*answers: list[bytes]) -> AsyncIterator[ConnectionPool]:
    """A server that writes what it is told to, in pieces, for one request after the other."""
    script = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                for piece in next(script):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = ConnectionPool(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield pool
    finally:
        pool.close()
        listening.close()


async def post(pool: ConnectionPool) -> tuple[int, str | None, bytes]:
    """POST on an idle connection and read the answer."""
    connection = pool.idle()
    if connection is None:
        await pool.reach()
        connection = pool.idle()
    assert isinstance(connection, Http1Connection)
    came = asyncio.Event()
    connection.post(connection.head_of_post("/mcp", [("X", "1")]), b"{}", came.set)
    await came.wait()
    try:
        await connection.answered()
        body = b""
        while part := await connection.chunk():
            body += part
        return connection.status, connection.headers.get("content-type"), body
    finally:
        connection.release()


@pytest.mark.parametrize("write", [answer, chunked])
@pytest.mark.parametrize("size", [1000, 80, 20, 1])
async def test_answers_are_the_same_however_they_arrive(
    write: Callable[[bytes], bytes], size: int
) -> None:
    wanted = [*BODIES, *BODIES, *reversed(BODIES)]
    whole = [write(body) for body in wanted]
    cut = [[data[at : at + size] for at in range(0, len(data), size)] for data in whole[3:6]]
    scripts = [[data] for data in whole[:3]] + cut + [[data] for data in whole[6:]]
    async with server(*scripts) as pool:
        found = [await post(pool) for _ in wanted]
    assert found == [(200, JSON, body) for body in wanted]


async def test_bytes_after_an_answer_end_the_connection() -> None:
    """Nobody asked for what comes after an answer, so the connection is not used again."""
    async with server([answer(b"{}")], [answer(b"{}") + answer(b'{"evil":1}')]) as pool:
        assert await post(pool) == (200, JSON, b"{}")
        assert await post(pool) == (200, JSON, b"{}")
        assert pool.idle() is None


async def test_another_status_with_the_same_length_is_seen() -> None:
    refused = answer(b"{}").replace(b"200 OK", b"404 No")
    async with server([answer(b"{}")], [refused], [answer(b"{}")]) as pool:
        assert [(await post(pool))[0] for _ in range(3)] == [200, 404, 200]


async def test_a_connection_that_the_server_closes_is_not_kept() -> None:
    closing = answer(b"{}").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with server([closing]) as pool:
        assert await post(pool) == (200, JSON, b"{}")
        assert pool.idle() is None
        assert pool.heads.find(closing) is None


def test_heads_are_bounded() -> None:
    heads = AnswerHeads(most=2, longest=100)
    for length in (1, 2, 3):
        heads.learn(answer(b"x" * length), {"content-length": str(length)})
    assert heads.find(answer(b"x")) is None
    assert heads.find(answer(b"xx")) == ({"content-length": "2"}, b"xx")
    assert heads.find(answer(b"xxx") + b"y") is None
    assert heads.find(answer(b"xxx")[:-1]) is None
    long = answer(b"x").replace(b"\r\n\r\n", b"\r\nx: " + b"x" * 100 + b"\r\n\r\n")
    heads.learn(long, {"content-length": "1"})
    assert heads.find(long) is None
