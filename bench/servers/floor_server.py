"""The least a Python server does for a call on stdio: uvloop, msgspec, and a task per call.

No rule of the protocol is kept, so this is the limit the other servers are compared with. It decodes the
envelope with its params left raw, then the params into the tool's type, as any server with more than one
method and one tool has to. Each call gets a task, because a tool may wait; the set keeps the tasks alive,
which the loop alone does not. uvloop joins what the calls of one iteration write.
"""

import asyncio
import sys

import uvloop
from floor_messages import INITIALIZED, called, initialized, read


class FloorProtocol(asyncio.Protocol):
    """Standard input, one message a line. uvloop joins the writes of one iteration."""

    def __init__(self, output: asyncio.WriteTransport, ended: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._ended = ended
        self._unread = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            task = self._loop.create_task(self._serve(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, line: bytes) -> None:
        envelope = read(line)
        if envelope.method == "tools/call":
            self._output.write(await called(envelope) + b"\n")
        elif envelope.method != INITIALIZED:
            self._output.write(initialized(envelope) + b"\n")

    def eof_received(self) -> None:
        self._ended.set()


async def main() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    output, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: FloorProtocol(output, ended), sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main())
