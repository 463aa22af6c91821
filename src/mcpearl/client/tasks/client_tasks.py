"""The tasks that one client starts at its server, in the shape that the server's version has."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.extensions import ClientExtension, ExtensionResult, Requester
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.client.requests import ClientCall, Requests
from mcpearl.client.subscriptions import ClientSubscriptions
from mcpearl.client.tasks.handle import ClientTask
from mcpearl.client.tasks.shapes import LegacyTasks, ModernTasks, TaskShape
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.protocol.errors import CapabilityMissing
from mcpearl.protocol.events import Notice
from mcpearl.types.base import Result, TaskMetadata
from mcpearl.types.capabilities import TASKS_EXTENSION
from mcpearl.types.tasks import CreateTaskResult, ExtensionCreateTaskResult
from mcpearl.types.tool_calls import CallToolRequestParams

Learn = Callable[[str, float], Awaitable[None]]


class ClientTasks(ClientExtension):
    """Starts tool calls that run as tasks, and follows them to their end.

    In the modern era the server decides which calls become tasks, so this is an extension that claims
    their results. In 2025-11-25 the client asks for a task, if the tool allows or requires one.
    """

    identifier = TASKS_EXTENSION
    results = {("tools/call", "task"): ExtensionCreateTaskResult}

    def __init__(
        self,
        link: Link,
        requests: Requests,
        callbacks: Callbacks,
        known: KnownTools,
        subscriptions: ClientSubscriptions,
        learn: Learn,
    ) -> None:
        self._link = link
        self._requests = requests
        self._known = known
        self._learn = learn  # lists the tools until a deadline, so that one of them is known
        self._modern = ModernTasks(requests, callbacks, subscriptions.stream)
        self._legacy = LegacyTasks(requests)

    def shape(self) -> TaskShape:
        """Return the shape of tasks at the connected server."""
        return self._modern if self._link.introduced().version.modern else self._legacy

    def heard(self, notice: Notice) -> None:
        """Handle a notification of a legacy server about a task."""
        self._legacy.noticed(notice.params)

    def handle(self, id: str, tool: str | None = None) -> ClientTask:
        """Return the handle of a task; its result is checked if `tool` is given."""
        return ClientTask(id, self.shape, None if tool is None else partial(self._check, tool))

    def _check(self, tool: str, result: TypedToolResult[Any]) -> None:
        if not result.is_error:
            self._known.check(tool, result)
        result.read_with(self._known.reader(tool))

    async def start(self, call: ClientCall[TypedToolResult[Any]], ttl: float | None) -> ClientTask:
        """Call a tool so that it runs as a task if it can; return the handle of the task."""
        assert isinstance(call.params, CallToolRequestParams)
        tool = call.params.name
        if self._link.introduced().version.modern:
            call.resolves = False
            answer: Any = await self._requests.run(call)
            if not isinstance(answer, TypedToolResult):
                return self.handle(answer.task_id, tool)
            return ClientTask("", self.shape, done=answer)
        if self._known.task_support(tool) is None:
            now = asyncio.get_running_loop().time()
            await self._learn(tool, call.deadlines(now)[0])
        if not self.offered or self._known.task_support(tool) not in ("optional", "required"):
            raise CapabilityMissing(
                f"tool `{tool}` does not run as a task at this server; call it with `call_tool`"
            )
        id, _ = await self._create(call, ttl)
        return self.handle(id, tool)

    @property
    def offered(self) -> bool:
        """Whether a legacy server runs tool calls as tasks."""
        tasks = self._link.introduced().capabilities.tasks
        wanted = None if tasks is None else tasks.requests
        return wanted is not None and wanted.tools is not None and wanted.tools.call is not None

    async def _create(
        self, call: ClientCall[TypedToolResult[Any]], ttl: float | None
    ) -> tuple[str, int]:
        """Ask a legacy server to run a call as a task; return the task's id, and the request's."""
        assert isinstance(call.params, CallToolRequestParams)
        lifetime = None if ttl is None else round(ttl * 1000)
        wanted: ClientCall[CreateTaskResult] = ClientCall(
            call.method,
            replace(call.params, task=TaskMetadata(ttl=lifetime)),
            CreateTaskResult,
            call.timeout,
            call.max_timeout,
            call.on_progress,
            call.meta,
        )
        created = await self._requests.run(wanted)
        connection, token = self._link.connection, wanted.sent[-1].id
        if connection is not None and call.on_progress is not None:
            # The token of the request stays valid for as long as the task runs.
            connection.progress.keep(token, call.on_progress)
        return created.task.task_id, token

    async def run(self, call: ClientCall[TypedToolResult[Any]]) -> TypedToolResult[Any]:
        """Call a tool of a legacy server that only runs as a task, and wait for its end."""
        now = asyncio.get_running_loop().time
        deadline = call.deadlines(now())[1]
        id, token = await self._create(call, None)
        connection = self._link.connection
        try:
            return await self.handle(id).result(max(0.0, deadline - now()))
        finally:
            if connection is not None:
                connection.progress.drop(token)

    async def resolve(self, client: Requester, asked: ExtensionResult, result: Result) -> Result:
        """Wait for the end of a call that a modern server turned into a task."""
        assert isinstance(result, ExtensionCreateTaskResult)
        left = asked.deadline - asyncio.get_running_loop().time()
        return await self.handle(result.task_id).result(max(0.0, left))
