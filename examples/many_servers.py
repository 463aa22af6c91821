"""Uses several servers as one: those of a configuration file, or two that are made here.

`python examples/many_servers.py [mcp.json]`
"""

import asyncio
import sys

from mcpearl import Host, Server

library = Server("library")
kitchen = Server("kitchen")


@library.tool
async def find(title: str) -> str:
    """Find a book."""
    return f"{title}: shelf 7"


@kitchen.tool
async def find_recipe(dish: str) -> str:
    """Find a recipe."""
    return f"{dish}: boil until soft"


async def main() -> None:
    """Show how the servers stand and what they offer, and call a tool of one."""
    source = sys.argv[1] if len(sys.argv) > 1 else {"library": library, "kitchen": kitchen}
    async with Host(source) as host:
        for name, status in host.servers.items():
            print(f"{name}: {status.state}{f' ({status.reason})' if status.reason else ''}")
        for tool in await host.tools():
            print(f"{tool.name}: {tool.description}")
        if len(sys.argv) == 1:
            result = await host.call_tool("library__find", {"title": "Solaris"})
            print(result.data)


if __name__ == "__main__":
    asyncio.run(main())
