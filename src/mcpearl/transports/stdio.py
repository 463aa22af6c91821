"""The server's end of stdio: messages on the process's own standard input and output.

The real descriptors are taken away from everyone else first: whatever user code prints, or a library
or child process writes to descriptor 1, goes to stderr, and nobody else can read the protocol's
input. Input that is no pipe or socket (a file, a terminal) is read by a thread.
"""

import asyncio
import os
import socket
import stat
import sys
import threading
from typing import BinaryIO

from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol
from mcpearl.transports.transport import Receiver

_READ_SIZE = 256 * 1024


class StdioTransport:
    """This process's standard streams, as a transport. There is one per process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._protocol: StreamProtocol | None = None
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._saved: tuple[_Saved, _Saved] | None = None  # what descriptors 0 and 1 were

    async def open(self, receiver: Receiver) -> None:
        """Take the standard streams over and begin to read."""
        loop = asyncio.get_running_loop()
        self._saved = _take_over()
        source, sink = (saved.descriptor for saved in self._saved)
        protocol = self._protocol = StreamProtocol(receiver, self._limits)
        if _is_one_socket(source, sink):
            await self._open_socket(sink, protocol, loop)
            return
        output = os.fdopen(os.dup(sink), "wb")
        if _is_selectable(sink):
            writer, _ = await loop.connect_write_pipe(lambda: _OutputProtocol(protocol), output)
            self._writer = writer
        else:
            self._writer = writer = _FileWriter(output, protocol)
        protocol.outbox.attach(writer)
        if _is_selectable(source):
            self._reader, _ = await loop.connect_read_pipe(
                lambda: _InputProtocol(protocol), os.fdopen(os.dup(source), "rb", 0)
            )
        else:
            self._reader = _FileReader(os.dup(source), protocol, loop)

    async def _open_socket(
        self, descriptor: int, protocol: StreamProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Read and write one socket, as inetd and socat hand it over."""
        stream = socket.socket(fileno=os.dup(descriptor))
        is_unix = stream.family == socket.AF_UNIX
        connect = loop.create_unix_connection if is_unix else loop.create_connection
        transport, _ = await connect(lambda: protocol, sock=stream)
        self._reader = self._writer = transport
        protocol.outbox.attach(transport)

    def send(self, message: bytes) -> None:
        """Take one message for the client."""
        if self._protocol is not None:
            self._protocol.send(message)

    def flush(self) -> None:
        """Write what was taken."""
        if self._protocol is not None:
            self._protocol.outbox.flush()

    def pause(self) -> None:
        """Stop reading."""
        if self._reader is not None and not self._reader.is_closing():
            self._reader.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._reader is not None and not self._reader.is_closing():
            self._reader.resume_reading()

    async def close(self) -> None:
        """Write what is left, then give the descriptors back."""
        protocol = self._protocol
        if protocol is None:
            return
        self._protocol = None
        await protocol.settle()
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        if self._saved is not None:
            _give_back(*self._saved)
        protocol.finish(None)


class _InputProtocol(asyncio.Protocol):
    """The read pipe. Its end is not the end of the connection: there may be answers to write."""

    def __init__(self, protocol: StreamProtocol) -> None:
        self._protocol = protocol

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._protocol.finish(exc)


class _OutputProtocol(asyncio.BaseProtocol):
    """Flow control of the write pipe, which has a protocol object of its own."""

    def __init__(self, protocol: StreamProtocol) -> None:
        self._protocol = protocol

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        # Nobody reads: there is nobody left to serve.
        self._protocol.finish(exc)


class _FileWriter(asyncio.WriteTransport):
    """Standard output redirected to a file: writing never waits."""

    def __init__(self, output: BinaryIO, protocol: StreamProtocol) -> None:
        super().__init__()
        self._output = output
        self._protocol = protocol

    def write(self, data: bytes) -> None:  # type: ignore[override]
        try:
            self._output.write(data)
            self._output.flush()
        except OSError as error:  # the disk is full, say
            self._protocol.finish(error)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._output.closed

    def close(self) -> None:
        try:
            self._output.close()
        except OSError as error:
            self._protocol.finish(error)


class _FileReader(asyncio.ReadTransport):
    """Standard input the loop cannot wait for, read by a thread, one piece at a time."""

    def __init__(
        self, descriptor: int, protocol: StreamProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._protocol = protocol
        self._loop = loop
        self._closing = False
        self._paused = False
        self._turn = threading.Event()  # the thread may read the next piece
        self._turn.set()
        threading.Thread(target=self._work, name="mcpearl-stdin", daemon=True).start()

    def _work(self) -> None:
        try:
            while self._turn.wait() and not self._closing:
                self._turn.clear()
                data = os.read(self._descriptor, _READ_SIZE)
                self._loop.call_soon_threadsafe(self._take, data)
                if not data:
                    break
        except (OSError, RuntimeError):
            pass  # unreadable, or the loop is gone
        finally:
            os.close(self._descriptor)

    def _take(self, data: bytes) -> None:
        if self._closing:
            return
        if not data:
            self._protocol.eof_received()
            return
        self._protocol.data_received(data)
        if not self._paused:
            self._turn.set()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._turn.set()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        self._turn.set()


class _Saved:
    """A standard descriptor put aside, to be given back as it was."""

    __slots__ = ("_blocking", "_number", "descriptor")

    def __init__(self, number: int) -> None:
        self._number = number
        self._blocking = os.get_blocking(number)
        self.descriptor = os.dup(number)

    def give_back(self) -> None:
        os.dup2(self.descriptor, self._number)
        os.close(self.descriptor)
        # The loop's setting is that of the open file, which others may share.
        os.set_blocking(self._number, self._blocking)


def _take_over() -> tuple[_Saved, _Saved]:
    """Move descriptors 0 and 1 away; leave an empty input and stderr in their places."""
    saved = _Saved(0), _Saved(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    _flush_printed()  # what was printed before and is still in Python's buffer, too
    return saved


def _give_back(source: _Saved, sink: _Saved) -> None:
    _flush_printed()
    source.give_back()
    sink.give_back()


def _flush_printed() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass  # user code closed it, or there is none


def _is_one_socket(source: int, sink: int) -> bool:
    one, other = os.fstat(source), os.fstat(sink)
    return stat.S_ISSOCK(one.st_mode) and os.path.samestat(one, other)


def _is_selectable(descriptor: int) -> bool:
    # Not a terminal: it is one file for both directions, and watching the output would read it.
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
