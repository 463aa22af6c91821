"""Log records on their way to the pages: a handler that exists while one is open."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 300  # records that a page is shown when it is opened
_LONGEST = 4000  # characters of a record


class LogTap(logging.Handler):
    """Hands records of all loggers to the pages, and keeps the last ones.

    Args:
        show: Called with each record, on the thread that logs.
    """

    def __init__(self, show: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._show = show

    def start(self) -> None:
        """Begin to hear records, also of loggers that do not pass theirs on."""
        root, own = logging.getLogger(), logging.getLogger("mcpearl")
        root.addHandler(self)
        if not own.propagate:
            own.addHandler(self)

    def stop(self) -> None:
        """Hear no more, and forget what was kept."""
        logging.getLogger().removeHandler(self)
        logging.getLogger("mcpearl").removeHandler(self)
        self.kept.clear()

    def _hears_alone(self, name: str) -> bool:
        """Whether no other handler has the records of a logger."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on one record."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._hears_alone(record.name):
            last.handle(record)  # as it would be without this handler
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + (self.formatter or _PLAIN).formatException(record.exc_info)
            shown = {
                "at": record.created,
                "level": record.levelname,
                "logger": record.name,
                "text": text[:_LONGEST],
            }
            self.kept.append(shown)
            self._show(shown)
        except Exception:
            self.handleError(record)


_PLAIN = logging.Formatter()
