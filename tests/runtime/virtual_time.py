"""A loop whose time stands still until a test moves it, and the clock that goes with it."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from mcpearl.testing.clock import next_timer

_TURNS = 40


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, whose time is only what it was moved by."""

    ahead = 0.0

    def time(self) -> float:
        return self.ahead

    # What `mcpearl.runtime.clock` asks for.
    now = monotonic = time
    random_bytes = staticmethod(os.urandom)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, and what it caused, without letting time pass."""

        async def settled() -> Any:
            try:
                return await work
            finally:
                for _ in range(_TURNS):
                    await asyncio.sleep(0)

        return self.run_until_complete(settled())

    def advance(self, seconds: float) -> None:
        """Let time pass: each timer runs at its time, in order."""
        end = self.ahead + seconds
        while (due := next_timer(self)) is not None and due <= end:
            self.ahead = max(due, self.ahead)
            self.run(asyncio.sleep(0))
        self.ahead = end
        self.run(asyncio.sleep(0))
