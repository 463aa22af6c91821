"""The line from an isolated process to its server: blocking where the process has no event loop."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from mcpearl.runtime.isolation.frames import Framer, Kind, frame
from mcpearl.server.isolation.messages import Ask, decode_reply, exception, pack

_CHUNK = 256 * 1024
_LONGEST = 2**32 - 1  # the server decides what it sends


class Line:
    """One process's connection to its server, without an event loop: what is asked is waited for.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._socket = connection
        self._mark = connection.recv(4, socket.MSG_WAITALL)
        self._framer = Framer(self._mark, _LONGEST)
        self._read: list[tuple[int, bytes]] = []  # in reverse order
        self._last = 0

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Write a frame."""
        self._socket.sendall(frame(self._mark, kind, *parts))

    def flush(self) -> None:
        """Write what waits to be written: nothing does."""

    def receive(self) -> tuple[int, bytes] | None:
        """Wait for the next frame; None when the server needs this process no more."""
        while not self._read:
            data = self._socket.recv(_CHUNK)
            if not data:
                return None
            self._read = self._framer.feed(data)[::-1]
        return self._read.pop()

    def tell(self, what: str, *arguments: Any) -> None:
        """Tell the server something of the call."""
        self.send(Kind.TELL, pack(Ask(0, what, list(arguments))))

    async def ask(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something, and return the answer.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        self._last += 1
        self.send(Kind.ASK, pack(Ask(self._last, what, list(arguments))))
        while (got := self.receive()) is not None:
            if decode_reply(got[1]).number == self._last:  # not of a call that has ended
                return _value(got[1])
        raise SystemExit(0)


class LoopLine(Line):
    """The same on an event loop, where several things may be asked at once.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.over = asyncio.Event()
        """Set when the server needs this process no more."""
        self._take: Callable[[bytes], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: list[bytes] = []

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Have a function called with the payload of each call."""
        self._take = take
        self._loop.add_reader(self._socket, self._readable)

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Write a frame, together with others of the same iteration of the loop."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.send, kind, *parts)
            return
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.append(frame(self._mark, kind, *parts))

    def flush(self) -> None:
        """Write what waits to be written. The process waits with it while the server does not read."""
        outgoing, self._outgoing = self._outgoing, []
        if outgoing:
            self._socket.sendall(b"".join(outgoing))

    async def ask(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something, and return the answer."""
        self._last += 1
        number = self._last
        self._waiting[number] = answer = self._loop.create_future()
        self.send(Kind.ASK, pack(Ask(number, what, list(arguments))))
        try:
            return _value(await answer)
        finally:
            self._waiting.pop(number, None)

    def _readable(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            self._loop.remove_reader(self._socket)
            self.over.set()
            return
        for kind, payload in self._framer.feed(data):
            if kind == Kind.CALL:
                assert self._take is not None
                self._take(payload)
            else:
                answer = self._waiting.get(decode_reply(payload).number)
                if answer is not None and not answer.done():
                    answer.set_result(payload)


def _value(payload: bytes) -> Any:
    reply = decode_reply(payload)
    if reply.cancelled:
        raise asyncio.CancelledError
    if reply.raised is not None:
        raise exception(reply.raised)
    return reply.value
