"""What a server writes to stderr by itself: log records, unless the application configured logging."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mcpearl.server.serving import environment

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def speaking() -> Iterator[None]:
    """Show log records of mcpearl on stderr if nothing else shows them, and prints at once."""
    _show_prints()
    logger = logging.getLogger("mcpearl")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    before = logger.level
    if before == logging.NOTSET:
        logger.setLevel(environment.log_level())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _show_prints() -> None:
    """Write what handlers print line by line, even if stdout is not a terminal."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
