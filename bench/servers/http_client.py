"""A peer's own client on its own server over HTTP. Runs in the environment of the peer.

``python http_client.py <peer> <url> <calls> <at once>`` prints, as JSON, the calls per second one at a
time and several at once, each in the era in which the client is faster.
"""

import asyncio
import json
import sys
import time
from typing import Any


def mcpearl_clients(url: str) -> list[Any]:
    from mcpearl import Client

    return [Client(url), Client(url, protocol="2025-11-25")]


def mcp_clients(url: str) -> list[Any]:
    from mcp import Client

    return [Client(url), Client(url, mode="legacy")]


def fastmcp_clients(url: str) -> list[Any]:
    from fastmcp import Client

    return [Client(url)]


async def call(client: Any, numbers: range) -> None:
    for number in numbers:
        result = await client.call_tool("add", {"a": number, "b": 7 * number})
        if result.structured_content != {"result": 8 * number}:
            sys.exit(f"add({number}, {7 * number}) returned {result}")


async def one_at_a_time(client: Any, calls: int, at_once: int) -> float:
    started = time.perf_counter()
    await call(client, range(calls))
    return calls / (time.perf_counter() - started)


async def several_at_once(client: Any, calls: int, at_once: int) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(call(client, range(first, calls, at_once)) for first in range(at_once)))
    return calls / (time.perf_counter() - started)


MEASURES = {"http_client_single": one_at_a_time, "http_client_many": several_at_once}


async def main(peer: str, url: str, calls: int, at_once: int) -> None:
    figures = dict.fromkeys(MEASURES, 0.0)
    for client in globals()[f"{peer}_clients"](url):
        async with client:
            await call(client, range(20))  # to warm up
            for name, measure in MEASURES.items():
                figures[name] = max(figures[name], await measure(client, calls, at_once))
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
