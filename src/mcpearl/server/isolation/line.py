"""The line from an isolated process to its server: blocking where the process has no event loop.

Frames do not say which call they are of: the server knows what the process has in hand. So nothing may
be told or asked for a call that has ended, by a thread it left behind or by a copy of the process.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from mcpearl.runtime.isolation.frames import FrameReader, Kind, frame
from mcpearl.runtime.isolation.inbox import LARGEST, is_end, payload_of
from mcpearl.runtime.isolation.zygote import Wiring
from mcpearl.server.isolation.messages import ContextRequest, decode_reply, exception, pack

_CHUNK = 64 * 1024
_LONGEST = 2**32 - 1  # the server decides what it sends


class BlockingLine:
    """A process's connection to its server, without an event loop: asking blocks until it is answered.

    Args:
        wiring: The descriptors of the process.
    """

    def __init__(self, wiring: Wiring) -> None:
        connection = wiring.connection
        connection.setblocking(True)
        self._socket = connection
        self._inbox = wiring.inbox
        self._answers = wiring.answers
        self._mark = connection.recv(4, socket.MSG_WAITALL)
        self._framer = FrameReader(self._mark, _LONGEST)
        self._read: list[tuple[int, bytes]] = []  # in reverse order
        self._last = 0
        self.call = 0
        """The number of the call in hand; 0 while there is none."""
        self._taken = 0  # calls so far
        self._copied = False  # whether this is a copy of the process, made by a tool
        self._writing = threading.Lock()
        self._asking = threading.Lock()  # held while an answer is waited for
        self._large: list[bytes] = []  # calls that were read while an answer was waited for
        os.register_at_fork(after_in_child=self._is_copied)

    def _is_copied(self) -> None:
        """Write nothing from now on: the line belongs to the process that this one was forked from."""
        self.call = 0
        self._copied = True
        self._writing = threading.Lock()
        self._asking = threading.Lock()

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Write a frame that is not of a call."""
        self._write(frame(self._mark, kind, payload))

    def _write(self, data: bytes) -> None:
        written = os.write(self._answers, data)
        while written < len(data):
            data = data[written:]
            written = os.write(self._answers, data)

    def end(self, kind: Kind, payload: bytes) -> None:
        """Write the last frame of the call in hand."""
        data = frame(self._mark, kind, payload)
        with self._writing:
            if self._copied:
                self._leave()
            self.call = 0
            self._write(data)

    def _leave(self) -> NoReturn:
        """End this process: it is a copy that a tool has forked, and the tool returned in it too."""
        os._exit(1)

    def _say(self, call: int, kind: Kind, asked: ContextRequest) -> bool:
        """Write a frame of a call; False when that has ended."""
        with self._writing:
            if call != self.call or not call:
                return False
            self._write(frame(self._mark, kind, pack(asked)))
            return True

    def flush(self) -> None:
        """Do nothing: frames are written at once."""

    def next_call(self) -> bytes | None:
        """Wait for the next call; None when the server does not need this process any more."""
        message = os.read(self._inbox, LARGEST)
        payload = payload_of(message)
        if payload is None:
            if is_end(message):
                return None
            payload = self._read_large()
        self._begin()
        return payload

    def _begin(self) -> None:
        self._taken += 1
        self.call = self._taken

    def _read_large(self) -> bytes | None:
        """Read a call that is too large for the inbox."""
        with self._asking:
            while not self._large:
                got = self._receive()
                if got is None:
                    return None
                if got[0] == Kind.CALL:  # anything else answers a question of a call that has ended
                    self._large.append(got[1])
            return self._large.pop()

    def _receive(self) -> tuple[int, bytes] | None:
        while not self._read:
            data = self._socket.recv(_CHUNK)
            if not data:
                return None
            self._read = self._framer.feed(data)[::-1]
        return self._read.pop()

    def tell(self, call: int, what: str, *arguments: Any) -> None:
        """Tell the server something of a call; does nothing once the call has ended."""
        self._say(call, Kind.TELL, ContextRequest(0, what, list(arguments)))

    async def ask(self, call: int, what: str, *arguments: Any) -> Any:
        """Ask the server for something, and return the answer.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        return self.ask_now(call, what, *arguments)

    def ask_now(self, call: int, what: str, *arguments: Any) -> Any:
        """Ask the server for something; this blocks the thread until the answer has arrived.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        with self._asking:
            self._last += 1
            if not self._say(call, Kind.ASK, ContextRequest(self._last, what, list(arguments))):
                raise asyncio.CancelledError
            while (got := self._receive()) is not None:
                if got[0] == Kind.CALL:  # this is not the thread that runs the calls
                    self._large.append(got[1])
                elif decode_reply(got[1]).number == self._last:  # not of a call that has ended
                    return _value(got[1])
        raise SystemExit(0)


class LoopLine(BlockingLine):
    """The same on an event loop, where several things may be asked at once.

    Args:
        wiring: The descriptors of the process.
    """

    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring)
        self.over = asyncio.Event()
        """Set when the server does not need this process any more."""
        self._take: Callable[[bytes], None] | None = None
        self._listening = True  # to the inbox
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: list[bytes] = []

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Have a function called with the payload of each call; the next one after `is_free`."""
        self._take = take
        os.set_blocking(self._inbox, False)
        self._loop.add_reader(self._socket, self._readable)
        self._loop.add_reader(self._inbox, self.is_free)

    def is_free(self) -> None:
        """Take the next call if there is one, or else when it comes."""
        assert self._take is not None
        try:
            message = os.read(self._inbox, LARGEST)
        except BlockingIOError:
            if not self._listening:
                self._listening = True
                self._loop.add_reader(self._inbox, self.is_free)
            return
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._inbox)
        payload = payload_of(message)
        if payload is not None:
            self._begin()
            self._take(payload)
        elif is_end(message):
            self.over.set()

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Write a frame, together with others of the same iteration of the loop."""
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.append(frame(self._mark, kind, payload))

    def end(self, kind: Kind, payload: bytes) -> None:
        """Write the last frame of the call in hand."""
        if self._copied:
            self._leave()
        self.call = 0
        self.send(kind, payload)

    def _say(self, call: int, kind: Kind, asked: ContextRequest) -> bool:
        if call != self.call or not call:
            return False
        self.send(kind, pack(asked))
        return True

    def _is_copied(self) -> None:
        super()._is_copied()
        self._outgoing = []  # which the other process writes

    def flush(self) -> None:
        """Write what waits to be written. The process waits with it while the server does not read."""
        outgoing, self._outgoing = self._outgoing, []
        if outgoing:
            self._write(b"".join(outgoing))

    def tell(self, call: int, what: str, *arguments: Any) -> None:
        """Tell the server something of a call, from any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.tell, call, what, *arguments)
        else:
            super().tell(call, what, *arguments)

    async def ask(self, call: int, what: str, *arguments: Any) -> Any:
        """Ask the server for something, and return the answer."""
        number, answer = self._put(call, what, *arguments)
        try:
            return _value(await answer)
        finally:
            self._waiting.pop(number, None)

    def _put(self, call: int, what: str, *arguments: Any) -> "tuple[int, asyncio.Future[bytes]]":
        """Send a question; return its number, and the answer to come."""
        self._last += 1
        if not self._say(call, Kind.ASK, ContextRequest(self._last, what, list(arguments))):
            raise asyncio.CancelledError
        self._waiting[self._last] = answer = self._loop.create_future()
        return self._last, answer

    def ask_now(self, call: int, what: str, *arguments: Any) -> Any:
        """Ask the server for something; this blocks the event loop until the answer has arrived."""
        if threading.get_ident() != self._thread:
            asking = self.ask(call, what, *arguments)
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        number, answer = self._put(call, what, *arguments)
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
                self._begin()
                self._take(payload)
            else:
                answer = self._waiting.get(decode_reply(payload).number)
                if answer is not None and not answer.done():
                    answer.set_result(payload)


class LineOfCall:
    """A line, for one call: once that has ended, nothing is told or asked any more.

    Args:
        line: The line of the process.
        call: The number of the call.
    """

    __slots__ = ("_call", "_line")

    def __init__(self, line: BlockingLine, call: int) -> None:
        self._line = line
        self._call = call

    @property
    def is_open(self) -> bool:
        """Whether the call is still in hand."""
        return self._call == self._line.call

    def tell(self, what: str, *arguments: Any) -> None:
        """Tell the server something of the call."""
        self._line.tell(self._call, what, *arguments)

    async def ask(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something, and return the answer.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        return await self._line.ask(self._call, what, *arguments)

    def ask_now(self, what: str, *arguments: Any) -> Any:
        """Ask the server for something; this blocks until the answer has arrived.

        Raises:
            asyncio.CancelledError: The call is over.
        """
        return self._line.ask_now(self._call, what, *arguments)


def _value(payload: bytes) -> Any:
    reply = decode_reply(payload)
    if reply.cancelled:
        raise asyncio.CancelledError
    if reply.raised is not None:
        raise exception(reply.raised)
    return reply.value
