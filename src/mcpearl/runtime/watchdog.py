"""Detects code that holds up an event loop: it computes, or waits without `await`."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

# More seconds to wait: if the whole process was suspended, the loop needs a moment to run again.
_GRACE = 0.25


class Watchdog:
    """A thread that checks again and again whether a loop still runs. A service for a supervisor.

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
        self._end: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start to watch the running loop, which belongs to the current thread.

        That the system has no thread left is not an error here, but the reason that `ended` raises: a
        server does without a watchdog meanwhile.
        """
        loop = asyncio.get_running_loop()
        self._stopping, self._end = threading.Event(), loop.create_future()
        watched = loop, threading.get_ident(), self._stopping, self._end
        thread = threading.Thread(
            target=self._run, args=watched, name="mcpearl-watchdog", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._end.set_exception(error)

    async def ended(self) -> None:
        """Wait until the thread ends by itself; raises the error it ended with."""
        assert self._end is not None
        await self._end

    async def stop(self) -> None:
        """Stop watching. The thread ends soon after; waiting for it would hold up the loop."""
        self._stopping.set()

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: int,
        stopping: threading.Event,
        end: "asyncio.Future[None]",
    ) -> None:
        failure: Exception | None = None
        try:
            self._watch(loop, thread, stopping)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_finish, end, failure)

    def _watch(
        self, loop: asyncio.AbstractEventLoop, thread: int, stopping: threading.Event
    ) -> None:
        while not stopping.wait(self._patience):
            turned = threading.Event()
            asked = time.monotonic()
            loop.call_soon_threadsafe(turned.set)
            if turned.wait(self._patience) or turned.wait(_GRACE) or stopping.is_set():
                continue
            frame = sys._current_frames().get(thread)
            if frame is None:
                return
            self._held_up(frame)
            del frame
            while not turned.wait(self._patience):
                if stopping.is_set():
                    return
            self._went_on(time.monotonic() - asked)


def _finish(end: "asyncio.Future[None]", failure: Exception | None) -> None:
    if end.done():
        return
    if failure is None:
        end.set_result(None)
    else:
        end.set_exception(failure)
        end.exception()  # marks it as retrieved: nothing may wait for it
