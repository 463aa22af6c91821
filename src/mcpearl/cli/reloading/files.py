"""Which files of a directory changed: looked at now and then, by time and size."""

import asyncio
import os
from pathlib import Path

_INTERVAL = 0.25  # seconds between two looks
_STILL = 0.1  # seconds without a change after which files are taken as written
_MOST = 20_000  # files that are looked at
_PASSED_OVER = {"__pycache__", "node_modules", "site-packages", "dist", "build"}

Snapshot = dict[str, tuple[int, int]]


class SourceFiles:
    """The Python files below a directory.

    Args:
        folder: the directory.
        also: further files, such as one with variables.
    """

    def __init__(self, folder: Path, also: tuple[Path, ...] = ()) -> None:
        self.folder = folder
        self._also = also
        self._seen = self._look()

    async def changed(self) -> list[Path]:
        """Wait until files change and are written to the end, and return them."""
        while True:
            await asyncio.sleep(_INTERVAL)
            now = await asyncio.to_thread(self._look)
            if now == self._seen:
                continue
            while (after := await self._later()) != now:
                now = after
            differing = self._seen.items() ^ now.items()
            self._seen = now
            return sorted({Path(path) for path, _ in differing})

    async def _later(self) -> Snapshot:
        await asyncio.sleep(_STILL)
        return await asyncio.to_thread(self._look)

    def _look(self) -> Snapshot:
        found: Snapshot = {}
        waiting = [str(self.folder)]
        while waiting and len(found) < _MOST:
            try:
                entries = list(os.scandir(waiting.pop()))
            except OSError:
                continue  # it is gone, or not for this user
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_passed_over(entry):
                        waiting.append(entry.path)
                elif entry.name.endswith(".py"):
                    _note(found, entry.path)
        for path in self._also:
            _note(found, str(path))
        return found


def _is_passed_over(folder: "os.DirEntry[str]") -> bool:
    name = folder.name
    return name.startswith(".") or name in _PASSED_OVER or Path(folder.path, "pyvenv.cfg").exists()


def _note(found: Snapshot, path: str) -> None:
    try:
        state = Path(path).stat()
    except OSError:
        return
    found[path] = (state.st_mtime_ns, state.st_size)
