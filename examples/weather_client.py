"""Starts the weather server and uses it. `python examples/weather_client.py`."""

import asyncio
from pathlib import Path

from mcpearl import Client

SERVER = Path(__file__).with_name("weather_server.py")


async def main() -> None:
    """List, call, read."""
    async with Client(SERVER) as client:
        async for tool in client.tools():
            print(f"{tool.name}: {tool.description}")
        result = await client.call_tool("forecast", {"city": "Oslo"})
        print(result.structured_content)
        reading = await client.read_resource("weather://Lisbon/now")
        print(reading.contents[0].text)


if __name__ == "__main__":
    asyncio.run(main())
