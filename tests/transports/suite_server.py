"""The server every wire is tested with. Run as a program it serves stdio."""

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpearl import Context, Limits, Server

BOOK = "notes://book"


@dataclass
class Reply:
    text: str


def make_app(**options: Any) -> Server:
    """Return the server."""
    return make_machines(1, **options)[0]


def make_machines(count: int, **options: Any) -> list[Server]:
    """Return servers that are one to their clients: calls note what happens in one place."""
    seen: dict[str, Any] = {"running": 0, "most": 0, "begun": [], "cancelled": 0}
    machines: list[Server] = []
    machines += [_make_machine(machines, seen, **options) for _ in range(count)]
    return machines


def _make_machine(machines: list[Server], seen: dict[str, Any], **options: Any) -> Server:
    options.setdefault("grace", 1.0)
    options.setdefault("limits", Limits(max_message=8_000_000, max_in_flight=64))
    app = Server("suite", "1.0.0", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def fail(reason: str) -> str:
        raise ValueError(reason)

    @app.tool
    async def work(number: int, seconds: float = 0.0) -> int:
        """Note that it began, take some time, and answer with the number."""
        seen["begun"].append(number)
        seen["running"] += 1
        seen["most"] = max(seen["most"], seen["running"])
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            seen["cancelled"] += 1
            raise
        finally:
            seen["running"] -= 1
        return number

    @app.tool
    async def report() -> dict[str, Any]:
        """What `work` has been through."""
        return dict(seen)

    @app.tool
    async def count(steps: int, *, ctx: Context) -> int:
        for step in range(steps):
            await ctx.progress(step + 1, steps)
        return steps

    @app.tool
    async def talk(lines: int, size: int, log: str, *, ctx: Context) -> int:
        """Log lines nobody can compress as fast as they are taken, and a dot in a file for each."""
        for number in range(lines):
            await ctx.info(f"{number}:{os.urandom(size // 2).hex()}")
            with Path(log).open("ab") as file:
                file.write(b".")
        return lines

    @app.tool
    async def ask(question: str, *, ctx: Context) -> str:
        answer = await ctx.elicit(question, Reply)
        return answer.data.text if answer.accepted else answer.action

    @app.resource(BOOK)
    def book() -> str:
        return "once upon a time"

    @app.tool
    async def write() -> str:
        """Change the book."""
        app.notify_resource_updated(BOOK)
        return "written"

    @app.tool
    async def grow() -> str:
        """Add a tool, at every machine."""

        def another() -> str:
            return "here"

        for machine in machines:
            machine.add_tool(another, name="another")
        return "grown"

    @app.tool
    async def whoami(*, ctx: Context) -> str:
        return "nobody" if ctx.principal is None else ctx.principal.subject

    return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    make_app().run()
