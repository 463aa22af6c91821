"""Detects code that holds up an event loop: it computes, or waits without `await`."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger("mcpearl.server")

# More seconds to wait: if the whole process was suspended, the loop needs a moment to run again.
_GRACE = 0.25


class Watchdog:
    """A thread that checks again and again whether a loop still runs.

    Args:
        patience: Seconds without an answer after which the loop counts as held up.
        held_up: Called in the watchdog's thread with the innermost frame that runs on the loop.
        went_on: Called in the watchdog's thread when the loop runs again, with the seconds it took.
    """

    def __init__(
        self,
        patience: float,
        held_up: Callable[[FrameType], None],
        went_on: Callable[[float], None],
    ) -> None:
        if patience <= 0:
            raise ValueError("a loop needs some time for each turn")
        self._patience = patience
        self._held_up = held_up
        self._went_on = went_on
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start to watch the running loop, which belongs to the current thread."""
        watched = asyncio.get_running_loop(), threading.get_ident()
        thread = threading.Thread(
            target=self._watch, args=watched, name="mcpearl-watchdog", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left; calls may need the next one
            logger.warning("the event loop is not watched for calls that hold it up: %s", error)

    def stop(self) -> None:
        """Stop watching. The thread ends soon after; waiting for it would hold up the loop."""
        self._stopping.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._stopping.wait(self._patience):
            turned = threading.Event()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return  # the loop is closed
            if turned.wait(self._patience) or turned.wait(_GRACE) or self._stopping.is_set():
                continue
            frame = sys._current_frames().get(thread)
            if frame is None:
                return
            self._held_up(frame)
            del frame
            while not turned.wait(self._patience):
                if self._stopping.is_set():
                    return
            self._went_on(time.monotonic() - asked)
