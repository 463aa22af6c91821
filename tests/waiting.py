"""Waiting: `eventually` of the testing kit, and what tests of our own internals need beside it."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from mcpearl.testing.waiting import PATIENCE, eventually

__all__ = ["PATIENCE", "at_rest", "eventually", "turns", "wait_until"]


def wait_until(condition: Callable[[], Any], otherwise: Callable[[], Any] = lambda: None) -> Any:
    """Wait in this thread until `condition` returns something true, and return that.

    This is `eventually` for tests without an event loop. A condition may raise to end the wait, for
    example because a process has ended. What `otherwise` returns is part of the message of a failure.
    """
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            source = inspect.getsource(condition).strip()
            raise AssertionError(f"did not come about: {source}\n{otherwise() or ''}")
        time.sleep(0.005)
    return value


async def turns(count: int = 100) -> None:
    """Let the loop turn, with what is on its way on sockets: what has not happened then will not.

    For both ends on one loop, and for work that waits for no timer.
    """
    for _ in range(count):
        await asyncio.sleep(0)


async def at_rest(measure: Callable[[], Any], still: float = 0.2) -> Any:
    """Wait until `measure` returns the same for `still` seconds, and return that."""
    deadline = time.monotonic() + PATIENCE
    value = measure()
    since = time.monotonic()
    while time.monotonic() - since < still:
        if time.monotonic() > deadline:
            raise AssertionError(f"still changing: {inspect.getsource(measure).strip()}")
        await asyncio.sleep(0.01)
        if (now := measure()) != value:
            value, since = now, time.monotonic()
    return value
