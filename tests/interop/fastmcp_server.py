"""A FastMCP server on stdio, run by the interpreter of FastMCP's environment."""

import asyncio
from dataclasses import dataclass
from typing import Any

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]

app = FastMCP("peer", list_page_size=2)


@dataclass
class Trip:
    city: str


@app.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@app.tool
async def book(ctx: Context) -> str:
    """Ask for a city."""
    answer = await ctx.elicit("Where to?", Trip)
    return f"{answer.action} {answer.data.city}"


@app.tool
async def count(ctx: Context) -> str:
    """Report progress, and log with two levels."""
    for step in range(3):
        await ctx.report_progress(step + 1, 3)
        await asyncio.sleep(0.05)
    await ctx.debug("a detail")
    await ctx.warning("a problem")
    return "counted"


@app.tool
async def sleep(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "slept"


@app.resource("peer://note")
def note() -> str:
    """A note."""
    return "first"


@app.prompt
def brief(city: str) -> str:
    """A prompt."""
    return f"Weather for {city}"


@app.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    """Complete the name of a city."""
    return [each for each in ("Oslo", "Odense") if each.startswith(argument.value)]


if __name__ == "__main__":
    app.run(show_banner=False)
