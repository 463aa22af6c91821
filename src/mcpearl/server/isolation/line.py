"""The line from an isolated process to its server: blocking where the process has no event loop."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from mcpearl.runtime.isolation.frames import Framer, Kind, frame
from mcpearl.runtime.isolation.inbox import LARGEST, payload_of
from mcpearl.server.isolation.messages import Ask, decode_reply, exception, pack

_CHUNK = 64 * 1024
_LONGEST = 2**32 - 1  # the server decides what it sends


class Line:
    """One process's connection to its server, without an event loop: what is asked is waited for.

    Args:
        connection: Carries frames in both directions.
        inbox: Has the calls, of which the process takes one when it is free; see `inbox`.
    """

    def __init__(self, connection: socket.socket, inbox: socket.socket) -> None:
        connection.setblocking(True)
        self._socket = connection
        self._inbox = inbox
        self._mark = connection.recv(4, socket.MSG_WAITALL)
        self._framer = Framer(self._mark, _LONGEST)
        self._read: list[tuple[int, bytes]] = []  # in reverse order
        self._last = 0

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Write a frame."""
        self._socket.sendall(frame(self._mark, kind, *parts))

    def flush(self) -> None:
        """Write what waits to be written: nothing does."""

    def next_call(self) -> bytes | None:
        """Wait for the next call; None when the server needs this process no more."""
        message = self._inbox.recv(LARGEST)
        if not message:
            return None
        payload = payload_of(message)
        return self._large() if payload is None else payload

    def _large(self) -> bytes | None:
        """Read a call that is too large for the inbox."""
        while (got := self._receive()) is not None:
            if got[0] == Kind.CALL:  # anything else answers a question of a call that has ended
                return got[1]
        return None

    def _receive(self) -> tuple[int, bytes] | None:
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
        return self.ask_now(what, *arguments)

    def ask_now(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something; this process does nothing else until the answer is there.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        self._last += 1
        self.send(Kind.ASK, pack(Ask(self._last, what, list(arguments))))
        while (got := self._receive()) is not None:
            if decode_reply(got[1]).number == self._last:  # not of a call that has ended
                return _value(got[1])
        raise SystemExit(0)


class LoopLine(Line):
    """The same on an event loop, where several things may be asked at once.

    Args:
        connection: Carries frames in both directions.
        inbox: Has the calls.
    """

    def __init__(self, connection: socket.socket, inbox: socket.socket) -> None:
        super().__init__(connection, inbox)
        self.over = asyncio.Event()
        """Set when the server needs this process no more."""
        self._take: Callable[[bytes], None] | None = None
        self._listening = True  # to the inbox
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: list[bytes] = []

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Have a function called with the payload of each call; the next one after `is_free`."""
        self._take = take
        self._inbox.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)
        self._loop.add_reader(self._inbox, self.is_free)

    def is_free(self) -> None:
        """Take the next call if there is one, or else when it comes."""
        assert self._take is not None
        try:
            message = self._inbox.recv(LARGEST)
        except BlockingIOError:
            if not self._listening:
                self._listening = True
                self._loop.add_reader(self._inbox, self.is_free)
            return
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._inbox)
        if not message:
            self.over.set()
            return
        payload = payload_of(message)
        if payload is not None:
            self._take(payload)

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

    def ask_now(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something; the loop stands still until the answer is there."""
        if threading.get_ident() != self._thread:
            asking = self.ask(what, *arguments)
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        self._last += 1
        number = self._last
        self._waiting[number] = answer = self._loop.create_future()
        self.send(Kind.ASK, pack(Ask(number, what, list(arguments))))
        self.flush()
        try:
            while not answer.done():
                if self.over.is_set():
                    raise SystemExit(0)
                self._readable()  # which waits: the connection is a blocking one
            return _value(answer.result())
        finally:
            del self._waiting[number]

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
