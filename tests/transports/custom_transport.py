"""A transport as an application could write one: messages pass through queues, compressed."""

import asyncio
import zlib

from mcpearl import Receiver, Transport


class QueueTransport(Transport):
    receiver: Receiver
    peer: "QueueTransport"

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.reader = asyncio.create_task(self.read())

    async def read(self) -> None:
        while message := await self.inbox.get():
            await self.may_read.wait()
            self.receiver.received([zlib.decompress(message)])
            if self.inbox.empty():
                self.peer.receiver.writable(True)
        self.receiver.lost(None)

    def send(self, message: bytes, about: object = None) -> None:
        self.peer.inbox.put_nowait(zlib.compress(message, 1))
        if self.peer.inbox.qsize() > 100:
            self.receiver.writable(False)

    def pause(self) -> None:
        self.may_read.clear()

    def resume(self) -> None:
        self.may_read.set()

    async def close(self) -> None:
        self.peer.inbox.put_nowait(b"")
        self.inbox.put_nowait(b"")
        self.may_read.set()
        await asyncio.wait([self.reader])


def queue_pair() -> tuple[QueueTransport, QueueTransport]:
    one, other = QueueTransport(), QueueTransport()
    one.peer, other.peer = other, one
    return one, other
