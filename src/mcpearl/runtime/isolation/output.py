"""The standard output and error of an isolated process. They are passed on; the last lines are kept."""

import asyncio
import os
import select
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from mcpearl.runtime import clock

_KEPT = 16 * 1024  # bytes of output that are kept
_SHOWN_LINES = 12
_FATAL = "Fatal Python error"  # where the interpreter's own account of a crash begins
_OWN_FRAME = f'  File "{Path(__file__).parents[2]}'  # where frames of this package begin
_CHUNK = 64 * 1024
_RATE = 256 * 1024  # bytes a second that are passed on; more is dropped
_PIECE = select.PIPE_BUF  # bytes that a pipe which is ready takes without blocking
_DROPPED = b"[isolated tools print too much; some of it was dropped]\n"


def _print(data: bytes) -> bool:
    """Write to this process's standard error; False if some of it would have to wait for the reader."""
    with suppress(OSError):
        for at in range(0, len(data), _PIECE):
            if not select.select([], [2], [], 0)[1]:
                return False
            os.write(2, data[at : at + _PIECE])
    return True


class ProcessOutput:
    """Reads what a process prints, and prints it as the server's own standard error."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.kept = bytearray()
        """The last bytes that were printed."""
        self._second = 0.0
        self._passed = 0  # bytes in this second
        self._dropped = False  # whether some were dropped since that was last reported
        loop.add_reader(self._reader, self._readable)

    def handed_over(self) -> None:
        """Close the end that the process has now."""
        os.close(self.writer)

    def forget(self) -> None:
        """Forget what was printed by earlier calls."""
        self.kept.clear()

    def _readable(self) -> None:
        if not self._read():
            self._loop.remove_reader(self._reader)

    def _read(self) -> bool:
        """Read once; False at the end."""
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return True
        self.kept += data
        del self.kept[:-_KEPT]
        self._pass_on(data)
        return bool(data)

    def _pass_on(self, data: bytes) -> None:
        now = clock.monotonic()
        if now - self._second >= 1:
            self._second, self._passed = now, 0
            if self._dropped:
                self._dropped = False
                data = _DROPPED + data
        self._passed += len(data)
        self._dropped = self._dropped or self._passed > _RATE or not _print(data)

    def close(self) -> str:
        """Stop reading; return the last lines that were printed."""
        self._loop.remove_reader(self._reader)
        self._read()
        os.close(self._reader)
        text = self.kept.decode(errors="replace").rstrip()
        _, fatal, stack = text.rpartition(_FATAL)
        if fatal:
            lines = (fatal + stack).splitlines()[:_SHOWN_LINES]
            return "\n".join(takewhile(lambda line: not line.startswith(_OWN_FRAME), lines))
        return "\n".join(text.splitlines()[-_SHOWN_LINES:])
