"""Peers that read too slowly, over HTTP and TCP, on a clock that the test moves."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcpearl import Server
from mcpearl.net.unread import SLOWEST
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.transports.raw_http import BOTH, modern, until_open

MUCH = 12 * 1024 * 1024
WIRES = pytest.mark.parametrize("wire", ["http", "tcp"])


@asynccontextmanager
async def asked(wire: str) -> AsyncIterator[tuple[Server, socket.socket]]:
    """A client that has asked for a large answer, and has read nothing of it."""
    app = Server("slow", max_held=128 * 1024 * 1024)

    @app.tool
    async def large() -> str:
        return "x" * MUCH

    port = free_port()
    task = asyncio.create_task(app.serve(wire, port=port))
    await until_open(port, task)
    loop = asyncio.get_running_loop()
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    line.setblocking(False)
    try:
        await loop.sock_connect(line, ("127.0.0.1", port))
        await loop.sock_sendall(line, question(wire))
        yield app, line
    finally:
        line.close()
        task.cancel()
        await asyncio.wait([task])


def question(wire: str) -> bytes:
    headers, body = modern("tools/call", {"name": "large", "arguments": {}})
    data = json.dumps(body).encode()
    if wire == "tcp":
        return data + b"\n"
    whole = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": BOTH,
        "Content-Length": str(len(data)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + data


async def take(line: socket.socket, size: int) -> int:
    """Read so many bytes, or until the connection ends; return how many there were."""
    loop, taken = asyncio.get_running_loop(), 0
    while taken < size:
        try:
            part = await loop.sock_recv(line, size - taken)
        except ConnectionError:
            part = b""
        if not part:
            break
        taken += len(part)
    return taken


@WIRES
async def test_a_peer_that_reads_a_little_for_ever_is_dropped(
    clock: MovableClock, wire: str
) -> None:
    async with asked(wire) as (app, line):
        await take(line, 1)
        assert app.core.budget.by_kind["answers"] > 1024 * 1024
        for _ in range(20):  # 3.2 KB a second, which the system's own buffers make uneven
            await take(line, 64 * 1024)
            await clock.advance(20)
            if not app.core.budget.by_kind["answers"]:
                break
        assert app.core.budget.by_kind["answers"] == 0
        assert await take(line, 2 * MUCH) < 2 * MUCH, "it is cut off in the middle"


@WIRES
async def test_a_peer_that_reads_steadily_is_not_dropped(clock: MovableClock, wire: str) -> None:
    async with asked(wire) as (app, line):
        taken = await take(line, 1)
        whole = 2 * MUCH  # the text is in the content and in the structured content
        while taken < whole:
            step = await take(line, min(SLOWEST * 200, whole - taken))
            assert step, "the connection was cut"
            taken += step
            await clock.advance(10)
        assert app.core.budget.by_kind["answers"] == 0
