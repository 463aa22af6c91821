"""Subscriptions: the stream of notifications a client listens to (from 2026-07-28)."""

from mcpearl.types.base import NotificationParams, RequestParams, Result, Wire


class SubscriptionFilter(Wire, kw_only=True):
    """The requested notifications; `task_ids` belongs to the tasks extension."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    """Opens a stream of notifications."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """Ends the stream; `_meta` names the subscription."""


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    """The part of the filter that the server has agreed to."""

    notifications: SubscriptionFilter
