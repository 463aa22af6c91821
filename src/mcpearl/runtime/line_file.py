"""A file of lines, written in the background: the event loop collects lines, a thread appends them.

A slow, full or missing disk neither delays a caller nor makes it fail: lines that do not fit into the
queue are dropped, and once the file can be written again, it says how many lines are missing.
"""

import asyncio
import logging
import os
import queue
import threading
from os import PathLike
from pathlib import Path

logger = logging.getLogger("mcpearl.files")

_INTERVAL = 0.1  # seconds for which lines are collected
_PATIENCE = 2.0  # seconds for what is left to be written at the end


class LineFile:
    """Appends lines to a file. If the file was moved or removed, as by `logrotate`, a new one is opened.

    Args:
        path: The file.
        limit: Batches of lines, ten a second at most, that may wait for the disk.
    """

    __slots__ = ("_fails", "_file", "_limit", "_lines", "_lost", "_path", "_thread", "_waiting")

    def __init__(self, path: str | PathLike[str], limit: int = 50) -> None:
        self._path = os.fspath(path)
        self._limit = limit
        self._lines: list[str] = []
        self._waiting: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None  # started with the first lines, after any fork
        self._file = -1
        self._lost = 0  # lines dropped since the last that was written
        self._fails = False  # the last attempt to write failed

    def put(self, line: str) -> None:
        """Write a line, which ends with a line feed. Only on the event loop."""
        if not self._lines:
            asyncio.get_running_loop().call_later(_INTERVAL, self._hand_over)
        self._lines.append(line)

    def close(self) -> None:
        """Write what is left, waiting for at most two seconds, and close the file."""
        self._hand_over()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(_PATIENCE)
            self._thread = None

    def _hand_over(self) -> None:
        lines = self._lines
        if not lines:
            return
        self._lines = []
        if self._waiting.qsize() >= self._limit:
            self._lost += len(lines)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mcpearl-lines", daemon=True)
            self._thread.start()
        self._waiting.put(lines)

    def _work(self) -> None:
        while (lines := self._waiting.get()) is not None:
            try:
                self._write(lines)
            except OSError as error:
                self._lost += len(lines)
                if not self._fails:
                    logger.error("%s cannot be written: %s; lines are lost", self._path, error)
                self._fails = True
            else:
                self._fails = False
        self._close()

    def _write(self, lines: list[str]) -> None:
        self._open()
        lost, self._lost = self._lost, 0
        if lost:
            lines.insert(0, f"({lost} lines are missing here)\n")
        try:
            data = "".join(lines).encode(errors="replace")
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            self._lost += lost
            raise

    def _open(self) -> None:
        """Open the file, or the new one of that name."""
        if self._file >= 0:
            try:
                found, own = Path(self._path).stat(), os.fstat(self._file)
                if (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev):
                    return
            except FileNotFoundError:
                pass
            self._close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
