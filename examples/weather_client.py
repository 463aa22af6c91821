"""Uses the weather server: starts one, or connects to the URL passed as argument.

`python examples/weather_client.py [http://127.0.0.1:8000/mcp]`
"""

import asyncio
import sys
from pathlib import Path

from mcpearl import Client

SERVER = Path(__file__).with_name("weather_server.py")


async def main() -> None:
    """List the tools, call one, read a resource."""
    target = sys.argv[1] if len(sys.argv) > 1 else SERVER
    async with Client(target) as client:
        async for tool in client.tools():
            print(f"{tool.name}: {tool.description}")
        result = await client.call_tool("forecast", {"city": "Oslo"})
        print(result.structured_content)
        reading = await client.read_resource("weather://Lisbon/now")
        print(reading.contents[0].text)


if __name__ == "__main__":
    asyncio.run(main())
