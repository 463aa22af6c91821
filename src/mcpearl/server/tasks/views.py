"""One task in the two shapes it has on the wire: of 2025-11-25, and of the extension."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from mcpearl.protocol.codec import splice
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Encoded
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.server.tasks.contents import TaskContents
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import RELATED_TASK_KEY, decode_any
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, ErrorObject
from mcpearl.types.tasks import (
    CancelTaskResult,
    CreateTaskResult,
    ExtensionCreateTaskResult,
    ExtensionGetTaskResult,
    ExtensionTaskNotificationParams,
    GetTaskResult,
    Task,
    TaskStatus,
    TaskStatusNotificationParams,
)

_error_decoder = msgspec.json.Decoder(ErrorObject)


def unknown_task(id: str) -> McpError:
    """Return the error for a task that does not exist, has expired, or is another caller's."""
    shown = id if len(id) <= 128 else id[:128] + "…"
    return McpError(
        INVALID_PARAMS,
        f"Unknown task: {shown}. It may have expired; call the tool again",
        {"taskId": shown},
    )


def related(id: str) -> dict[str, Any]:
    """Return the `_meta` of 2025-11-25 for messages that belong to a task."""
    return {RELATED_TASK_KEY: {"taskId": id}}


def _time(seconds: float) -> str:
    whole = int(seconds)
    # Half a microsecond more: stores have whole microseconds, which a float is a little off.
    milliseconds = min(999, int((seconds - whole) * 1000 + 0.0005))
    return f"{_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


@lru_cache(maxsize=256)
def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


# The shape of 2025-11-25


def _legacy_status(record: TaskRecord) -> TaskStatus:
    # What a tool reports as its failure fails the task; the extension counts it as completed.
    return "failed" if record.tool_error else record.status


def _legacy(record: TaskRecord) -> dict[str, Any]:
    return {
        "task_id": record.id,
        "status": _legacy_status(record),
        "status_message": record.status_message,
        "created_at": _time(record.created),
        "last_updated_at": _time(record.updated),
        "ttl": _milliseconds(record.ttl),
        "poll_interval": _milliseconds(record.poll),
    }


def legacy_task(record: TaskRecord) -> Task:
    """Return a task as part of a list."""
    return Task(**_legacy(record))


def legacy_created(record: TaskRecord) -> CreateTaskResult:
    """Return the answer to the request that became a task."""
    return CreateTaskResult(task=legacy_task(record))


def legacy_got(record: TaskRecord) -> GetTaskResult:
    """Return the answer to `tasks/get`."""
    return GetTaskResult(**_legacy(record))


def legacy_cancelled(record: TaskRecord) -> CancelTaskResult:
    """Return the answer to `tasks/cancel`."""
    return CancelTaskResult(**_legacy(record))


def legacy_notice(record: TaskRecord) -> TaskStatusNotificationParams:
    """Return the params of `notifications/tasks/status`."""
    return TaskStatusNotificationParams(**_legacy(record))


def legacy_payload(record: TaskRecord, content: bytes) -> Encoded:
    """Return what the request of an ended task would have been answered with; raises its error."""
    if record.status == "failed":
        raise McpError.of(_error_decoder.decode(content))
    if record.status == "cancelled":
        raise McpError(INTERNAL_ERROR, "The task was cancelled", {"taskId": record.id})
    meta = related(record.id)
    if b'"_meta"' not in content:
        return Encoded(splice(b'"_meta":' + msgspec.json.encode(meta), content), complete=True)
    result = decode_any(content)
    result["_meta"] = {**(result.get("_meta") or {}), **meta}
    return Encoded(msgspec.json.encode(result), complete=True)


# The shape of the extension


def _modern(record: TaskRecord) -> dict[str, Any]:
    created_at = _time(record.created)
    return {
        "task_id": record.id,
        "status": record.status,
        "status_message": record.status_message,
        "created_at": created_at,
        "last_updated_at": created_at if record.revision == 1 else _time(record.updated),
        "ttl_ms": _milliseconds(record.ttl),
        "poll_interval_ms": _milliseconds(record.poll),
    }


def created(record: TaskRecord) -> ExtensionCreateTaskResult:
    """Return the answer to the request that became a task."""
    return ExtensionCreateTaskResult(result_type="task", **_modern(record))


def _detailed(record: TaskRecord, contents: TaskContents) -> dict[str, Any]:
    """Return a task with what its status implies: open questions, the result, or the error."""
    members = _modern(record)
    if record.status == "input_required":
        members["input_requests"] = contents.journal_of(record).asked
    elif record.status in TERMINAL and record.result is not None:
        content = contents.opened(record.id, record.result)
        if record.status == "failed":
            members["error"] = Raw(content)
        else:
            members["result"] = Raw(_complete(content))
    return members


def _complete(content: bytes) -> bytes:
    """Return a result with the type that every result has in the modern era."""
    if b'"resultType"' in content and "resultType" in decode_any(content):
        return content
    return splice(b'"resultType":"complete"', content)


def got(record: TaskRecord, contents: TaskContents) -> ExtensionGetTaskResult:
    """Return the answer to `tasks/get`."""
    return ExtensionGetTaskResult(**_detailed(record, contents))


def notice(record: TaskRecord, contents: TaskContents) -> ExtensionTaskNotificationParams:
    """Return the params of `notifications/tasks`, which say what `tasks/get` would."""
    return ExtensionTaskNotificationParams(**_detailed(record, contents))
