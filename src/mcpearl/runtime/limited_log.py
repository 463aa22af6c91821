"""A rate-limited log of events that outsiders cause: the first in each second, and how many followed."""

import asyncio
import logging

EACH_SECOND = 10


class LimitedLog:
    """One kind of record of a logger.

    Args:
        logger: The logger.
        level: The level of the records.
        more: Logged with the number of the others, such as `refused %d more requests within a second`.
    """

    __slots__ = ("_left", "_level", "_logger", "_more", "_summary")

    def __init__(self, logger: logging.Logger, level: int, more: str) -> None:
        self._logger = logger
        self._level = level
        self._summary = more
        self._left = EACH_SECOND
        self._more = 0

    def note(self, message: str, *details: object) -> None:
        """Log a record, or count it. It must not contain secrets."""
        if not self._logger.isEnabledFor(self._level):
            return
        if self._left == EACH_SECOND:
            asyncio.get_running_loop().call_later(1.0, self._renew)
        if self._left == 0:
            self._more += 1
            return
        self._left -= 1
        self._logger.log(self._level, message, *details)

    def _renew(self) -> None:
        if self._more:
            self._logger.log(self._level, self._summary, self._more)
        self._left = EACH_SECOND
        self._more = 0
