"""Tools of an upstream that run as tasks.

Clients see tasks of the gateway, with its own ids, bound to the caller, in the shape of the client's
version. Each of them runs one call at the upstream, which may be a task there: in 2025-11-25 because the
call asks for it, from 2026-07-28 on because the upstream decides so. Ids of upstream tasks never leave
the gateway.
"""

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpearl.client.tasks.shapes import TaskShape
from mcpearl.gateway.legs import Leg
from mcpearl.gateway.sending import Sending, reporter
from mcpearl.gateway.sent import SentRequest
from mcpearl.gateway.upstream_client import UpstreamClient
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import ConnectionLost, McpearlError, McpError
from mcpearl.protocol.events import Call
from mcpearl.runtime.eager import spawn
from mcpearl.server.context import Context, call_of
from mcpearl.server.tasks.options import Tasks
from mcpearl.types.base import (
    RELATED_TASK_KEY,
    Result,
    TaskMetadata,
    decode,
    encode,
    to_builtins,
)
from mcpearl.types.capabilities import TASKS_EXTENSION
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.tasks import (
    CreateTaskResult,
    ExtensionCreateTaskResult,
    GetTaskPayloadResult,
    Task,
)
from mcpearl.types.tools import Tool, ToolExecution

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

_PARK = 100_000.0  # seconds, longer than any task: a call at an upstream cannot be run again
_LATER = Tasks(after=inf, restart=False, park=_PARK)  # becomes a task if the upstream makes it one
_OPTIONAL = Tasks(restart=False, park=_PARK)
_REQUIRED = Tasks(required=True, restart=False, park=_PARK)
_OFFERED = ToolExecution(task_support="optional")
_TRIES = 5  # connections on which a task of a modern upstream is followed before giving up


class UpstreamTasks:
    """The tasks of one upstream.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._by_name: tuple[Any, dict[str, Tool]] = (None, {})

    # What it offers

    @property
    def offered(self) -> bool:
        """Whether calls of the upstream can be tasks."""
        known = self._upstream.capabilities
        if known is None:
            return False
        if self._upstream.is_modern:
            return TASKS_EXTENSION in (known.extensions or ())
        requests = None if known.tasks is None else known.tasks.requests
        tools = None if requests is None else requests.tools
        return tools is not None and tools.call is not None

    def options_of(self, name: str) -> Tasks | None:
        """Return how a tool runs as a task of the gateway; None if it does not."""
        if not self.offered:
            return None
        if self._upstream.is_modern:
            return _LATER
        tools = self._upstream.lists.tools()
        if self._by_name[0] is not tools:
            self._by_name = tools, {tool.name: tool for tool in tools or ()}
        tool = self._by_name[1].get(name)
        support = None if tool is None or tool.execution is None else tool.execution.task_support
        return {"optional": _OPTIONAL, "required": _REQUIRED}.get(support or "")

    def announced(self, tools: list[Tool]) -> list[Tool]:
        """Return tools as clients of 2025-11-25 get them: a modern upstream's tools may run as tasks."""
        if not (self._upstream.is_modern and self.offered):
            return tools
        return [replace(tool, execution=_OFFERED) for tool in tools]

    # Running

    async def at_legacy(self, leg: Leg, call: Call, ctx: Context, sending: Sending) -> Raw:
        """Run a call of a tool as a task of an upstream of 2025-11-25, and return its result."""
        params = replace(call.params, task=call.params.task or TaskMetadata())
        sent, report = SentRequest(), reporter(ctx)
        raw = await sending.send(leg.client.relay, call, params, ctx, report, sent)
        assert sent.id is not None
        try:
            id = decode(CreateTaskResult, raw).task.task_id
        except UNREADABLE:
            return raw  # it ran as a call, not as a task
        leg.tasks[id] = ctx
        leg.client.keep_progress(sent.id, report)
        shape = leg.client.task_shape(None)
        mirror = asyncio.get_running_loop().create_task(_mirrored(shape, id, ctx))
        try:
            result = await self._outcome(shape, id)
        finally:
            mirror.cancel()
            leg.tasks.pop(id, None)
            leg.client.drop_progress(sent.id)
        return _encoded(result)

    async def at_modern(
        self, client: UpstreamClient, created: Raw, call: Call, ctx: Context
    ) -> Raw:
        """Follow a call that a modern upstream turned into a task, and return its result.

        A modern client gets a task too; a legacy client's call lasts as long as the task.
        """
        id = decode(ExtensionCreateTaskResult, created).task_id

        async def ask(method: str, params: Any, kind: type[Result]) -> Result:
            answer: Result = await ctx.put(method, params, kind)
            return answer

        def seen(state: Task) -> None:
            _report(ctx, state.status_message)

        shape = client.task_shape(ask, seen)
        try:
            if call_of(ctx).caller.version.modern and not await ctx.become_task():
                raise McpError(INTERNAL_ERROR, "the call became a task that its client cannot take")
        except BaseException:
            self._cancel(shape, id)
            raise
        return _encoded(await self._outcome(shape, id))

    async def _outcome(self, shape: TaskShape, id: str) -> GetTaskPayloadResult:
        tries = _TRIES if self._upstream.is_modern else 1
        try:
            while True:
                try:
                    return await shape.outcome(id, GetTaskPayloadResult, inf)
                except ConnectionLost:
                    tries -= 1
                    if not tries:
                        raise
                    await self._upstream.shared()  # the task goes on meanwhile
        except asyncio.CancelledError:
            self._cancel(shape, id)
            raise

    def _cancel(self, shape: TaskShape, id: str) -> None:
        """Cancel the upstream's task, in the background."""

        async def cancel() -> None:
            with suppress(McpearlError):
                await shape.cancel(id)

        spawn(asyncio.get_running_loop(), cancel())


def is_task(raw: bytes) -> bool:
    """Whether a modern upstream answered with a task."""
    if raw.find(b'"task"') < 0:
        return False
    try:
        return msgspec.json.decode(raw, type=_TaskResultKind).resultType == "task"
    except UNREADABLE:
        return False


class _TaskResultKind(msgspec.Struct):
    resultType: str | None = None  # noqa: N815 (as on the wire)


def _encoded(result: GetTaskPayloadResult) -> Raw:
    """Return the result of a task without the reference to the upstream's own task."""
    meta = {k: v for k, v in (result.meta or {}).items() if k != RELATED_TASK_KEY}
    members = to_builtins(replace(result, meta=meta or None, result_type=None))
    return Raw(encode(members))


async def _mirrored(shape: TaskShape, id: str, ctx: Context) -> None:
    """Show the upstream's status messages as those of the gateway's task."""
    with suppress(McpearlError):
        async for state in shape.states(id):
            _report(ctx, state.status_message)


def _report(ctx: Context, message: str | None) -> None:
    run = call_of(ctx).run
    if not message or run is None or run.record is None or run.ended:
        return
    if run.record.status_message != message:
        run.engine.beside(run.engine.report(run, message))
