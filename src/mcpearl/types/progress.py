"""Progress and cancellation: what both sides say about a request while it runs."""

from mcpearl.types.base import NotificationParams, ProgressToken, RequestId


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """How far the request with this token is; `progress` only grows."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """Says that the answer to a request is no longer wanted."""

    request_id: RequestId | None = None
    reason: str | None = None
