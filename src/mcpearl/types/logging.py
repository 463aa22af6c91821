"""Logging: messages that a server writes to its client's log."""

from typing import Any, Literal

from mcpearl.types.base import NotificationParams, RequestParams

LoggingLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


class SetLevelRequestParams(RequestParams, kw_only=True):
    """Requests messages of this level and above."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    """One log message; `data` is any JSON value."""

    level: LoggingLevel
    data: Any
    logger: str | None = None
