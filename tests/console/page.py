"""The page of a console without a browser: it reads the stream of events, and asks."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from mcpearl import Server
from mcpearl.server.serving.wires import ConsoleOptions
from tests.waiting import eventually

KEY = "a-key-for-tests"
HEADERS = {"x-console-key": KEY}


class Page:
    def __init__(self, http: httpx2.AsyncClient, base: str, key: str) -> None:
        self.http = http
        self.headers = {"x-console-key": key}
        self.base = base
        self.events: list[dict[str, Any]] = []
        self._ids = iter(range(1, 1000))

    async def read(self) -> None:
        async with self.http.stream("GET", f"{self.base}/events", headers=self.headers) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    self.events.append(json.loads(line[5:]))

    async def event(self, type: str, where: Callable[[Any], Any] = lambda event: True) -> Any:
        """Wait for an event of this type that fits."""
        return await eventually(
            lambda: next((e for e in self.events if e["type"] == type and where(e)), None),
            otherwise=lambda: [str(event)[:300] for event in self.events[-20:]],
        )

    async def post(self, **action: Any) -> httpx2.Response:
        headers = {**self.headers, "x-console-page": self.events[0]["page"]}
        return await self.http.post(f"{self.base}/do", json=action, headers=headers)

    async def do(self, **action: Any) -> None:
        response = await self.post(**action)
        assert response.status_code == 200, response.text

    async def connect(self, target: str, protocol: str = "auto") -> Any:
        await self.do(do="open", target=target, protocol=protocol)
        return await self.event("state", lambda event: event["phase"] == "ready")

    async def ask(self, method: str, params: Any = None, **more: Any) -> int:
        """Send a request to the server that is tried, and return its id."""
        id = next(self._ids)
        await self.do(do="ask", id=id, method=method, params=params or {}, **more)
        return id

    async def answer(self, id: int) -> Any:
        return await self.event("answer", lambda event: event["id"] == id)

    async def call(self, method: str, params: Any = None, **more: Any) -> Any:
        answer = await self.answer(await self.ask(method, params, **more))
        assert "error" not in answer, answer
        return answer["result"]


@asynccontextmanager
async def open_page(base: str, key: str = KEY) -> AsyncIterator[Page]:
    async with httpx2.AsyncClient(timeout=60) as http:
        page = Page(http, base, key)
        reading = asyncio.create_task(page.read())
        try:
            await page.event("hello")
            yield page
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def served(app: Server, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serve an application with its console, and yield the address of the console."""
    console = ConsoleOptions(key=KEY, **options)
    async with app.serving("http", port=port, console=console) as url:
        yield url.removesuffix("/mcp") + "/console"
