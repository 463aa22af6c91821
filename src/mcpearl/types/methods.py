"""The methods of the protocol: their senders, params, results and versions.

This file is a table with one row per method name, over all versions. It does not handle anything.
"""

from typing import Literal

import msgspec

from mcpearl.types.base import (
    EmptyResult,
    NotificationParams,
    PaginatedRequestParams,
    RequestParams,
    Result,
    Wire,
)
from mcpearl.types.completion import CompleteRequestParams, CompleteResult
from mcpearl.types.discover import DiscoverResult
from mcpearl.types.elicitation import (
    ElicitationCompleteNotificationParams,
    ElicitRequestParams,
    ElicitResult,
)
from mcpearl.types.initialize import InitializeRequestParams, InitializeResult
from mcpearl.types.logging import LoggingMessageNotificationParams, SetLevelRequestParams
from mcpearl.types.progress import CancelledNotificationParams, ProgressNotificationParams
from mcpearl.types.prompts import GetPromptRequestParams, GetPromptResult, ListPromptsResult
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    ResourceUpdatedNotificationParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from mcpearl.types.roots import ListRootsResult
from mcpearl.types.sampling import CreateMessageRequestParams, CreateMessageResult
from mcpearl.types.subscriptions import (
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcpearl.types.tasks import (
    TASKS_EXTENSION,
    CancelTaskResult,
    ExtensionCancelTaskResult,
    ExtensionGetTaskResult,
    ExtensionTaskNotificationParams,
    GetTaskPayloadResult,
    GetTaskResult,
    ListTasksResult,
    TaskRequestParams,
    TaskStatusNotificationParams,
    UpdateTaskRequestParams,
    UpdateTaskResult,
)
from mcpearl.types.tools import CallToolRequestParams, CallToolResult, ListToolsResult

Sender = Literal["client", "server", "both"]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method.

    `result` is None for a notification. `since` and `until` are the first and last version with the
    method; `until` is None if the newest version has it. `modern_result` and `modern_sender` are set
    where 2026-07-28 changed the result or the sender. `input_required` is true where 2026-07-28
    allows an `InputRequiredResult` in place of the result. `extension` names the extension that
    defines the method in 2026-07-28, if it is not part of the protocol itself.
    """

    name: str
    params: type[Wire]
    result: type[Result] | None = None
    sender: Sender
    since: str = "2024-11-05"
    until: str | None = None
    modern_result: type[Result] | None = None
    modern_sender: Sender | None = None
    input_required: bool = False
    extension: str | None = None


_REQUESTS = (
    Method(
        name="initialize",
        params=InitializeRequestParams,
        result=InitializeResult,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="ping",
        params=RequestParams,
        result=EmptyResult,
        sender="both",
        until="2025-11-25",
    ),
    Method(
        name="server/discover",
        params=RequestParams,
        result=DiscoverResult,
        sender="client",
        since="2026-07-28",
    ),
    Method(
        name="subscriptions/listen",
        params=SubscriptionsListenRequestParams,
        result=SubscriptionsListenResult,
        sender="client",
        since="2026-07-28",
    ),
    Method(
        name="tools/list",
        params=PaginatedRequestParams,
        result=ListToolsResult,
        sender="client",
    ),
    Method(
        name="tools/call",
        params=CallToolRequestParams,
        result=CallToolResult,
        sender="client",
        input_required=True,
    ),
    Method(
        name="resources/list",
        params=PaginatedRequestParams,
        result=ListResourcesResult,
        sender="client",
    ),
    Method(
        name="resources/templates/list",
        params=PaginatedRequestParams,
        result=ListResourceTemplatesResult,
        sender="client",
    ),
    Method(
        name="resources/read",
        params=ReadResourceRequestParams,
        result=ReadResourceResult,
        sender="client",
        input_required=True,
    ),
    Method(
        name="resources/subscribe",
        params=SubscribeRequestParams,
        result=EmptyResult,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="resources/unsubscribe",
        params=UnsubscribeRequestParams,
        result=EmptyResult,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="prompts/list",
        params=PaginatedRequestParams,
        result=ListPromptsResult,
        sender="client",
    ),
    Method(
        name="prompts/get",
        params=GetPromptRequestParams,
        result=GetPromptResult,
        sender="client",
        input_required=True,
    ),
    Method(
        name="completion/complete",
        params=CompleteRequestParams,
        result=CompleteResult,
        sender="client",
    ),
    Method(
        name="logging/setLevel",
        params=SetLevelRequestParams,
        result=EmptyResult,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="sampling/createMessage",
        params=CreateMessageRequestParams,
        result=CreateMessageResult,
        sender="server",
        until="2025-11-25",
    ),
    Method(
        name="roots/list",
        params=RequestParams,
        result=ListRootsResult,
        sender="server",
        until="2025-11-25",
    ),
    Method(
        name="elicitation/create",
        params=ElicitRequestParams,
        result=ElicitResult,
        sender="server",
        since="2025-06-18",
        until="2025-11-25",
    ),
    Method(
        name="tasks/get",
        params=TaskRequestParams,
        result=GetTaskResult,
        sender="both",
        since="2025-11-25",
        modern_result=ExtensionGetTaskResult,
        modern_sender="client",
        extension=TASKS_EXTENSION,
    ),
    Method(
        name="tasks/cancel",
        params=TaskRequestParams,
        result=CancelTaskResult,
        sender="both",
        since="2025-11-25",
        modern_result=ExtensionCancelTaskResult,
        modern_sender="client",
        extension=TASKS_EXTENSION,
    ),
    Method(
        name="tasks/result",
        params=TaskRequestParams,
        result=GetTaskPayloadResult,
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="tasks/list",
        params=PaginatedRequestParams,
        result=ListTasksResult,
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="tasks/update",
        params=UpdateTaskRequestParams,
        result=UpdateTaskResult,
        sender="client",
        since="2026-07-28",
        extension=TASKS_EXTENSION,
    ),
)

_NOTIFICATIONS = (
    Method(
        name="notifications/initialized",
        params=NotificationParams,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="notifications/cancelled",
        params=CancelledNotificationParams,
        sender="both",
    ),
    Method(
        name="notifications/progress",
        params=ProgressNotificationParams,
        sender="both",
        modern_sender="server",
    ),
    Method(
        name="notifications/message",
        params=LoggingMessageNotificationParams,
        sender="server",
    ),
    Method(
        name="notifications/tools/list_changed",
        params=NotificationParams,
        sender="server",
    ),
    Method(
        name="notifications/prompts/list_changed",
        params=NotificationParams,
        sender="server",
    ),
    Method(
        name="notifications/resources/list_changed",
        params=NotificationParams,
        sender="server",
    ),
    Method(
        name="notifications/resources/updated",
        params=ResourceUpdatedNotificationParams,
        sender="server",
    ),
    Method(
        name="notifications/roots/list_changed",
        params=NotificationParams,
        sender="client",
        until="2025-11-25",
    ),
    Method(
        name="notifications/elicitation/complete",
        params=ElicitationCompleteNotificationParams,
        sender="server",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="notifications/subscriptions/acknowledged",
        params=SubscriptionsAcknowledgedNotificationParams,
        sender="server",
        since="2026-07-28",
    ),
    Method(
        name="notifications/tasks/status",
        params=TaskStatusNotificationParams,
        sender="both",
        since="2025-11-25",
        until="2025-11-25",
    ),
    Method(
        name="notifications/tasks",
        params=ExtensionTaskNotificationParams,
        sender="server",
        since="2026-07-28",
        extension=TASKS_EXTENSION,
    ),
)

REQUESTS: dict[str, Method] = {method.name: method for method in _REQUESTS}
NOTIFICATIONS: dict[str, Method] = {method.name: method for method in _NOTIFICATIONS}
