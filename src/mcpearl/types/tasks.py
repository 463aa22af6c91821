"""Tasks: requests that continue after their answer, in both forms that the protocol has.

In 2025-11-25 tasks are part of the protocol: `Task` and the types that follow it. From 2026-07-28
they are the extension `io.modelcontextprotocol/tasks` with different members and results: the types
from `ExtensionTask` on.
"""

from typing import Any, Literal

import msgspec

from mcpearl.types.base import NotificationParams, Open, RequestParams, Result, Wire
from mcpearl.types.input_required import InputRequests
from mcpearl.types.jsonrpc import ErrorObject

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(Wire, kw_only=True):
    """The state of a task; times are ISO 8601, durations milliseconds, no `ttl` means forever."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class RelatedTaskMetadata(Wire, kw_only=True):
    """Under RELATED_TASK_KEY in `_meta`: the task that a message belongs to."""

    task_id: str


class TaskRequestParams(RequestParams, kw_only=True):
    """Names a task: the params of `tasks/get`, `tasks/result` and `tasks/cancel`."""

    task_id: str


class CreateTaskResult(Result, kw_only=True):
    """The answer to a request that now runs as a task."""

    task: Task


class GetTaskResult(Result, kw_only=True):
    """The state of a task, in answer to its owner."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CancelTaskResult(GetTaskResult, kw_only=True):
    """The state of a task after its cancellation."""


class GetTaskPayloadResult(Result, kw_only=True):
    """The result of the request that ran as a task; its members are in `extra`."""


class ListTasksResult(Result, kw_only=True):
    """A page of tasks."""

    tasks: list[Task]
    next_cursor: str | None = None


class TaskStatusNotificationParams(NotificationParams, kw_only=True):
    """Reports a new state of a task."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class ExtensionTask(Wire, kw_only=True):
    """The state of a task of the extension; no `ttl_ms` means forever."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    poll_interval_ms: int | None = None


class DetailedTask(ExtensionTask, kw_only=True):
    """A task with what its status implies: input requests, the result, or the error."""

    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None


class ExtensionCreateTaskResult(Result, kw_only=True):
    """Replaces the result of a request that now runs as this task; `result_type` is "task"."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    poll_interval_ms: int | None = None


class ExtensionGetTaskResult(ExtensionCreateTaskResult, kw_only=True):
    """A `DetailedTask` as a result."""

    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None


class UpdateTaskRequestParams(RequestParams, kw_only=True):
    """Provides the input that a task is waiting for."""

    task_id: str
    input_responses: dict[str, dict[str, Any]]


UpdateTaskResult = Result
ExtensionCancelTaskResult = Result


class ExtensionTaskNotificationParams(Open, kw_only=True):
    """A `DetailedTask` as a notification."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    poll_interval_ms: int | None = None
    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
