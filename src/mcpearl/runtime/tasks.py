"""Starting a coroutine as a task, eagerly where Python can, so that short work never waits a turn."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

if sys.version_info >= (3, 12):

    def spawn(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Run `work` up to its first wait now, and the rest on the loop."""
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def spawn(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Run `work` on the loop."""
        return loop.create_task(work)
