"""What an isolated process does: it takes calls, one after the other, and runs the tools in place.

Where all tools are plain functions it has no event loop: it waits in a read, runs the function, and
writes the answer. Where a tool is `async`, or the server has a lifespan, it has a loop, and plain
functions run in a thread beside it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from mcpearl.protocol.codec import splice
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Encoded
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.versions import VERSIONS
from mcpearl.runtime import tracing
from mcpearl.runtime.isolation.confine import CannotConfine, ProcessorTime, confine
from mcpearl.runtime.isolation.frames import Kind
from mcpearl.runtime.isolation.profile import Isolate
from mcpearl.runtime.isolation.zygote import Wiring
from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.core import ServerCore
from mcpearl.server.isolation.context import (
    BlockingContext,
    Contexts,
    IsolatedContext,
    drive,
)
from mcpearl.server.isolation.line import BlockingLine, LoopLine
from mcpearl.server.isolation.messages import (
    CallFailure,
    json_or_none,
    pack,
    pack_result,
    unpack_call,
)
from mcpearl.types.base import Result, encode
from mcpearl.types.content import TextContent
from mcpearl.types.tool_calls import CallToolResult

if TYPE_CHECKING:
    from mcpearl.server.isolation.tool import IsolatedTool

EnterLifespan = Callable[[AsyncExitStack], Awaitable[None]]
_VERSIONS = tuple(VERSIONS.values())
_THREADS = 4  # one for the call, and some for those that were told to end and have not


class InPlace:
    """Runs plain functions of isolated tools: in place, or in threads once there are some."""

    def __init__(self) -> None:
        self.threads: ThreadPool | None = None

    async def run(self, function: Callable[[], Any], key: Hashable = None) -> Any:
        """Call a function, and return what it returns."""
        return function() if self.threads is None else await self.threads.run(function)


IN_PLACE = InPlace()
"""The pool that isolated tools are registered with. The server itself does not run them."""


def work(
    core: ServerCore,
    tools: "list[IsolatedTool]",
    profile: Isolate,
    lifespan: EnterLifespan | None,
    wiring: Wiring,
) -> None:
    """Take calls until the server does not need this process any more."""
    if lifespan is not None or any(tool.needs_loop for tool in tools):
        asyncio.run(_work_on_loop(core, tools, profile, lifespan, wiring))
    else:
        for tool in tools:
            tool.settle()
        _BlockingWorker(core, tools, profile, BlockingLine(wiring)).run()


async def _work_on_loop(
    core: ServerCore,
    tools: "list[IsolatedTool]",
    profile: Isolate,
    lifespan: EnterLifespan | None,
    wiring: Wiring,
) -> None:
    loop = asyncio.get_running_loop()
    worker = _LoopWorker(core, tools, profile, LoopLine(wiring), loop)
    worker.confine()
    IN_PLACE.threads = ThreadPool(_THREADS)
    async with AsyncExitStack() as stack:
        try:
            if lifespan is not None:
                await lifespan(stack)
        except Exception as error:
            worker.refuse(
                f"cannot enter the lifespan, which raised {type(error).__name__}: {error}"
            )
            raise
        await worker.serve()


class _BlockingWorker:
    """Takes calls without an event loop."""

    kind: type[IsolatedContext] = BlockingContext

    def __init__(
        self,
        core: ServerCore,
        tools: "list[IsolatedTool]",
        profile: Isolate,
        line: BlockingLine,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._core = core
        self._tools = tools
        self._profile = profile
        self._line = line
        self._time = None if profile.cpu is None else ProcessorTime(profile.cpu)
        self._contexts = Contexts(self.kind, core, line, loop)
        self._bare: dict[tuple[int, int], IsolatedContext] = {}

    def confine(self) -> None:
        """Set the limits of this process; end it if they cannot be set."""
        try:
            confine(self._profile)
        except CannotConfine as error:
            self.refuse(str(error))
            raise SystemExit(1) from None

    def refuse(self, reason: str) -> None:
        """Say why this process cannot take calls."""
        self._line.send(Kind.UNUSABLE, reason.encode())
        self._line.flush()

    def run(self) -> None:
        """Take calls until there are no more."""
        self.confine()
        line = self._line
        line.send(Kind.READY)
        while (payload := line.next_call()) is not None:
            self._call(payload)

    def _call(self, payload: bytes) -> None:
        tool, ctx, arguments = self._prepare(payload)
        try:
            result = copy_context().run(_run, tool, arguments, ctx)
            payload = self._result(result, ctx)
        except BaseException as error:
            self._fail(error, ctx)
        else:
            self._line.end(Kind.RESULT, payload)

    def _prepare(self, payload: bytes) -> tuple["IsolatedTool", IsolatedContext, Any]:
        index, version, sent, arguments = unpack_call(payload)
        tool = self._tools[index]
        if self._time is not None:
            self._time.renew()
        name = tool.definition.name
        if sent:
            return tool, self._contexts.make(name, _VERSIONS[version], sent, arguments), arguments
        ctx = self._bare.get((index, version))
        if ctx is None:
            ctx = self._contexts.bare(name, _VERSIONS[version])
            self._bare[index, version] = ctx
        return tool, ctx, arguments

    def _result(self, result: Result | Encoded, ctx: IsolatedContext) -> bytes:
        state = ctx.sendable_state()
        if isinstance(result, Encoded):  # only a tool that succeeded returns one
            return pack_result(result.body, result.complete, False, pack(state) if state else b"")
        version = ctx.client.version
        is_error = isinstance(result, CallToolResult) and result.is_error
        if not version.modern:
            body, complete = encode(narrow(result, version.name)), True
        else:
            members, body = self._core.stamp.encode(result, version)
            complete = members != self._core.stamp.complete
            body = splice(members, body) if complete else body
        return pack_result(body, complete, is_error, pack(state) if state else b"")

    def _fail(self, error: BaseException, ctx: IsolatedContext) -> None:
        if isinstance(error, MemoryError) and self._profile.memory is not None:
            text = f"Tool `{ctx.params.name}` exceeded its memory of {self._profile.memory_text}"
            self._line.end(Kind.LAST, pack(CallFailure(text)))
            return
        if isinstance(error, asyncio.CancelledError):
            self._line.end(Kind.FAILURE, pack(CallFailure("The call was cancelled")))
            return
        answer = ctx.fail(error)
        if isinstance(answer, McpError):
            failure = CallFailure(None, answer.code, answer.message, json_or_none(answer.data))
        else:
            failure = CallFailure(_text(answer))
        failure.state = ctx.sendable_state()
        self._line.end(Kind.FAILURE, pack(failure))


class _LoopWorker(_BlockingWorker):
    """Takes calls on an event loop."""

    kind = IsolatedContext
    _line: LoopLine
    _running: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Take calls until there are no more."""
        line = self._line
        line.send(Kind.READY)
        line.listen(self._take)
        await line.over.wait()
        if self._running is not None:
            self._running.cancel()

    def _take(self, payload: bytes) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run(payload))

    async def _run(self, payload: bytes) -> None:
        tool, ctx, arguments = self._prepare(payload)
        ctx.run_by(self._running)
        tracing.enter(ctx.params.meta)
        try:
            payload = self._result(await tool.run_here(arguments, ctx), ctx)
        except BaseException as error:
            self._fail(error, ctx)
        else:
            self._line.end(Kind.RESULT, payload)
        self._line.flush()
        self._line.is_free()


def _run(tool: "IsolatedTool", arguments: Any, ctx: IsolatedContext) -> Any:
    if tracing.is_used():
        tracing.enter(ctx.params.meta)
    return drive(tool.run_here(arguments, ctx))


def _text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))
