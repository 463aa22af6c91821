"""The server's end of stdio: messages on the process's own standard input and output.

Descriptors 0 and 1 are moved away first: whatever user code prints, or a library or child process
writes to descriptor 1, goes to stderr, and no other code can read the protocol's input. Input that is
neither a pipe nor a socket (a file, a terminal) is read by a thread.
"""

import asyncio
import os
import socket
import stat
import sys
from typing import TYPE_CHECKING

from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol

if TYPE_CHECKING:
    from mcpearl.transports.transport import Receiver


class StdioTransport(StreamProtocol):
    """This process's standard streams, as a transport. There is one per process."""

    medium = "stdio"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._saved: tuple[_Saved, _Saved] | None = None  # the original descriptors 0 and 1

    async def open(self, receiver: "Receiver") -> None:
        """Take the standard streams over and begin to read."""
        loop = asyncio.get_running_loop()
        self.receiver = receiver
        self._saved = _take_over()
        source, sink = (saved.descriptor for saved in self._saved)
        if _is_one_socket(source, sink):
            await self._open_socket(sink, loop)
            return
        output = os.fdopen(os.dup(sink), "wb")
        if _is_selectable(sink):
            writer, _ = await loop.connect_write_pipe(lambda: _OutputProtocol(self), output)
            self._writer = writer
        else:
            from mcpearl.transports.stdio_files import FileWriter

            self._writer = writer = FileWriter(output, self)
        self.outbox.attach(writer)
        if _is_selectable(source):
            self._reader, _ = await loop.connect_read_pipe(
                lambda: _InputProtocol(self), os.fdopen(os.dup(source), "rb", 0)
            )
        else:
            from mcpearl.transports.stdio_files import FileReader

            self._reader = FileReader(os.dup(source), self, loop)

    async def _open_socket(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        """Read and write one socket, as inetd and socat hand it over."""
        stream = socket.socket(fileno=os.dup(descriptor))
        is_unix = stream.family == socket.AF_UNIX
        connect = loop.create_unix_connection if is_unix else loop.create_connection
        transport, _ = await connect(lambda: self, sock=stream)
        self._reader = self._writer = transport
        self.outbox.attach(transport)

    def pause(self) -> None:
        """Stop reading."""
        if self._reader is not None and not self._reader.is_closing():
            self._reader.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._reader is not None and not self._reader.is_closing():
            self._reader.resume_reading()

    async def close(self) -> None:
        """Write what is left, then restore the descriptors."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        await self.settle()
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        _restore(*saved)
        self.finish(None)


class _InputProtocol(asyncio.BaseProtocol):
    """The read pipe. Its end is not the end of the connection: there may be answers to write."""

    def __init__(self, stream: StreamProtocol) -> None:
        self.data_received = stream.take_bytes  # called directly by the loop
        self.eof_received = stream.eof_received
        self._stream = stream

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._stream.finish(exc)


class _OutputProtocol(asyncio.BaseProtocol):
    """Flow control of the write pipe, which has a protocol object of its own."""

    def __init__(self, stream: StreamProtocol) -> None:
        self._stream = stream

    def pause_writing(self) -> None:
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        self._stream.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream.finish(exc)  # without a reader there is no client left


class _Saved:
    """A standard descriptor moved aside, to be restored as it was."""

    __slots__ = ("_blocking", "_number", "descriptor")

    def __init__(self, number: int) -> None:
        self._number = number
        self._blocking = os.get_blocking(number)
        self.descriptor = os.dup(number)

    def restore(self) -> None:
        os.dup2(self.descriptor, self._number)
        os.close(self.descriptor)
        # The flag belongs to the open file, which other processes may share.
        os.set_blocking(self._number, self._blocking)


def _take_over() -> tuple[_Saved, _Saved]:
    """Move descriptors 0 and 1 away; leave an empty input and stderr in their places."""
    saved = _Saved(0), _Saved(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    _flush_printed()  # what is still in Python's buffer goes to stderr, too
    _print_lines_at_once()
    return saved


def _restore(source: _Saved, sink: _Saved) -> None:
    _flush_printed()
    source.restore()
    sink.restore()


def _flush_printed() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass  # closed by user code, or missing


def _print_lines_at_once() -> None:
    """Write what handlers print line by line. This also flushes the buffer, so it is done last."""
    try:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        pass  # closed or replaced by user code, or missing


def _is_one_socket(source: int, sink: int) -> bool:
    one, other = os.fstat(source), os.fstat(sink)
    return stat.S_ISSOCK(one.st_mode) and os.path.samestat(one, other)


def _is_selectable(descriptor: int) -> bool:
    # A terminal is not: it is one file for both directions, and polling the output would read it.
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
