"""Tasks as an extension of a server: their methods in both shapes, and which calls become tasks.

The two shapes do not mix. In 2025-11-25 a client asks for a task with `params.task`; from 2026-07-28 it
declares the extension with its request, and the server decides.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol.capabilities import absent
from mcpearl.protocol.errors import ConnectionLost, McpError, RequestTimeout
from mcpearl.protocol.events import Call, Caller, Encoded
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.server.context import Context, call_of, peer_of
from mcpearl.server.dispatch import Answering, Dispatch, Next
from mcpearl.server.extensions import ServerExtension, method
from mcpearl.server.handler import Handler
from mcpearl.server.tasks import views
from mcpearl.server.tasks.engine import ANSWERS, TaskEngine, TaskTools
from mcpearl.server.tasks.journal import StoredQuestion, owner_of, read_question
from mcpearl.server.tasks.options import TaskBounds, Tasks
from mcpearl.server.tasks.promotion import Candidate
from mcpearl.stores.memory_tasks import MemoryTaskStore
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import Result, to_builtins
from mcpearl.types.capabilities import (
    TASKS_EXTENSION,
    ServerCapabilities,
    TaskRequestsCapability,
    TasksCapability,
    ToolsTasksCapability,
)
from mcpearl.types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, ErrorObject
from mcpearl.types.methods import REQUESTS
from mcpearl.types.pages import PaginatedRequestParams
from mcpearl.types.tasks import (
    ListTasksResult,
    TaskRequestParams,
    UpdateTaskRequestParams,
)

if TYPE_CHECKING:
    from mcpearl.server.server import Server
else:
    Server = Any  # which loads this module

_TASKS_VERSION = "2025-11-25"
_PAGE = 100  # tasks of one page


class TasksExtension(ServerExtension):
    """Tools that run as tasks. A server gets this extension with its first tool that has `task=`.

    >>> app = Server("reports", extensions=[TasksExtension(TaskBounds(max_result=64_000))])

    Args:
        bounds: Bounds of running tasks and of what is stored of one.
    """

    identifier = TASKS_EXTENSION
    passes_at_once = passes_results = True

    def __init__(self, bounds: TaskBounds | None = None) -> None:
        self._bounds = bounds or TaskBounds()
        self._handler: TaskTools = Handler()
        self._uncount: Callable[[], None] | None = None
        self.engine: TaskEngine

    def attach(self, server: "Server") -> None:
        """Take over the tasks of a server.

        Args:
            server: The server.
        """
        self._handler = server.tools_known
        store = MemoryTaskStore() if server.task_store is None else server.task_store
        self.engine = TaskEngine(server.core, store, self._bounds, self._handler, server.parts.root)
        server.core.tasks = self.engine.feed
        server.core.outlives = self._outlives
        self._count(server)

    def _count(self, server: "Server") -> None:
        if self._uncount is None:
            self._uncount = server.core.add_counters(self.engine.counters)

    def look_in(self, tools: TaskTools) -> None:
        """Find tools here from now on: the server has parts now.

        Args:
            tools: Knows the tools of the server and of its parts.
        """
        self._handler = tools
        self.engine.look_in(tools)

    def _outlives(self, call: Call) -> bool:
        """Whether a call may become a task while it runs."""
        if call.method != "tools/call":
            return False
        options = self._handler.tasks_of(call.params.name)
        return options is not None and options.after is not None

    async def start(self, server: "Server") -> None:
        """Open the store, and take up tasks that were left behind.

        Args:
            server: The server.
        """
        self._count(server)
        await self.engine.start()

    async def close(self) -> None:
        """Finish the running tasks or hand them over, and close the store."""
        if self._uncount is not None:
            self._uncount()
            self._uncount = None
        await self.engine.close()

    def announce(self, capabilities: ServerCapabilities) -> ServerCapabilities:
        """Add the capability that 2025-11-25 has instead of the extension.

        Args:
            capabilities: The capabilities without tasks.
        """
        tasks = TasksCapability(
            list={},
            cancel={},
            requests=TaskRequestsCapability(tools=ToolsTasksCapability(call={})),
        )
        return msgspec.structs.replace(capabilities, tasks=tasks)

    # Around a tool

    def around(self, inner: Dispatch) -> Dispatch:
        """Run tools as calls or as tasks.

        Args:
            inner: Runs the tool.
        """
        tasks_of, promotions = self._handler.tasks_of, self.engine.promotions
        willing: Caller | None = None  # the latest caller that can take a task of the extension

        def dispatch(call: Call, ctx: Context) -> Answering:
            nonlocal willing
            params = call.params
            options = tasks_of(params.name)
            if options is None:
                if params.task is not None:
                    _refuse_task(call)
                return inner(call, ctx)
            if call.run is not None:
                return inner(call, ctx)
            caller = call.caller
            if caller is not willing:
                if not caller.version.modern:
                    return self._legacy(call, ctx, inner, options)
                extensions = caller.capabilities.extensions
                if extensions is None or TASKS_EXTENSION not in extensions:
                    if options.required:
                        self.require(ctx)
                    return inner(call, ctx)
                willing = caller
            after = options.after
            if after is not None:
                if after < promotions.shortest:
                    promotions.look_for(after)
                call.run = Candidate(promotions, call, ctx, options, promotions.now)
                return inner(call, ctx)
            return self._modern(ctx, lambda: inner(call, ctx), options)

        return dispatch

    def _legacy(self, call: Call, ctx: Context, inner: Dispatch, options: Tasks) -> Answering:
        params = call.params
        if params.task is not None and call.caller.version.name == _TASKS_VERSION:
            return self._legacy_task(ctx, lambda: inner(call, ctx), options)
        if options.required:
            raise McpError(
                METHOD_NOT_FOUND,
                f"Tool `{params.name}` runs as a task only; call it with `task`, which "
                f"protocol version {_TASKS_VERSION} has",
                {"name": params.name},
            )
        return inner(call, ctx)

    async def _modern(self, ctx: Context, call_next: Next, options: Tasks) -> Result:
        return views.created(await self.engine.accept(ctx, call_next, options, options.ttl))

    async def _legacy_task(self, ctx: Context, call_next: Next, options: Tasks) -> Result:
        asked = call_of(ctx).params.task.ttl
        if asked is not None and asked <= 0:
            raise McpError(
                INVALID_PARAMS,
                f"`task.ttl` must be a positive number of milliseconds, not {asked}",
                {"ttl": asked},
            )
        ttl = options.ttl if asked is None else min(asked / 1000, options.max_ttl)
        return views.legacy_created(await self.engine.accept(ctx, call_next, options, ttl))

    # Methods

    async def _look(self, id: str, ctx: Context) -> TaskRecord:
        """Return a task of the caller; a modern caller must have declared the extension."""
        call = call_of(ctx)
        caller = call.caller
        if caller.version.modern:
            extensions = caller.capabilities.extensions
            if extensions is None or TASKS_EXTENSION not in extensions:
                self.require(ctx)
        return await self.engine.look(id, owner_of(call))

    @method("tasks/get", TaskRequestParams, undeclared=True)
    async def get(self, params: TaskRequestParams, ctx: Context) -> Result:
        """Return the current state of a task.

        Args:
            params: The id of the task.
            ctx: The call.
        """
        record = await self._look(params.task_id, ctx)
        if not ctx.client.version.modern:
            return views.legacy_got(record)
        return views.got(record, self.engine.contents)

    @method("tasks/update", UpdateTaskRequestParams, undeclared=True)
    async def update(self, params: UpdateTaskRequestParams, ctx: Context) -> Result:
        """Take answers to a task's questions.

        Args:
            params: The id of the task, and the answers by question.
            ctx: The call.
        """
        record = await self._look(params.task_id, ctx)
        await self.engine.answer(record, params.input_responses)
        return Result()

    @method("tasks/cancel", TaskRequestParams, undeclared=True)
    async def cancel(self, params: TaskRequestParams, ctx: Context) -> Result:
        """Cancel a task.

        Args:
            params: The id of the task.
            ctx: The call.
        """
        record = await self._look(params.task_id, ctx)
        was_over = record.status in TERMINAL
        record = await self.engine.cancel(record)
        if ctx.client.version.modern:
            return Result()
        if was_over or record.status != "cancelled":
            raise McpError(
                INVALID_PARAMS,
                f"The task cannot be cancelled: it is {views.legacy_task(record).status} already",
                {"taskId": record.id},
            )
        return views.legacy_cancelled(record)

    @method("tasks/list", PaginatedRequestParams, undeclared=True)
    async def list(self, params: PaginatedRequestParams, ctx: Context) -> Result:
        """Return a page of the caller's tasks. Callers that cannot be identified have no list.

        Args:
            params: The cursor of the page.
            ctx: The call.
        """
        call = call_of(ctx)
        principal = call.caller.principal
        if principal is not None and not principal.subject:
            raise absent("tasks/list", "tasks.list")
        owner, store = owner_of(call), self.engine.store
        cursor = params.cursor
        if cursor is not None and await store.get(cursor, owner) is None:
            raise McpError(
                INVALID_PARAMS,
                "The cursor is unknown, or its task has expired; start again without one",
            )
        page = await store.page(owner, cursor, _PAGE + 1)
        more = len(page) > _PAGE
        page = page[:_PAGE]
        return ListTasksResult(
            tasks=[views.legacy_task(record) for record in page],
            next_cursor=page[-1].id if more else None,
        )

    @method("tasks/result", TaskRequestParams, undeclared=True)
    async def result(self, params: TaskRequestParams, ctx: Context) -> Encoded:
        """Wait for the end of a task and return its result; meanwhile put its questions to the caller.

        Args:
            params: The id of the task.
            ctx: The call.
        """
        record = await self._look(params.task_id, ctx)
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            while record.status not in TERMINAL:
                self._put_questions(record, ctx, asking)
                record = await self.engine.next_change(record)
        finally:
            for task in asking.values():
                task.cancel()
        content = self.engine.contents.content_of(record)
        return views.legacy_payload(record, content or b"{}")

    def _put_questions(
        self, record: TaskRecord, ctx: Context, asking: "dict[str, asyncio.Task[None]]"
    ) -> None:
        """Send a task's open questions to a caller that waits for its result."""
        if record.status != "input_required":
            return
        loop = asyncio.get_running_loop()
        for key, raw in self.engine.contents.journal_of(record).asked.items():
            if key not in asking and self.engine.reserve_question(record.id, key):
                asking[key] = loop.create_task(self._put(record, key, read_question(raw), ctx))

    async def _put(
        self, record: TaskRecord, key: str, question: StoredQuestion, ctx: Context
    ) -> None:
        kind = ANSWERS[question.method]
        params: Any = msgspec.json.decode(question.params, type=REQUESTS[question.method].params)
        params.meta = {**(params.meta or {}), **views.related(record.id)}
        try:
            answer = await peer_of(ctx).ask(call_of(ctx), question.method, params, kind)
            await self.engine.answer(record, {key: to_builtins(answer)})
        except McpError as error:
            refusal = ErrorObject(code=error.code, message=error.message, data=error.data)
            await self.engine.answer(record, {}, {key: refusal})
        except (ConnectionLost, RequestTimeout):
            pass  # the client can be asked again when it looks for the result again
        finally:
            self.engine.free_question(record.id, key)


def _refuse_task(call: Call) -> None:
    """Refuse a call that asks for a task if the tool never runs as one, in a version with tasks."""
    if call.caller.version.name == _TASKS_VERSION:
        name = call.params.name
        raise McpError(
            METHOD_NOT_FOUND,
            f"Tool `{name}` cannot run as a task; call it without `task`",
            {"name": name},
        )
