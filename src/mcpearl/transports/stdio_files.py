"""Standard input and output that the loop cannot poll: files, and a terminal."""

import asyncio
import os
import threading
from typing import BinaryIO

from mcpearl.transports.stream import StreamProtocol

_READ_SIZE = 256 * 1024


class FileWriter(asyncio.WriteTransport):
    """Standard output redirected to a file: writing never waits."""

    def __init__(self, output: BinaryIO, stream: StreamProtocol) -> None:
        super().__init__()
        self._output = output
        self._stream = stream

    def write(self, data: bytes) -> None:  # type: ignore[override]
        try:
            self._output.write(data)
            self._output.flush()
        except OSError as error:  # for example, the disk is full
            self._stream.finish(error)

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
            self._stream.finish(error)


class FileReader(asyncio.ReadTransport):
    """Standard input that the loop cannot poll, read by a thread, one piece at a time."""

    def __init__(
        self, descriptor: int, stream: StreamProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._stream = stream
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
            self._stream.eof_received()
            return
        self._stream.take_bytes(data)
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
