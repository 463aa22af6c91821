"""Servers by hand that run tool calls as tasks, in both shapes."""

from typing import Any

from ..peers import DISCOVERED, INITIALIZED, Message, Peer, legacy_peer, modern_peer

TASKS = "io.modelcontextprotocol/tasks"
TEXT = {"content": [{"type": "text", "text": "done"}]}
TIMES = {"createdAt": "2026-11-16T10:00:00Z", "lastUpdatedAt": "2026-11-16T10:00:00Z"}

JOB = {"name": "job", "inputSchema": {"type": "object"}}


def state(status: str = "working", **more: Any) -> Message:
    """The state of the task `t1` in the shape of the extension."""
    times = {**TIMES, "ttlMs": 60_000, "pollIntervalMs": 50}
    return {"taskId": "t1", "status": status, **times, **more}


def created() -> Message:
    return {"resultType": "task", **state()}


def detailed(status: str = "working", **more: Any) -> Message:
    return {"resultType": "complete", **state(status, **more)}


def completed() -> Message:
    return detailed("completed", result={"resultType": "complete", **TEXT})


def extension_peer(**answers: Any) -> Peer:
    """A modern peer that announces the tasks extension."""
    tools = {"resultType": "complete", "tools": [JOB], "ttlMs": 0, "cacheScope": "private"}
    peer = modern_peer(**{"tools_list": lambda _: tools, **answers})
    capabilities = {"tools": {}, "extensions": {TASKS: {}}}
    peer["server/discover"] = lambda _: {**DISCOVERED, "capabilities": capabilities}
    return peer


def legacy_state(status: str = "working", **more: Any) -> Message:
    """The state of the task `t1` in the shape of 2025-11-25."""
    return {"taskId": "t1", "status": status, **TIMES, "ttl": 60_000, "pollInterval": 50, **more}


def legacy_task_peer(support: str = "required", **answers: Any) -> Peer:
    """A peer of 2025-11-25 whose one tool has this `taskSupport`."""
    listed = {"tools": [{**JOB, "execution": {"taskSupport": support}}]}
    peer = legacy_peer(**{"tools_list": lambda _: listed, **answers})
    tasks = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    capabilities = {"tools": {}, "tasks": tasks}
    peer["initialize"] = lambda _: {**INITIALIZED, "capabilities": capabilities}
    return peer
