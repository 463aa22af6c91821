"""Own client to own server in one process, one call at a time. Runs in the environment of a peer.

``python in_memory.py <peer> <calls>`` prints, as JSON, the calls per second of each way the peer has.
"""

import asyncio
import json
import sys
import time
from typing import Any


def mcpearl_clients() -> dict[str, Any]:
    from mcpearl_server import app

    from mcpearl import Client

    return {"default": Client(app)}


def mcp_clients() -> dict[str, Any]:
    from mcp import Client
    from mcp_server import app

    # The default hands requests over as objects; the legacy session goes through streams.
    return {"default": Client(app), "legacy": Client(app, mode="legacy")}


def fastmcp_clients() -> dict[str, Any]:
    from fastmcp import Client
    from fastmcp_server import app

    return {"default": Client(app)}


async def calls_per_second(client: Any, calls: int) -> float:
    started = time.perf_counter()
    results = [await client.call_tool("add", {"a": i, "b": 7 * i}) for i in range(calls)]
    elapsed = time.perf_counter() - started
    for i, result in enumerate(results):
        if result.structured_content != {"result": 8 * i}:
            sys.exit(f"add({i}, {7 * i}) returned {result}")
    return calls / elapsed


async def measure(client: Any, calls: int) -> float:
    async with client:
        await calls_per_second(client, calls // 5)  # to warm up
        return await calls_per_second(client, calls)


async def main(peer: str, calls: int) -> None:
    clients = globals()[f"{peer}_clients"]()
    print(json.dumps({way: await measure(client, calls) for way, client in clients.items()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
