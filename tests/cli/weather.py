"""A server for the tests of the command, found by it in this file. It does not serve itself."""

import asyncio
import base64
from dataclasses import dataclass
from typing import Literal

from mcpearl import Context, Image, Server

app = Server("weather", version="1.0.0", instructions="Forecasts by city.")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Trip:
    """Where to, and how."""

    destination: str
    days: int = 3
    style: Literal["cheap", "comfortable"] = "cheap"


@app.tool
async def forecast(
    city: str, days: int = 3, tags: list[str] | None = None, exact: bool = False
) -> list[str]:
    """What the weather will be."""
    return [f"sun in {city} {tags} {exact}"] * days


@app.tool
async def plan(trip: Trip) -> str:
    """Plan a trip."""
    return repr(trip)


@app.tool
async def slow(steps: int = 5, *, ctx: Context) -> str:
    """Take a while, and say how far it is."""
    for n in range(steps):
        await ctx.progress(n + 1, steps, f"step {n + 1}")
        await asyncio.sleep(0.2)
    return "done"


@app.tool
async def book(ctx: Context) -> str:
    """Book a trip, after asking where to."""
    answer = await ctx.elicit("Where do you want to go?", Trip)
    return f"booked {answer.data}" if answer.action == "accept" else f"not booked: {answer.action}"


@app.tool
async def write(topic: str, ctx: Context) -> str:
    """Have a model write."""
    result = await ctx.sample(f"Write about {topic}")
    return f"it wrote: {result.content.text}"


@app.tool
def picture() -> Image:
    """A small picture."""
    return Image(data=PNG, format="png")


@app.tool
def broken() -> str:
    """Fail."""
    raise ValueError("it is broken \x1b[31mred")


@app.tool(task=True)
async def report(year: int) -> str:
    """Make a report, as a task."""
    return f"the report of {year}"


@app.resource("weather://now")
def now() -> str:
    """The weather now."""
    return "sun"


@app.resource("weather://map", mime_type="image/png")
def chart() -> bytes:
    """A map."""
    return PNG


@app.resource("weather://{city}/now")
def city_now(city: str) -> dict[str, str]:
    """The weather of a city."""
    return {"city": city, "sky": "sun"}


@app.tool
async def change() -> str:
    """Let the weather change."""
    app.notify_resource_updated("weather://now")
    return "changed"


@app.prompt
def brief(city: str, tone: str = "short") -> str:
    """Ask for a summary."""
    return f"Summarize the weather in {city}, {tone}."


@app.complete("brief", "city")
def cities(value: str) -> list[str]:
    """Cities that begin so."""
    return [each for each in ("Lisbon", "London", "Oslo") if each.lower().startswith(value.lower())]
