"""The least a Python server does to start: asyncio and msgspec, up to the answer to `initialize`."""

import asyncio
import sys

import msgspec

RESULT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "floor", "version": "1.0.0"},
}


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = msgspec.json.decode(line)
        if "id" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": RESULT}
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
