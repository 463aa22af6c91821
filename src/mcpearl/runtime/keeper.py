"""Keepers: periodic checks of things that change by themselves, such as sessions that may have expired.

A keeper is a timer that runs only while there is something to check. A check ("look") that fails is
logged, and the next one comes after a back-off delay: a fault in one entry does not end the checks of
all others.
"""

import asyncio
import logging
from collections.abc import Callable

from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.runtime.tree import Node

logger = logging.getLogger("mcpearl.keeper")

_AFTER_FAILURE = Backoff(delays=doubling(1.0, 60.0), settled_after=0.0)


class Keeper:
    """Checks something periodically.

    Args:
        name: What is checked, for the log and the tree.
        look: The check. Returns the seconds until the next one, or None when nothing is left to check.
    """

    __slots__ = ("_look", "_name", "_retries", "_timer", "failures", "last_error")

    def __init__(self, name: str, look: Callable[[], float | None]) -> None:
        self._name = name
        self._look = look
        self._retries = Retries(_AFTER_FAILURE)
        self._timer: asyncio.TimerHandle | None = None
        self.failures = 0
        """How many looks failed."""
        self.last_error: str | None = None
        """The error of the last look that failed."""

    def node(self) -> Node:
        """Return the keeper as a node of the tree; each failed look counts as a restart."""
        return Node(
            name=self._name, state="running", restarts=self.failures, last_error=self.last_error
        )

    def wake(self, seconds: float) -> None:
        """Schedule a look in `seconds`, unless one is scheduled already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def stop(self) -> None:
        """Stop looking until it is woken again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        following: float | None
        try:
            following = self._look()
        except Exception as error:
            self.failures += 1
            self.last_error = f"{type(error).__name__}: {error}"
            following = self._retries.next_delay()
            logger.exception("%s: a look failed; the next is in %.1f s", self._name, following)
        else:
            self._retries.start_over()
        if following is not None:
            self.wake(following)
