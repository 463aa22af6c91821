"""One server on a TCP port, a Unix socket and a WebSocket at once, and a client for each.

python examples/many_wires.py
"""

import asyncio
import socket
import tempfile
from pathlib import Path

from mcpearl import Client, Context, Server, Tcp, Unix, WebSocket

app = Server("visitors", version="1.0.0")
visits: list[str] = []


@app.tool
async def visit(name: str, *, ctx: Context) -> str:
    """Sign the visitors' book."""
    visits.append(name)
    await ctx.progress(1, 1)
    return f"Welcome {name}, visitor number {len(visits)}."


async def call(name: str, address: str) -> None:
    """Call the server at one address."""
    async with Client(address) as client:
        result = await client.call_tool("visit", {"name": name})
        scheme = address.partition(":")[0]
        print(f"{scheme}: {result.structured_content}")


async def until_open(port: int) -> None:
    """Wait until the port accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def main() -> None:
    """Serve on three wires, call each of them, then stop."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visitors.sock"
        tcp, ws = free_port(), free_port()
        serving = asyncio.create_task(app.serve(Unix(path=path), Tcp(port=tcp), WebSocket(port=ws)))
        await until_open(ws)
        await call("Ada", f"tcp://127.0.0.1:{tcp}")
        await call("Grace", f"unix://{path}")
        await call("Barbara", f"ws://127.0.0.1:{ws}")
        serving.cancel()
        await asyncio.wait([serving])


if __name__ == "__main__":
    asyncio.run(main())
