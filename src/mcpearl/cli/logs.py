"""Log records for a person at a terminal: the time of day, the level in colour, the message."""

import logging
import sys
import time

import click

from mcpearl.cli.output import clean, colours, for_stderr

_STYLES = {
    logging.DEBUG: {"dim": True},
    logging.INFO: {"fg": "green"},
    logging.WARNING: {"fg": "yellow"},
    logging.ERROR: {"fg": "red"},
    logging.CRITICAL: {"fg": "red", "bold": True},
}


class ShortFormat(logging.Formatter):
    """Formats records in one short line, and errors with their traceback below it."""

    def __init__(self) -> None:
        super().__init__()
        self._colour = colours(sys.stderr)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("mcpearl.")
        level = f"{record.levelname.lower():7}"
        head = f"{at} {level} {name}: "
        text = for_stderr(head + record.getMessage(), hang=2).removeprefix(head)
        if record.exc_info:
            text += "\n" + clean(self.formatException(record.exc_info))
        if not self._colour:
            return head + text
        shown = click.style(level, **_STYLES.get(record.levelno, {}))  # type: ignore[arg-type]
        return f"{click.style(at, dim=True)} {shown} {click.style(name, dim=True)} {text}"


class _Expected(logging.Filter):
    """Leaves out that sessions of the last version are unknown: after a reload, clients begin anew."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is shown."""
        from mcpearl.transports.http_server.session_table import ELSEWHERE

        reason = record.args[-1] if isinstance(record.args, tuple) and record.args else None
        return str(reason) != ELSEWHERE


def show_logs(*, reloads: bool = False) -> None:
    """Show all log records of the process on stderr.

    Args:
        reloads: whether the process may follow another one that served the same address.
    """
    from mcpearl.server.serving.environment import log_level

    handler = logging.StreamHandler()
    handler.setFormatter(ShortFormat())
    if reloads:
        handler.addFilter(_Expected())
    logging.basicConfig(level=log_level(), handlers=[handler])
