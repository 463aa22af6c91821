"""Two servers that share a store, as two machines behind a balancer would: requests land at either."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcpearl import Context, Server
from mcpearl.stores.redis_store import RedisStore
from tests.redis_server import fresh_address
from tests.transports.raw_http import Raw, Session, serving

TAKES_TASKS = {
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}}
    }
}
"""What a modern client says in `_meta` that takes tasks."""


def make_app(store: str, **options: Any) -> Server:
    """Return a server with tools that need a session, and an event `app.go` they wait for."""
    app = Server("shared", grace=1.0, store=store, **options)
    go = asyncio.Event()

    @app.tool
    async def known(ctx: Context) -> str:
        "What the server knows of its client."
        await ctx.debug("not wanted")
        await ctx.error("wanted")
        assert ctx.client.client is not None
        return f"{ctx.client.client.name} in {ctx.client.version.name}"

    @app.tool
    async def ask(ctx: Context) -> str:
        "Ask the client."
        return str((await ctx.elicit("Go on?")).action)

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        "Report progress, then wait."
        for number in range(to):
            await ctx.progress(number + 1, to)
        await go.wait()
        return "done"

    @app.tool
    async def add(a: int, b: int) -> int:
        "Add."
        return a + b

    @app.tool
    async def keep(ctx: Context) -> str:
        "Keep something for the caller."
        await ctx.session.set("key", "value")
        return "kept"

    @app.tool
    async def touch() -> str:
        "Say that a resource changed."
        app.notify_resource_updated("config://a")
        return "touched"

    @app.resource("config://{name}")
    def config(name: str) -> str:
        return name

    app.go = go  # type: ignore[attr-defined]
    return app


class Machine:
    """One server, and a client of it."""

    def __init__(self, app: Server, raw: Raw) -> None:
        self.app = app
        self.raw = raw
        self.go: asyncio.Event = app.go  # type: ignore[attr-defined]
        assert isinstance(app.shared, RedisStore)
        self.store: RedisStore = app.shared

    def log_levels(self) -> list[str | None]:
        """The log levels of the sessions that are here."""
        callers = [connection.end.caller for connection in self.app.connections]
        return [caller.log_level for caller in callers if caller is not None]

    def take_up(self, session: Session) -> Session:
        """Return the same session, as a client whose requests land here."""
        taken = Session(self.raw.port)
        taken.id, taken.headers = session.id, dict(session.headers)
        return taken


@asynccontextmanager
async def two_machines(
    address: str | None = None, kind: str = "redis", server: Any = None, **options: Any
) -> AsyncIterator[tuple[Machine, Machine]]:
    address = address or fresh_address(kind)
    one, two = make_app(address, **(server or {})), make_app(address, **(server or {}))
    async with serving(one, **options) as first, serving(two, **options) as second:
        yield Machine(one, first), Machine(two, second)


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])
