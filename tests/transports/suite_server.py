"""The server every wire is tested with. Run as a program it serves stdio.

What its calls go through is noted in one place, also for several servers that are one to their clients.
"""

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpearl import Context, Limits, Server

if TYPE_CHECKING:
    from tests.across import SharedNotes

BOOK = "notes://book"


@dataclass
class Reply:
    text: str


class Happenings:
    """What the calls of `work` have been through, at all machines.

    Args:
        notes: Where it is noted, in order; shared by machines that are processes.
    """

    def __init__(self, notes: "list[str] | SharedNotes | None" = None) -> None:
        self.notes = [] if notes is None else notes

    def report(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"running": 0, "most": 0, "begun": [], "cancelled": 0}
        for what, _, number in (note.partition(" ") for note in self.notes):
            if what == "begun":
                seen["begun"].append(int(number))
                seen["running"] += 1
                seen["most"] = max(seen["most"], seen["running"])
            else:
                seen["running"] -= 1
                seen["cancelled"] += what == "cancelled"
        return seen


class Growth:
    """Adds a tool at every machine of this process."""

    def __init__(self) -> None:
        self.machines: list[Server] = []

    def add(self) -> None:
        def another() -> str:
            return "here"

        for machine in self.machines:
            machine.add_tool(another, name="another")

    async def everywhere(self) -> None:
        self.add()


def make_app(**options: Any) -> Server:
    """Return the server."""
    return make_machines(1, **options)[0]


def make_machines(count: int, **options: Any) -> list[Server]:
    """Return servers that are one to their clients."""
    happenings, growth = Happenings(), Growth()
    growth.machines += [make_machine(happenings, growth, **options) for _ in range(count)]
    return growth.machines


def make_machine(happenings: Happenings, growth: Growth, **options: Any) -> Server:
    """Return one server of several."""
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
        happenings.notes.append(f"begun {number}")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            happenings.notes.append("cancelled")
            raise
        happenings.notes.append("ended")
        return number

    @app.tool
    async def report() -> dict[str, Any]:
        """What `work` has been through."""
        return happenings.report()

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
        await growth.everywhere()
        return "grown"

    @app.tool
    async def whoami(*, ctx: Context) -> str:
        return "nobody" if ctx.principal is None else ctx.principal.subject

    return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    make_app().run()
