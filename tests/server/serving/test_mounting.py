"""Mounted in Starlette and FastAPI, under a real uvicorn, with and without the parent's lifespan."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from mcpearl import Client, Context, Server
from tests.ports import free_port
from tests.transports.raw_http import BOTH, Raw, message, modern
from tests.waiting import eventually

LEGACY = "2025-11-25"
_INITIALIZE = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def make_app(life: list[str]) -> Server:
    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[str]:
        life.append("in")
        yield "of the lifespan"
        life.append("out")

    app = Server("mounted", lifespan=lifespan)

    @app.tool
    async def held(ctx: Context) -> str:
        return str(ctx.lifespan)

    @app.resource("config://app")
    def config() -> str:
        return "x"

    return app


@asynccontextmanager
async def under_uvicorn(application: Any) -> AsyncIterator[str]:
    port = free_port()
    options = uvicorn.Config(application, port=port, log_level="error", ws="none")
    server = uvicorn.Server(options)
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 30)


def starlette(mcp: Any, **options: Any) -> Any:
    return Starlette(routes=[Mount("/api", app=mcp)], **options)


def fastapi(mcp: Any, **options: Any) -> Any:
    from fastapi import FastAPI

    api = FastAPI(**options)
    api.mount("/api", mcp)
    return api


@pytest.mark.parametrize("make", [starlette, fastapi])
@pytest.mark.parametrize("runs_lifespan", [True, False])
@pytest.mark.parametrize("protocol", [LEGACY, "2026-07-28"])
async def test_the_server_runs(make: Any, runs_lifespan: bool, protocol: str, caplog: Any):
    life: list[str] = []
    app = make_app(life)
    mcp = app.asgi()
    options = {"lifespan": mcp.lifespan} if runs_lifespan else {}
    async with under_uvicorn(make(mcp, **options)) as base:
        assert life == (["in"] if runs_lifespan else [])
        updates: list[str] = []
        url = f"{base}/api/mcp"
        heard = lambda notice: updates.append(notice.params.uri)  # noqa: E731
        async with Client(url, protocol=protocol, on_notification=heard) as client:
            result = await client.call_tool("held")
            assert result.structured_content == {"result": "of the lifespan"}
            await client.subscribe("config://app")
            app.notify_resource_updated("config://app")
            await eventually(lambda: updates == ["config://app"])
        assert life == ["in"]
    assert ("does not run its lifespan" in caplog.text) == (not runs_lifespan)
    if runs_lifespan:
        assert life == ["in", "out"]
    else:
        assert caplog.text.count("FastAPI(lifespan=mcp.lifespan)") == 1
        assert [record.levelno for record in caplog.records if "lifespan" in record.message] == [
            logging.WARNING
        ]
        await end_like_a_program(mcp)
        assert life == ["in", "out"]


async def end_like_a_program(mcp: Any) -> None:
    """Cancel the task that holds the server, as `asyncio.run` does with all that are left."""
    task = mcp._life._alone
    task.cancel()
    await asyncio.wait([task])


async def test_the_servers_own_context_is_a_lifespan_too():
    life: list[str] = []
    app = make_app(life)
    outer = Starlette(routes=[Mount("/", app=app.asgi())], lifespan=lambda _: app.running())
    async with under_uvicorn(outer):
        assert life == ["in"]
    assert life == ["in", "out"]


async def test_a_lifespan_that_fails_fails_the_request_and_is_tried_again():
    attempts: list[int] = []

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("the database is away")
        yield

    app = Server("mounted", lifespan=lifespan)
    async with under_uvicorn(starlette(app.asgi())) as base:
        raw = Raw(int(base.rpartition(":")[2]), "/api/mcp")
        assert (await raw.post(message("ping"))).status == 500
        assert (await raw.initialize()).id
        assert len(attempts) == 2


async def test_a_wrong_path_names_the_right_one():
    async with under_uvicorn(starlette(make_app([]).asgi())) as base:
        with pytest.raises(Exception, match=r"nothing at '/api/'; MCP is served at '/api/mcp'"):
            async with Client(f"{base}/api/", reconnect=False):
                pass


@pytest.mark.parametrize("access_log", [False, True])
def test_an_application_that_is_run_again_serves_as_the_first_time(access_log: bool):
    """Test clients run the lifespan anew for each test, each time on another event loop."""
    from starlette.testclient import TestClient

    life: list[str] = []
    mcp = make_app(life).asgi(access_log=access_log)
    seen: set[str] = set()
    for _ in range(3):
        with TestClient(fastapi(mcp, lifespan=mcp.lifespan), base_url="http://127.0.0.1") as client:
            post = partial(client.post, "/api/mcp")
            named, call = modern("tools/call", {"name": "held", "arguments": {}})
            called = post(headers={"Accept": BOTH, **named}, json=call)
            assert called.json()["result"]["structuredContent"] == {"result": "of the lifespan"}
            headers = {"Accept": BOTH, "MCP-Protocol-Version": LEGACY}
            begun = post(headers=headers, json=message("initialize", _INITIALIZE))
            session = begun.headers["mcp-session-id"]
            ready = message("notifications/initialized", id=None)
            assert (
                post(headers={**headers, "Mcp-Session-Id": session}, json=ready).status_code == 202
            )
            for earlier in seen:
                gone = post(headers={**headers, "Mcp-Session-Id": earlier}, json=ready)
                assert gone.status_code == 404
            seen.add(session)
    assert len(seen) == 3
    assert life == ["in", "out"] * 3


async def test_what_holds_an_endpoint_up_besides_others_ends_no_session():
    life: list[str] = []
    mcp = make_app(life).asgi()
    async with mcp.running(), under_uvicorn(mcp) as base:
        session = await Raw(int(base.rpartition(":")[2])).initialize()
        async with mcp.running():
            pass
        answer = await session.post(message("tools/call", {"name": "held", "arguments": {}}))
        assert answer.json["result"]["content"][0]["text"] == "of the lifespan"
    assert life == ["in", "out"]
