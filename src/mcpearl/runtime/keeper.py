"""Keepers: regular looks at what changes by itself, such as sessions that may have expired.

A keeper is a timer that runs only while there is something to look after. A look that fails is
logged, and the next one comes after the delays of the project's back-off: a fault in one entry does
not end the keeping of all.
"""

import asyncio
import logging
from collections.abc import Callable

from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.runtime.tree import Node

logger = logging.getLogger("mcpearl.keeper")

_AFTER_FAILURE = Backoff(delays=doubling(1.0, 60.0), settled_after=0.0)


class Keeper:
    """Looks after something.

    Args:
        name: What is looked after, for the log and the tree.
        look: Returns the seconds until the next look, or None when nothing is left.
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
        """Return it as a part of a tree: each look that failed was followed by another."""
        return Node(
            name=self._name, state="running", restarts=self.failures, last_error=self.last_error
        )

    def wake(self, seconds: float) -> None:
        """Look after so many seconds, unless a look is due anyway."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def stop(self) -> None:
        """Look no more, until it is woken again."""
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
