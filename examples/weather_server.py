"""A small weather server with tools, a resource and a prompt.

`python examples/weather_server.py` serves on stdio, `… --http` at http://127.0.0.1:8000/mcp, and
`… --http 9000` on another port.
"""

import sys
from dataclasses import dataclass

from mcpearl import Context, Server

app = Server("weather", version="1.0.0", instructions="Forecasts by city.")
SKIES = {"Oslo": "snow", "Lisbon": "sun", "Hanoi": "rain"}


@dataclass
class Forecast:
    """The weather of several days in one city."""

    city: str
    days: list[str]


@app.tool
async def forecast(city: str, days: int = 3, *, ctx: Context) -> Forecast:
    """What the weather will be.

    Args:
        city: Name of the city.
        days: How many days ahead.
    """
    for day in range(days):
        await ctx.progress(day + 1, days)
    return Forecast(city, [SKIES.get(city, "clouds")] * days)


@app.tool
def cities() -> list[str]:
    """List the cities that have a forecast."""
    return sorted(SKIES)


@app.resource("weather://{city}/now", mime_type="application/json")
def now(city: str) -> dict[str, str]:
    """The current weather."""
    return {"city": city, "sky": SKIES.get(city, "clouds")}


@app.prompt
def brief(city: str, tone: str = "short") -> str:
    """Ask for a weather briefing."""
    return f"Give me a {tone} weather briefing for {city}."


@app.complete("brief", "city")
def complete_city(typed: str) -> list[str]:
    """Suggest the cities that begin with the typed text."""
    return [city for city in sorted(SKIES) if city.startswith(typed)]


if __name__ == "__main__":
    if "--http" in sys.argv:
        app.run("http", port=sys.argv[2] if len(sys.argv) > 2 else 8000)
    else:
        app.run()
