"""Ten servers from the registries behind one gateway, at once."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import Client, Gateway, McpError, Reconnect, UpstreamSettings
from tests.interop import registry_servers
from tests.interop.peers import MODERN
from tests.waiting import eventually


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><p>A greeting to all readers</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def processes(of: str = "") -> list[psutil.Process]:
    """Return the servers that run, or the ones whose command line contains a text."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if of in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_ten_servers_behind_one_gateway(tmp_path: Path, page: str) -> None:
    before = set(processes())
    file = registry_servers.write(tmp_path / "mcp.json", tmp_path / "work")
    calls = registry_servers.calls(tmp_path / "work", page)
    settings = UpstreamSettings(patience=60.0, reconnect=Reconnect(delays=(0.05,)))
    gateway = Gateway(file, upstreams=settings, watch=False)

    async def call(client: Client, server: str) -> None:
        tool, arguments, expected = calls[server]
        result = await client.call_tool(f"{server}__{tool}", arguments)
        assert not result.is_error, (server, result.text)
        assert expected in (result.text or ""), server

    async with (
        gateway.serving("http", port=0) as url,
        Client(url, protocol=MODERN) as client,
    ):
        listed = await client.list_tools()
        assert "mcpearl/unavailable" not in (listed.meta or {})
        names = [tool.name async for tool in client.tools()]
        assert {name.partition("__")[0] for name in names} == set(calls)
        assert len(names) == len(set(names))
        await asyncio.gather(*(call(client, server) for server in calls))

        (memory,) = processes("server-memory")
        memory.kill()
        others = [server for server in calls if server != "memory"]
        await asyncio.gather(*(call(client, server) for server in others))

        async def back() -> bool:
            try:
                graph = await client.call_tool("memory__read_graph")
            except McpError:
                return False
            return "writes programs" in (graph.text or "")  # which it keeps in its file

        await eventually(back)
    await eventually(lambda: not set(processes()) - before)
