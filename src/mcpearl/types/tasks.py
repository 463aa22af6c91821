"""Tasks: requests that outlive their answer, in the two shapes there are.

2025-11-25 has tasks in the protocol itself: `Task` and the types that follow it. From 2026-07-28
they are the extension `io.modelcontextprotocol/tasks`, with other members and other results: the
types from `ExtensionTask` on.
"""

from typing import Any, Final, Literal

import msgspec

from mcpearl.types.base import NotificationParams, Open, RequestParams, Result, Wire
from mcpearl.types.input_required import InputRequests
from mcpearl.types.jsonrpc import ErrorObject

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(Wire, kw_only=True):
    """The state of a task; times are ISO 8601, durations milliseconds, no `ttl` is forever."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class RelatedTaskMetadata(Wire, kw_only=True):
    """Under RELATED_TASK_KEY in `_meta`: the task a message belongs to."""

    task_id: str


class TaskRequestParams(RequestParams, kw_only=True):
    """Means one task: the params of `tasks/get`, `tasks/result` and `tasks/cancel`."""

    task_id: str


class CreateTaskResult(Result, kw_only=True):
    """The answer to a request that now runs as a task."""

    task: Task


class GetTaskResult(Result, kw_only=True):
    """The state of a task, as its owner sees it."""

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
    """Says that a task is in a new state."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class ExtensionTask(Wire, kw_only=True):
    """The state of a task of the extension; no `ttl_ms` is forever."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    poll_interval_ms: int | None = None


class DetailedTask(ExtensionTask, kw_only=True):
    """A task and what its status brings: questions, the result, or the error."""

    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None


class ExtensionCreateTaskResult(Result, kw_only=True):
    """Stands where a result would, `result_type` "task": the request now runs as this task."""

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
    """Hands a task the answers it waits for."""

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
