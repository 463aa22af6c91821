"""A client that follows many resources, says what it hears of them and waits to be killed.

python holder.py TARGET VERSION COUNT [CA]
"""

import asyncio
import sys
from typing import Any

from mcpearl import Client, Tls


async def main() -> None:
    target = sys.argv[1] if "://" in sys.argv[1] else sys.argv[1].split(" ")
    tls = Tls(ca=sys.argv[4]) if len(sys.argv) > 4 else None
    async with Client(target, protocol=sys.argv[2], tls=tls, on_notification=tell) as client:
        uris = [f"thing://{number}" for number in range(int(sys.argv[3]))]
        for start in range(0, len(uris), 100):
            await asyncio.gather(*map(client.subscribe, uris[start : start + 100]))
        print("ready", flush=True)
        await asyncio.Event().wait()


def tell(notice: Any) -> None:
    print(notice.params.uri, flush=True)


asyncio.run(main())
