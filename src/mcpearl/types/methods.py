"""The methods of the protocol: their senders, params, results and versions.

This file is a table with one row per method name, over all versions. It does not handle anything.
Rows name the types of params and results, which are loaded on first use: a server needs few of them.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from mcpearl import types
from mcpearl.types.base import Result, Wire
from mcpearl.types.capabilities import TASKS_EXTENSION

Sender = Literal["client", "server", "both"]
_WireT = TypeVar("_WireT", bound=Wire)


class Method:
    """One method.

    Args:
        name: The name, such as `tools/call`.
        params: The type of the params, or its name in `mcpearl.types`.
        result: The type of the result, or its name; None for a notification.
        sender: The side that sends it.
        since: The first version with the method.
        until: The last version with the method; None if the newest version has it.
        modern_result: The result in 2026-07-28, where that is another one.
        modern_sender: The sender in 2026-07-28, where that is another one.
        input_required: Whether 2026-07-28 allows an `InputRequiredResult` in place of the result.
        extension: The extension that defines the method in 2026-07-28, if the protocol does not.
    """

    __slots__ = (
        "_modern_result",
        "_params",
        "_result",
        "extension",
        "input_required",
        "modern_sender",
        "name",
        "sender",
        "since",
        "until",
    )

    def __init__(
        self,
        *,
        name: str,
        params: type[Wire] | str,
        result: type[Result] | str | None = None,
        sender: Sender,
        since: str = "2024-11-05",
        until: str | None = None,
        modern_result: type[Result] | str | None = None,
        modern_sender: Sender | None = None,
        input_required: bool = False,
        extension: str | None = None,
    ) -> None:
        self.name = name
        self._params = params
        self._result = result
        self.sender = sender
        self.since = since
        self.until = until
        self._modern_result = modern_result
        self.modern_sender = modern_sender
        self.input_required = input_required
        self.extension = extension

    @property
    def params(self) -> type[Wire]:
        """The type of the params."""
        return _loaded(self._params)

    @property
    def result(self) -> type[Result] | None:
        """The type of the result; None for a notification."""
        return None if self._result is None else _loaded(self._result)

    @property
    def modern_result(self) -> type[Result] | None:
        """The type of the result in 2026-07-28; None where it is that of the other versions."""
        return None if self._modern_result is None else _loaded(self._modern_result)


def _loaded(type_: type[_WireT] | str) -> type[_WireT]:
    """Return a type that may be stated by its name."""
    if isinstance(type_, str):
        named: type[_WireT] = getattr(types, type_)
        return named
    return type_


_REQUESTS = (
    Method(
        name="initialize",
        params="InitializeRequestParams",
        result="InitializeResult",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="ping",
        params="RequestParams",
        result="EmptyResult",
        sender="both",
        until="2025-11-25",
    ),
    Method(
        name="server/discover",
        params="RequestParams",
        result="DiscoverResult",
        sender="client",
        since="2026-07-28",
    ),
    Method(
        name="subscriptions/listen",
        params="SubscriptionsListenRequestParams",
        result="SubscriptionsListenResult",
        sender="client",
        since="2026-07-28",
    ),
    Method(
        name="tools/list",
        params="PaginatedRequestParams",
        result="ListToolsResult",
        sender="client",
    ),
    Method(
        name="tools/call",
        params="CallToolRequestParams",
        result="CallToolResult",
        sender="client",
        input_required=True,
    ),
    Method(
        name="resources/list",
        params="PaginatedRequestParams",
        result="ListResourcesResult",
        sender="client",
    ),
    Method(
        name="resources/templates/list",
        params="PaginatedRequestParams",
        result="ListResourceTemplatesResult",
        sender="client",
    ),
    Method(
        name="resources/read",
        params="ReadResourceRequestParams",
        result="ReadResourceResult",
        sender="client",
        input_required=True,
    ),
    Method(
        name="resources/subscribe",
        params="SubscribeRequestParams",
        result="EmptyResult",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="resources/unsubscribe",
        params="UnsubscribeRequestParams",
        result="EmptyResult",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="prompts/list",
        params="PaginatedRequestParams",
        result="ListPromptsResult",
        sender="client",
    ),
    Method(
        name="prompts/get",
        params="GetPromptRequestParams",
        result="GetPromptResult",
        sender="client",
        input_required=True,
    ),
    Method(
        name="completion/complete",
        params="CompleteRequestParams",
        result="CompleteResult",
        sender="client",
    ),
    Method(
        name="logging/setLevel",
        params="SetLevelRequestParams",
        result="EmptyResult",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="sampling/createMessage",
        params="CreateMessageRequestParams",
        result="CreateMessageResult",
        sender="server",
        until="2025-11-25",
    ),
    Method(
        name="roots/list",
        params="RequestParams",
        result="ListRootsResult",
        sender="server",
        until="2025-11-25",
    ),
    Method(
        name="elicitation/create",
        params="ElicitRequestParams",
        result="ElicitResult",
        sender="server",
        since="2025-06-18",
        until="2025-11-25",
    ),
    Method(
        name="tasks/get",
        params="TaskRequestParams",
        result="GetTaskResult",
        sender="both",
        since="2025-11-25",
        modern_result="ExtensionGetTaskResult",
        modern_sender="client",
        extension=TASKS_EXTENSION,
    ),
    Method(
        name="tasks/cancel",
        params="TaskRequestParams",
        result="CancelTaskResult",
        sender="both",
        since="2025-11-25",
        modern_result="ExtensionCancelTaskResult",
        modern_sender="client",
        extension=TASKS_EXTENSION,
    ),
    Method(
        name="tasks/result",
        params="TaskRequestParams",
        result="GetTaskPayloadResult",
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="tasks/list",
        params="PaginatedRequestParams",
        result="ListTasksResult",
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="tasks/update",
        params="UpdateTaskRequestParams",
        result="UpdateTaskResult",
        sender="client",
        since="2026-07-28",
        extension=TASKS_EXTENSION,
    ),
)

_NOTIFICATIONS = (
    Method(
        name="notifications/initialized",
        params="NotificationParams",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="notifications/cancelled",
        params="CancelledNotificationParams",
        sender="both",
    ),
    Method(
        name="notifications/progress",
        params="ProgressNotificationParams",
        sender="both",
        modern_sender="server",
    ),
    Method(
        name="notifications/message",
        params="LoggingMessageNotificationParams",
        sender="server",
    ),
    Method(
        name="notifications/tools/list_changed",
        params="NotificationParams",
        sender="server",
    ),
    Method(
        name="notifications/prompts/list_changed",
        params="NotificationParams",
        sender="server",
    ),
    Method(
        name="notifications/resources/list_changed",
        params="NotificationParams",
        sender="server",
    ),
    Method(
        name="notifications/resources/updated",
        params="ResourceUpdatedNotificationParams",
        sender="server",
    ),
    Method(
        name="notifications/roots/list_changed",
        params="NotificationParams",
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="notifications/elicitation/complete",
        params="ElicitationCompleteNotificationParams",
        sender="server",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="notifications/subscriptions/acknowledged",
        params="SubscriptionsAcknowledgedNotificationParams",
        sender="server",
        since="2026-07-28",
    ),
    Method(
        name="notifications/tasks/status",
        params="TaskStatusNotificationParams",
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="notifications/tasks",
        params="ExtensionTaskNotificationParams",
        sender="server",
        since="2026-07-28",
        extension=TASKS_EXTENSION,
    ),
)

REQUESTS: dict[str, Method] = {method.name: method for method in _REQUESTS}
NOTIFICATIONS: dict[str, Method] = {method.name: method for method in _NOTIFICATIONS}
