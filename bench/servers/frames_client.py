"""The client whose frames are counted: ``python frames_client.py <url> <version> <calls>``.

Prints the frames by period as JSON; every call is one.
"""

import asyncio
import json
import sys

import uvloop
from frame_count import FrameCount

from mcpearl import Client

WARM_UP = 4


async def main(url: str, version: str, calls: int) -> None:
    count = FrameCount()
    async with Client(url, protocol=version) as client:
        for number in range(WARM_UP + calls + 1):
            if number == WARM_UP:
                count.start()
            count.mark()
            await client.call_tool("add", {"a": number, "b": 7 * number})
            await asyncio.sleep(0)  # the callbacks the answer has scheduled
        periods = count.stop()
    print(json.dumps(periods))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
