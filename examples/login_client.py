"""Log in to a protected server with the browser, and use it.

    python examples/login_client.py https://example.com/mcp

The URL of the login page is printed too. The login is stored for the next run, in private files.
"""

import asyncio
import sys

from mcpearl import Client


async def main(url: str) -> None:
    """Log in and list the tools."""
    async with Client(url, auth="oauth") as client:
        print([tool.name async for tool in client.tools()])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("the URL of a server is missing: python examples/login_client.py https://…/mcp")
    asyncio.run(main(sys.argv[1]))
