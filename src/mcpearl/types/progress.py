"""Progress and cancellation: notifications of both sides about a running request."""

from mcpearl.types.base import NotificationParams, ProgressToken, RequestId


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """Progress of the request with this token; `progress` only increases."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """Reports that the answer to a request is no longer needed."""

    request_id: RequestId | None = None
    reason: str | None = None
