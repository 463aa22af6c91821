"""Requests passed on between workers, when the owner of a session is not well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl.net.http_server.asgi_request import AsgiHeads, AsgiRequest
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.siblings import Siblings

HANGS = 30.0


class Client:
    """A request as ASGI shows it, whose client waits for ever."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        scope = {"method": "POST", "path": "/mcp", "headers": [(b"host", b"127.0.0.1")]}
        head = AsgiHeads().head_of(scope)
        self.request = AsgiRequest(scope, self.receive, self.send, head)

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)


@asynccontextmanager
async def owner(path: Path, answer: bytes) -> AsyncIterator[None]:
    """A worker that sends an answer and nothing after it, and keeps the connection open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()


async def pass_on(paths: list[Path], client: Client) -> None:
    siblings = Siblings(0, paths, margin=0.1)
    try:
        async with asyncio.timeout(HANGS):
            await siblings.pass_on(1, client.request, b"{}", keep_alive=0.05)
    finally:
        siblings.close()


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / "0", tmp_path / "1"]


async def test_an_owner_that_does_not_answer(paths: list[Path]) -> None:
    async with owner(paths[1], b""):
        with pytest.raises(Refused, match=r"did not answer within 0.2 s") as refused:
            await pass_on(paths, Client())
    assert refused.value.status == 504


async def test_an_owner_that_is_not_there(paths: list[Path]) -> None:
    with pytest.raises(Refused, match="The worker that holds this session") as refused:
        await pass_on(paths, Client())
    assert refused.value.status == 503
    assert dict(refused.value.headers)[b"retry-after"] == b"1"


async def test_an_owner_that_falls_silent_in_the_middle_of_a_stream(paths: list[Path]) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    client = Client()
    async with owner(paths[1], head + b"5\r\n:\r\n\r\n\r\n"):
        await pass_on(paths, client)
    assert client.sent[0]["status"] == 200
    assert client.body == b":\r\n\r\n"
    assert client.sent[-1]["more_body"]  # the response is incomplete, and can be seen to be


async def test_a_whole_answer(paths: list[Path]) -> None:
    client = Client()
    async with owner(paths[1], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):
        await pass_on(paths, client)
    assert client.body == b"{}" and not client.sent[-1].get("more_body")
