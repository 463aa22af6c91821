"""A provider of models on loopback: answers what the test says, and keeps what it was sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Asked(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Answer(NamedTuple):
    body: Any
    status: int = 200
    headers: dict[str, str] = {}


class ModelServer:
    """Answers requests in order; the last answer again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = [
            answer if isinstance(answer, Answer) else Answer(answer) for answer in answers
        ]
        self.asked: list[Asked] = []
        self.url = ""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head)
                }
                body = await reader.readexactly(int(headers["content-length"]))
                self.asked.append(Asked(head[0].split()[1], headers, json.loads(body)))
                self._respond(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _respond(self, writer: asyncio.StreamWriter) -> None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)


@asynccontextmanager
async def model_server(*answers: Any) -> AsyncIterator[ModelServer]:
    """Serve inside the block."""
    peer = ModelServer(*answers)
    server = await asyncio.start_server(peer.converse, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
