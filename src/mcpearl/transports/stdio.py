"""The server's end of stdio: messages on the process's own standard input and output.

The real descriptors are taken away from everyone else first: whatever user code prints, or a library
or child process writes to descriptor 1, goes to stderr, and nobody else can read the protocol's
input. Input that is no pipe or socket (a file) is read by a thread.
"""

import asyncio
import os
import stat
import sys
import threading

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
        self._saved: tuple[int, int] | None = None  # what descriptors 0 and 1 were

    async def open(self, receiver: Receiver) -> None:
        """Take the standard streams over and begin to read."""
        loop = asyncio.get_running_loop()
        self._saved = source, sink = _take_over()
        protocol = self._protocol = StreamProtocol(receiver, self._limits)
        output = os.fdopen(os.dup(sink), "wb", 0)
        if _is_selectable(sink):
            writer, _ = await loop.connect_write_pipe(lambda: _OutputProtocol(protocol), output)
            self._writer = writer
        else:
            self._writer = writer = _FileWriter(output)
        protocol.outbox.attach(writer)
        if _is_selectable(source):
            self._reader, _ = await loop.connect_read_pipe(
                lambda: protocol, os.fdopen(os.dup(source), "rb", 0)
            )
        else:
            threading.Thread(
                target=_read_file, args=(os.dup(source), protocol, loop), daemon=True
            ).start()

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
        protocol.outbox.flush()
        for _ in range(200):  # 2 s for a reader that is slow; one that is gone ends it by itself
            if protocol.finished or protocol.outbox.empty():
                break
            await asyncio.sleep(0.01)
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        if self._saved is not None:
            _give_back(*self._saved)
        protocol.finish(None)


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

    def __init__(self, output: object) -> None:
        super().__init__()
        self._output = output

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self._output.write(data)  # type: ignore[attr-defined]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return bool(self._output.closed)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._output.close()  # type: ignore[attr-defined]


def _take_over() -> tuple[int, int]:
    """Move descriptors 0 and 1 away; leave an empty input and stderr in their places."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _give_back(source: int, sink: int) -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        pass
    os.dup2(source, 0)
    os.dup2(sink, 1)
    os.close(source)
    os.close(sink)


def _is_selectable(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _read_file(descriptor: int, protocol: StreamProtocol, loop: asyncio.AbstractEventLoop) -> None:
    """Read what the loop cannot wait for."""
    try:
        while data := os.read(descriptor, _READ_SIZE):
            loop.call_soon_threadsafe(protocol.data_received, data)
        loop.call_soon_threadsafe(protocol.eof_received)
    except (OSError, RuntimeError):
        pass
    finally:
        os.close(descriptor)
