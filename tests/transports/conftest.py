"""Which event loops the tests of a file run on: asyncio's, unless its `LOOPS` says more."""

import asyncio
from collections.abc import Callable
from typing import Any

Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Loops:
    return getattr(item.module, "LOOPS", {"asyncio": asyncio.new_event_loop})
