"""What a test shares with server processes that it forked: flags and notes in memory that both have.

They work in one process as well, so a test need not know where its server is.
"""

import asyncio
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress

_LOOK_EVERY = 0.005  # seconds between two looks at what another process may have set


class SharedFlag:
    """An event that any of the processes sets, and any waits for."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)
        self._here = asyncio.Event()  # set by this process: no need to look

    def set(self) -> None:
        self._byte[0] = 1
        self._here.set()

    def clear(self) -> None:
        self._byte[0] = 0
        self._here.clear()

    def is_set(self) -> bool:
        return self._byte[0] == 1

    async def wait(self) -> None:
        while not self.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._here.wait()


class SharedNotes:
    """Short texts that the processes add, in the order they were added."""

    def __init__(self) -> None:
        self._file = os.memfd_create("notes")
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)

    def __del__(self) -> None:
        os.close(self._file)

    def append(self, text: str) -> None:
        os.write(self._file, f"{text}\n".encode())

    def __iter__(self) -> Iterator[str]:
        size = os.fstat(self._file).st_size
        return iter(os.pread(self._file, size, 0).decode().splitlines())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]
