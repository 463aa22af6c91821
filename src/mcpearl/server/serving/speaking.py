"""What a server writes to stderr by itself: log records, unless the application configured logging."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

from mcpearl.server.serving import environment

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def speaking(
    form: Literal["text", "json"], *, sessions: bool = True, prints: bool = True
) -> Iterator[None]:
    """Show log records of mcpearl on stderr if nothing else shows them, and flush prints at once.

    Warnings of loggers without a handler, such as those of the application, look the same. Python shows
    them by its handler of last resort, which a configuration replaces whenever it comes.

    Args:
        form: How the records look.
        sessions: Whether to show sessions that begin and end; on stdio there is only one.
        prints: Whether stdout is for prints; on stdio it belongs to the client.
    """
    if prints:
        _show_prints()
    logger = logging.getLogger("mcpearl")
    if logger.hasHandlers():
        yield
        return
    handler, last_resort = _handler(form), logging.lastResort
    lives = logging.getLogger("mcpearl.sessions")
    before, lives_before = logger.level, lives.level
    if before == logging.NOTSET:
        logger.setLevel(environment.log_level())
    if not sessions and lives_before == logging.NOTSET:
        lives.setLevel(max(logging.WARNING, logger.level))
    logger.addHandler(handler)
    if last_resort is not None:
        logging.lastResort = _handler(form, last_resort.level)
    try:
        yield
    finally:
        logging.lastResort = last_resort
        logger.removeHandler(handler)
        logger.setLevel(before)
        lives.setLevel(lives_before)


def _handler(form: str, level: int = logging.NOTSET) -> "logging.StreamHandler[TextIO]":
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(FORMAT))
    if form == "json":
        from mcpearl.telemetry.logs import AddIds, JsonFormatter

        handler.setFormatter(JsonFormatter())
        handler.addFilter(AddIds())
    return handler


def _show_prints() -> None:
    """Write the prints of handlers line by line, even if stdout is not a terminal."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
