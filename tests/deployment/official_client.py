"""Calls tools of the scene with the client of the official Python SDK: `URL NAME SECONDS MODE`.

It prints each outcome as a line.
"""

import asyncio
import json
import sys
import time
import warnings
from typing import Any

import mcp_types as types
from mcp import Client, MCPError

TOOLS = ("record", "count", "ask", "sample")
URL, NAME, SECONDS, MODE = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
warnings.simplefilter("ignore")


async def agree(*_: Any) -> types.ElicitResult:
    """Accept every question."""
    return types.ElicitResult(action="accept", content={"a": "b"})


async def sample(*_: Any) -> types.CreateMessageResult:
    """Answer for a model."""
    said = types.TextContent(type="text", text="Yes.")
    return types.CreateMessageResult(role="assistant", content=said, model="parrot-1")


async def use(client: Client, until: float) -> None:
    """Call tools one after the other."""
    number = 0
    while time.monotonic() < until:
        number += 1
        key = f"{NAME}-{number}"
        try:
            async with asyncio.timeout(20):
                result = await client.call_tool(TOOLS[number % len(TOOLS)], {"key": key})
            outcome = "failed" if result.is_error else "answered"
        except (MCPError, TimeoutError) as error:
            outcome = f"refused: {error}"
        print(json.dumps([key, outcome]), flush=True)
        await asyncio.sleep(0.02)


async def main() -> None:
    """Connect, as often as it takes, and call until time is up."""
    until = time.monotonic() + SECONDS
    client = Client(URL, mode=MODE, elicitation_callback=agree, sampling_callback=sample)
    async with client:
        await use(client, until)


if __name__ == "__main__":
    asyncio.run(main())
