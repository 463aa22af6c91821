"""Waiting for a condition, so that no test sleeps until something has probably happened."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0  # seconds; only a failing test ever waits for so long
_PAUSE = 0.005
_LONGEST_PAUSE = 0.05
_PAUSES = 4.0  # pauses are this many times as long as looking took, so that others can compute


async def eventually(
    condition: Callable[[], Any],
    within: float = PATIENCE,
    otherwise: Callable[[], Any] = lambda: None,
) -> Any:
    """Wait until `condition` returns something true, and return that.

    >>> await eventually(lambda: heard.logs)

    Args:
        condition: Called again and again; may be a coroutine function.
        within: Seconds, in real time, after which the test fails.
        otherwise: Called when it fails; what it returns is part of the message.
    """
    deadline = time.monotonic() + within
    while True:
        began = time.monotonic()
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            text = f"did not come about within {within:g} s: {_source(condition)}"
            raise AssertionError(text if (seen := otherwise()) is None else f"{text}\n{seen}")
        await asyncio.sleep(min(max(_PAUSE, _PAUSES * (now - began)), _LONGEST_PAUSE))


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # not from a file
        return repr(condition)
