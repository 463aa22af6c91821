"""A client of tasks over HTTP made of raw requests, each on a connection of its own."""

import asyncio
import itertools
import json
from typing import Any

from tests.server.tasks.apps import WITH
from tests.server.wire import MODERN, meta

_ids = itertools.count(1)


class Caller:
    """Calls a server on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Send a request and return the whole answer; raises `OSError` without one."""
        message = {
            "jsonrpc": "2.0",
            "id": next(_ids),
            "method": method,
            "params": {**params, "_meta": meta(WITH)},
        }
        body = json.dumps(message).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n"
            + (f"Mcp-Name: {name}\r\n" if name else "")
            + f"Content-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(head.encode() + body)
            response = await reader.read()
        finally:
            writer.close()
        _, found, payload = response.partition(b"\r\n\r\n")
        if not found or not payload:
            raise ConnectionError("no answer")
        answer: dict[str, Any] = json.loads(payload)
        return answer

    async def is_up(self) -> bool:
        """Whether the server answers."""
        try:
            return "result" in await self.ask("server/discover", {})
        except OSError:
            return False

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result."""
        answer = await self.ask("tools/call", {"name": tool, "arguments": arguments}, tool)
        result: dict[str, Any] = answer["result"]
        return result

    async def look(self, id: str) -> dict[str, Any]:
        """Look at a task."""
        answer = await self.ask("tasks/get", {"taskId": id}, id)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def update(self, id: str, answers: dict[str, Any]) -> dict[str, Any]:
        """Answer a task's questions."""
        return await self.ask("tasks/update", {"taskId": id, "inputResponses": answers}, id)
