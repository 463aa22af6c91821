"""Tasks in their two shapes: of 2025-11-25, and of the extension."""

import json
from typing import Any

import msgspec
import pytest

from mcpearl.types import (
    CreateTaskResult,
    DetailedTask,
    ElicitRequest,
    ExtensionCancelTaskResult,
    ExtensionCreateTaskResult,
    ExtensionGetTaskResult,
    ExtensionTask,
    ExtensionTaskNotificationParams,
    GetTaskPayloadResult,
    GetTaskResult,
    SubscriptionFilter,
    Task,
    UpdateTaskRequestParams,
    UpdateTaskResult,
    decode,
    encode,
)

TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z"}
CORE = {"taskId": "1", "status": "working", **TIMES, "ttl": None}
WORKING = {"taskId": "1", "status": "working", **TIMES, "ttlMs": None}
INPUT_REQUIRED = {
    **WORKING,
    "status": "input_required",
    "ttlMs": 60000,
    "pollIntervalMs": 500,
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}},
}
COMPLETED = {**WORKING, "status": "completed", "result": {"content": [], "own": None}}
FAILED = {**WORKING, "status": "failed", "error": {"code": -32603, "message": "m", "data": None}}
CANCELLED = {**WORKING, "status": "cancelled", "statusMessage": "by the user"}
STATES = [WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED]


def again(type_: type, wire: dict[str, Any]) -> Any:
    return json.loads(encode(decode(type_, json.dumps(wire).encode())))


def test_no_ttl_is_null_and_not_absent() -> None:
    assert again(Task, CORE) == CORE
    assert again(ExtensionTask, WORKING) == WORKING
    with pytest.raises(msgspec.ValidationError, match="ttl"):
        decode(Task, json.dumps({k: v for k, v in CORE.items() if k != "ttl"}).encode())


def test_a_created_task_is_nested_in_one_shape_and_flat_in_the_other() -> None:
    nested = decode(CreateTaskResult, json.dumps({"task": CORE}).encode())
    assert nested.task.task_id == "1"
    flat = {"resultType": "task", **WORKING}
    assert again(ExtensionCreateTaskResult, flat) == flat


@pytest.mark.parametrize("state", STATES, ids=lambda state: state["status"])
def test_a_task_of_the_extension_keeps_what_its_status_brings(state: dict[str, Any]) -> None:
    assert again(DetailedTask, state) == state
    result = {"resultType": "complete", **state, "own": 1}
    assert again(ExtensionGetTaskResult, result) == result
    notification = {"_meta": {"a": 1}, **state, "own": 1}
    assert again(ExtensionTaskNotificationParams, notification) == notification


def test_questions_of_a_task_are_typed() -> None:
    task = decode(DetailedTask, json.dumps(INPUT_REQUIRED).encode())
    assert task.input_requests is not None
    assert isinstance(task.input_requests["who"], ElicitRequest)


def test_answers_to_a_task() -> None:
    wire = {"taskId": "1", "inputResponses": {"who": {"action": "accept", "content": {"a": 1}}}}
    assert again(UpdateTaskRequestParams, wire) == wire


@pytest.mark.parametrize("type_", [UpdateTaskResult, ExtensionCancelTaskResult])
def test_an_acknowledgement_says_only_that_it_is_complete(type_: type) -> None:
    assert again(type_, {"resultType": "complete"}) == {"resultType": "complete"}


def test_the_payload_of_a_task_is_whatever_the_request_gives() -> None:
    wire = {"_meta": {"a": 1}, "content": [{"type": "text", "text": "x"}], "isError": False}
    payload = decode(GetTaskPayloadResult, json.dumps(wire).encode())
    assert payload.extra == {"content": [{"type": "text", "text": "x"}], "isError": False}
    assert json.loads(encode(payload)) == wire


def test_the_state_of_a_task_is_a_result_of_its_own() -> None:
    wire = {**CORE, "pollInterval": 5, "_meta": {}}
    assert again(GetTaskResult, wire) == wire


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="status"):
        decode(Task, json.dumps({**CORE, "status": "sleeping"}).encode())


def test_a_stream_can_be_about_tasks() -> None:
    assert again(SubscriptionFilter, {"taskIds": ["1"]}) == {"taskIds": ["1"]}
