"""An upstream with a bit of everything; run as a process, with the versions it speaks as arguments."""

import asyncio
import os
import sys
from typing import Any

from mcpearl import Context, Server
from mcpearl.types import CallToolResult, SamplingMessage, TextContent

LEGACY = ("2025-11-25", "2025-06-18")
MODERN = ("2026-07-28",)


def make(versions: tuple[str, ...], name: str = "upstream") -> Server:
    app = Server(name, "1.2.3", versions=versions)
    notes: dict[Any, str] = {}  # by session
    waits = {"begun": 0, "cancelled": 0}
    app.calls = 0  # type: ignore[attr-defined]

    @app.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        app.calls += 1  # type: ignore[attr-defined]
        return a + b

    @app.tool
    async def ask(ctx: Context, question: str) -> str:
        answer = await ctx.elicit(question, str)
        return f"{question} {answer.action} {answer.data}"

    @app.tool
    async def ask_twice(ctx: Context) -> str:
        first = await ctx.elicit("first?", str)
        second = await ctx.elicit("second?", str)
        return f"{first.data} {second.data}"

    @app.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://example.com/login")).action

    @app.tool
    async def sample(ctx: Context) -> str:
        message = SamplingMessage(role="user", content=TextContent(text="hi"))
        result = await ctx.sample([message], max_tokens=10)
        return f"{result.model}: {result.content.text}"  # type: ignore[union-attr]

    @app.tool
    async def roots(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @app.tool
    async def steps(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step + 1, 3, f"step {step + 1}")
        await ctx.debug("fine detail")
        await ctx.warning("careful", logger="steps")
        return "ok"

    @app.tool
    async def meta(ctx: Context) -> dict[str, Any]:
        return {k: v for k, v in ctx.meta.items() if not k.startswith("io.modelcontextprotocol/")}

    @app.tool
    async def tagged() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="x")], meta={"example.com/tag": [1]})

    @app.tool
    async def who(ctx: Context) -> dict[str, Any]:
        client = ctx.client
        return {
            "name": client.client.name if client.client else None,
            "elicitation": client.capabilities.elicitation is not None,
            "authorization": ctx.headers.get("authorization"),
            "pid": os.getpid(),
        }

    @app.tool
    async def remember(ctx: Context, text: str) -> str:
        """Keep something in the session."""
        notes[ctx.client.session] = text
        return "noted"

    @app.tool
    async def recall(ctx: Context) -> str:
        return notes.get(ctx.client.session, "nothing")

    @app.tool
    async def slow(seconds: float) -> str:
        waits["begun"] += 1
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            waits["cancelled"] += 1
            raise
        return "done"

    @app.tool
    async def waited() -> dict[str, int]:
        """How many calls of `slow` have begun, and how many were cancelled."""
        return waits

    @app.tool
    def crash() -> str:
        os._exit(3)

    @app.tool
    def fail() -> str:
        raise RuntimeError("no luck")

    @app.tool
    async def grow(name: str) -> str:
        app.add_tool(lambda: "new", name=name)
        return "grown"

    @app.tool
    async def touch() -> str:
        app.notify_resource_updated("note://one")
        return "touched"

    @app.tool(task=True)
    async def job(ctx: Context, question: str | None = None, seconds: float = 0.0) -> str:
        """Work that runs as a task."""
        app.calls += 1  # type: ignore[attr-defined]
        await ctx.progress(1, 2, "half done")
        if question is not None:
            answer = await ctx.elicit(question, str)
            return f"{question} {answer.action} {answer.data}"
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            app.cancelled = True  # type: ignore[attr-defined]
            raise
        return "worked"

    @app.tool(task="required")
    async def long_job() -> str:
        return "worked for long"

    @app.tool(task=True)
    async def broken_job() -> str:
        raise RuntimeError("no luck")

    @app.resource("note://one")
    def one() -> str:
        return "first"

    @app.resource("note://by/{id}")
    def by(id: str) -> str:
        return f"note {id}"

    @app.prompt
    def greet(name: str) -> str:
        return f"Greet {name}"

    @app.complete("greet", "name")
    def names(value: str) -> list[str]:
        return [each for each in ("Ada", "Eve") if each.startswith(value)]

    return app


if __name__ == "__main__":
    make(tuple(sys.argv[1].split(","))).run()
