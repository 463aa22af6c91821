"""What the SDKs do when something goes wrong: `comparison.py SDK` plays all scenes, and prints them.

It is run with the Python that has the SDK. Client and server are of the same SDK, over stdio; each scene
has a process for each of them.
"""

import asyncio
import os
import sys
import threading
import traceback
from typing import Any

SDK = sys.argv[1]
PATIENCE = 60.0


def make_server() -> Any:
    """Return a server with the tools of all scenes."""
    if SDK == "mcpearl":
        from mcpearl import Server

        app: Any = Server("scenes")
    elif SDK == "fastmcp":
        from fastmcp import FastMCP

        app = FastMCP("scenes")
    else:
        from mcp.server import MCPServer

        app = MCPServer("scenes")

    @app.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool()
    async def die() -> str:
        os._exit(9)

    @app.tool()
    async def loud() -> str:
        print("this is not a message", flush=True)
        os.write(1, b"nor is this\n")
        return "quiet"

    released = threading.Event()

    @app.tool()
    def block() -> str:
        return "released" if released.wait(PATIENCE) else "on its own"

    @app.tool()
    async def release() -> str:
        released.set()
        return "done"

    return app


def make_client() -> Any:
    """Return a client of the server that this program is when it is told to serve."""
    command = [sys.executable, __file__, SDK, "serve"]
    if SDK == "mcpearl":
        from mcpearl import Client, Reconnect

        return Client(command, reconnect=Reconnect(delays=(0.1,)))
    if SDK == "fastmcp":
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        return Client(StdioTransport(command[0], command[1:]))
    from mcp import Client, StdioServerParameters

    return Client(StdioServerParameters(command=command[0], args=command[1:]))


async def call(client: Any, name: str, **arguments: Any) -> str:
    """Call a tool; return `answered`, `tool error`, or `failed` for any other end of the call."""
    try:
        result = await asyncio.wait_for(client.call_tool(name, arguments), PATIENCE)
    except Exception as error:
        return "tool error" if type(error).__name__ == "ToolError" else "failed"
    return "tool error" if result.is_error else "answered"


async def server_dies(client: Any) -> str:
    """The process of the server ends in a call. Is the next call of the same client answered?"""
    await call(client, "die")
    return await call(client, "add", a=1, b=2)


async def stdout(client: Any) -> str:
    """A tool writes to standard output, also past Python. Are that call and the next one answered?"""
    first = await call(client, "loud")
    return f"{first}, {await call(client, 'add', a=1, b=2)}"


async def text_for_a_number(client: Any) -> str:
    """A client sends `"1"` where the schema has a number."""
    return await call(client, "add", a="1", b=2)


async def a_function_blocks(client: Any) -> str:
    """A plain `def` blocks until another call is served. Is it?"""
    blocked = asyncio.ensure_future(call(client, "block"))
    await asyncio.sleep(0)
    return f"{await call(client, 'release')}, {await blocked}"


SCENES = {
    each.__name__: each for each in (server_dies, stdout, text_for_a_number, a_function_blocks)
}


async def play(scene: str) -> None:
    """Play a scene, and print its name and what was seen."""
    client = make_client()
    await client.__aenter__()
    print(f"{scene}: {await SCENES[scene](client)}", flush=True)
    os._exit(0)  # a client whose server is gone may not be able to leave


def main() -> None:
    """Play each scene in a process of its own; the SDK is loaded once."""
    make_client()
    for scene in SCENES:
        player = os.fork()
        if player == 0:
            try:
                asyncio.run(play(scene))
            finally:
                traceback.print_exc()
                os._exit(1)
        os.waitpid(player, 0)


if __name__ == "__main__":
    if sys.argv[2:] == ["serve"]:
        make_server().run()
    else:
        main()
