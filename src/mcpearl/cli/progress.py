"""A bar for what takes long, drawn on stderr and only on a terminal."""

import asyncio
import shutil
import sys
import time
from types import TracebackType
from typing import Any

from mcpearl.cli.output import CommandOutput, clean, colours, width

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE = 0.3  # seconds before anything is drawn: most things are over by then


class Progress:
    """Shows that something is going on, and how far it is.

    >>> async with Progress(out, "forecast") as progress:
    ...     await client.call_tool("forecast", on_progress=progress.heard)

    Args:
        out: where the command writes.
        label: what is going on.
    """

    def __init__(self, out: CommandOutput, label: str) -> None:
        self._on = out.live and not out.as_json
        self._label = clean(label)
        self._done: float | None = None
        self._total: float | None = None
        self._message = ""
        self._began = time.monotonic()
        self._ticking: asyncio.Task[None] | None = None
        self._drawn = False
        self._paused = False

    def heard(self, params: Any) -> None:
        """Take a progress notification."""
        self.update(params.progress, params.total, params.message or "")

    def update(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far it is.

        Args:
            done: how much is done.
            total: of how much; None if that is not known.
            message: what is being done.
        """
        self._done, self._total, self._message = done, total, " ".join(clean(message).split())
        self._paused = False

    def clear(self) -> None:
        """Take the bar away, until there is news."""
        self._paused = True
        if self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._drawn = False

    async def __aenter__(self) -> "Progress":
        if self._on:
            self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self.clear()

    async def _tick(self) -> None:
        await asyncio.sleep(_PATIENCE)
        frame = 0
        while True:
            if not self._paused:
                sys.stderr.write("\r\x1b[2K" + self._line(frame))
                sys.stderr.flush()
                self._drawn = True
            frame += 1
            await asyncio.sleep(0.1)

    def _line(self, frame: int) -> str:
        columns = shutil.get_terminal_size().columns - 1
        took = f"{time.monotonic() - self._began:.0f} s"
        if self._done is not None and self._total:
            share = min(1.0, max(0.0, self._done / self._total))
            text = f"{bar(share, 20)} {share:4.0%} {self._label} {took}"
        else:
            count = "" if self._done is None else f" {self._done:g}"
            text = f"{_FRAMES[frame % len(_FRAMES)]} {self._label}{count} {took}"
        text = f"{text}  {self._message}"
        while width(text) > columns:
            text = text[:-1]
        return f"\x1b[36m{text}\x1b[0m" if colours(sys.stderr) else text


def bar(share: float, columns: int) -> str:
    """Return a bar of so many columns that is filled to a share."""
    eighths = round(share * columns * 8)
    full, rest = divmod(eighths, 8)
    part = " ▏▎▍▌▋▊▉"[rest] if rest else ""
    return ("█" * full + part).ljust(columns, "░")
