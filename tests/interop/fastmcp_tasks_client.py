"""FastMCP's client with its tasks extension; prints what it met as one JSON object.

Run by the interpreter of FastMCP's environment: fastmcp_tasks_client.py <url | command [argument...]>
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp_tasks import call_tool_task  # type: ignore[import-not-found]


async def answer(message: str, response_type: Any, params: Any, context: Any) -> dict[str, str]:
    """Fill in the one form there is."""
    return {"name": "Ada"}


async def walk(target: Any) -> dict[str, Any]:
    """Call each tool, as a call and as a task."""
    met: dict[str, Any] = {}
    async with Client(target, elicitation_handler=answer) as client:
        met["called"] = (await client.call_tool("double", {"number": 4})).data
        task = await call_tool_task(client, "double", {"number": 5})
        met["first"] = (await task.status()).status
        met["result"] = (await task.result()).data
        met["greeting"] = (await client.call_tool("greet")).data
        failed = await call_tool_task(client, "broken")
        try:
            await failed.result()
        except Exception as error:
            met["error"] = str(error)
        ended = await call_tool_task(client, "endless")
        await ended.cancel()
        met["cancelled"] = (await ended.wait(timeout=20)).status
    return met


target = sys.argv[1:]
transport = target[0] if target[0].startswith("http") else StdioTransport(target[0], target[1:])
print(json.dumps(asyncio.run(walk(transport))))
