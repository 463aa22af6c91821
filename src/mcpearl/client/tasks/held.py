"""Tasks that a legacy server starts at this client: its sampling and elicitation requests.

In 2025-11-25 a server may ask for a task in place of an answer, ask for its state, and fetch the
answer later. A task belongs to the connection on which the server asked for it, and ends with it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from mcpearl.client.callbacks import Callbacks
from mcpearl.protocol.errors import McpearlError, McpError
from mcpearl.runtime import clock
from mcpearl.types.base import RELATED_TASK_KEY, Result, TaskMetadata
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.tasks import (
    CancelTaskResult,
    CreateTaskResult,
    GetTaskResult,
    ListTasksResult,
    Task,
    TaskStatus,
    TaskStatusNotificationParams,
)

MAX_HELD = 100  # tasks of one server
MAX_TTL = 3600.0  # seconds
DEFAULT_TTL = 600.0
_POLL_MS = 1000
STATUS = "notifications/tasks/status"

Notify = Callable[[str, msgspec.Struct], None]


class _HeldTask:
    """One task."""

    def __init__(self, state: Task, work: "asyncio.Task[Result]") -> None:
        self.state = state
        self.work = work
        self.expiry: asyncio.TimerHandle | None = None


class HeldTasks:
    """Answers the requests of one connection's server, at once or as tasks."""

    def __init__(self, callbacks: Callbacks, notify: Notify) -> None:
        self._callbacks = callbacks
        self._notify = notify
        self._held: dict[str, _HeldTask] = {}

    async def answer(self, method: str, params: Any) -> Result:
        """Answer a request of a legacy server."""
        if not method.startswith("tasks/"):
            wanted = getattr(params, "task", None)
            if wanted is None:
                return await self._callbacks.answer(method, params)
            return self._start(method, params, wanted)
        if method == "tasks/list":
            if params.cursor is not None:
                raise McpError(INVALID_PARAMS, "Invalid cursor: the list of tasks has one page")
            return ListTasksResult(tasks=[held.state for held in self._held.values()])
        held = self._held.get(params.task_id)
        if held is None:
            raise McpError(
                INVALID_PARAMS,
                f"Unknown task {params.task_id[:64]!r}: it never existed, or it has expired",
            )
        if method == "tasks/result":
            return await self._result(held)
        if method == "tasks/cancel":
            return self._cancel(held)
        return GetTaskResult(**asdict(held.state))

    def _start(self, method: str, params: Any, wanted: TaskMetadata) -> CreateTaskResult:
        if len(self._held) >= MAX_HELD:
            raise McpError(
                INTERNAL_ERROR, f"Too many tasks: this client holds {MAX_HELD} for the server"
            )
        if wanted.ttl is not None and wanted.ttl <= 0:
            raise McpError(INVALID_PARAMS, f"`task.ttl` is {wanted.ttl}; it has to be over 0")
        asked = DEFAULT_TTL if wanted.ttl is None else wanted.ttl / 1000
        ttl = min(asked, MAX_TTL)
        now = _now()
        state = Task(
            task_id=clock.token(18),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl=round(ttl * 1000),
            poll_interval=_POLL_MS,
        )
        return self._begin(method, params, state, ttl)

    def _begin(self, method: str, params: Any, state: Task, ttl: float) -> CreateTaskResult:
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._callbacks.answer(method, replace(params, task=None)))
        held = self._held[state.task_id] = _HeldTask(state, work)
        work.add_done_callback(lambda work: self._ended(held))
        held.expiry = loop.call_later(ttl, self._forget, state.task_id)
        return CreateTaskResult(task=state)

    def _ended(self, held: _HeldTask) -> None:
        if held.state.status == "cancelled":
            return
        failure = None if held.work.cancelled() else held.work.exception()
        if failure is not None or held.work.cancelled():
            self._move(held, "failed", str(failure) if failure is not None else "cancelled")
        else:
            self._move(held, "completed", None)

    def _move(self, held: _HeldTask, status: TaskStatus, message: str | None) -> None:
        held.state = replace(
            held.state, status=status, status_message=message, last_updated_at=_now()
        )
        if held.state.task_id in self._held:
            self._notify(STATUS, TaskStatusNotificationParams(**asdict(held.state)))

    def _cancel(self, held: _HeldTask) -> CancelTaskResult:
        if held.state.status not in ("working", "input_required"):
            raise McpError(INVALID_PARAMS, f"The task has ended already: it is {held.state.status}")
        self._move(held, "cancelled", "cancelled by the server")
        held.work.cancel()
        return CancelTaskResult(**asdict(held.state))

    async def _result(self, held: _HeldTask) -> Result:
        await asyncio.wait((held.work,))
        if held.work.cancelled():
            raise McpError(INTERNAL_ERROR, "The task was cancelled")
        failure = held.work.exception()
        if isinstance(failure, McpError):
            raise failure
        if failure is not None:
            text = str(failure) if isinstance(failure, McpearlError) else "The task failed"
            raise McpError(INTERNAL_ERROR, text)
        result = held.work.result()
        related = {RELATED_TASK_KEY: {"taskId": held.state.task_id}}
        return replace(result, meta={**(result.meta or {}), **related})

    def _forget(self, id: str) -> None:
        held = self._held.pop(id, None)
        if held is not None:
            held.work.cancel()

    def close(self) -> None:
        """End all tasks: the connection is gone."""
        for id, held in list(self._held.items()):
            if held.expiry is not None:
                held.expiry.cancel()
            self._forget(id)


def _now() -> str:
    return datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="milliseconds")
