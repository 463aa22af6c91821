"""What mounting in a process adds to a call: ``python mcpearl_mounted.py <turns>`` prints microseconds.

The same tool is called in memory on a server, and on another one in which that server is mounted. The
two take turns, and processor time is counted, so that other processes matter little.
"""

import asyncio
import sys
import time
from statistics import median

from mcpearl_server import app

from mcpearl import Client, Server

CALLS = 100  # of one turn


async def seconds_per_call(client: Client, tool: str) -> float:
    began = time.process_time()
    for number in range(CALLS):
        result = await client.call_tool(tool, {"a": number, "b": 1})
        if result.structured_content != {"result": number + 1}:
            sys.exit(f"{tool}({number}, 1) returned {result}")
    return (time.process_time() - began) / CALLS


async def main(turns: int) -> None:
    outer = Server("outer")
    outer.mount("inner", app)
    async with Client(app) as direct, Client(outer) as mounted:
        added = []
        for turn in range(turns + 1):
            await asyncio.sleep(0)  # in memory nothing waits, and the loop has other work too
            without = await seconds_per_call(direct, "add")
            within = await seconds_per_call(mounted, "inner__add")
            if turn:  # the first one warms up
                added.append(within - without)
    print(median(added) * 1e6)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
