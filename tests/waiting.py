"""Waiting for a condition: the one way in which a test waits for something to come about."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0  # seconds; only a failing test ever waits for so long


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


async def eventually(
    condition: Callable[[], Any],
    within: float = PATIENCE,
    otherwise: Callable[[], Any] = lambda: None,
) -> Any:
    """Wait until `condition` returns something true, and return that.

    Args:
        condition: Called again and again; may be a coroutine function.
        within: Seconds, in real time, after which the test fails.
        otherwise: Called when it fails; what it returns is part of the message.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            text = f"did not come about within {within:g} s: {inspect.getsource(condition).strip()}"
            raise AssertionError(text if (seen := otherwise()) is None else f"{text}\n{seen}")
        await asyncio.sleep(0.005)
