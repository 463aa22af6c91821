"""Counts the Python frames that mcpearl enters between two marks, in the thread that starts it."""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import mcpearl

PACKAGE = str(Path(mcpearl.__file__).parent) + os.sep


class FrameCount:
    """What was entered between marks: one list of names per period, each as ``module:function``.

    A mark at the same point of every call makes a period the end of one call and the beginning of the
    next, which together are the frames of one call.
    """

    def __init__(self) -> None:
        self._periods: list[list[str]] = []

    def start(self) -> None:
        """Count from here on."""
        self._periods = [[]]
        sys.setprofile(self._profile)

    def mark(self) -> None:
        """Begin the next period."""
        if self._periods:
            self._periods.append([])

    def stop(self) -> list[list[str]]:
        """Return the whole periods: what came before the first mark and after the last is left out."""
        sys.setprofile(None)
        return self._periods[1:-1]

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
            self._periods[-1].append(f"{module}:{code.co_qualname}")
