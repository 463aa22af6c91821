"""A client that follows many resources and waits to be killed: `holder.py TARGET VERSION COUNT`."""

import asyncio
import sys

from mcpearl import Client


async def main() -> None:
    target = sys.argv[1] if "://" in sys.argv[1] else sys.argv[1].split(" ")
    async with Client(target, protocol=sys.argv[2]) as client:
        uris = [f"thing://{number}" for number in range(int(sys.argv[3]))]
        for start in range(0, len(uris), 100):
            await asyncio.gather(*map(client.subscribe, uris[start : start + 100]))
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
