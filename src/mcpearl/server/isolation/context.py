"""The `Context` of a tool in an isolated process: what it does goes through to the server."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from mcpearl.auth.principal import Principal
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.versions import Version
from mcpearl.server.context import Context, Finished
from mcpearl.server.core import ServerCore
from mcpearl.server.failures import answer_to
from mcpearl.server.isolation.line import BlockingLine, LineOfCall
from mcpearl.server.isolation.messages import (
    VisibleContext,
    decode_caller,
    decode_context,
    json_or_none,
)
from mcpearl.server.session_state import SessionState, session_state
from mcpearl.types.base import Implementation, Result, decode, encode
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.input_required import InputRequest
from mcpearl.types.resources import ResourceContents
from mcpearl.types.tool_calls import CallToolRequestParams, CallToolResult

T = TypeVar("T")


class IsolatedContext(Context[Any]):
    """A call in an isolated process."""

    __slots__ = ("_line", "_once", "_promotable", "_task")

    def __init__(self, call: Call, peer: "ServerPeer", core: ServerCore, line: LineOfCall) -> None:
        super().__init__(call, peer, core)
        self._line = line
        self._once = False  # whether the server keeps the results of `once`
        self._task: str | None = None
        self._promotable = False

    def takes_encoded(self) -> bool:
        """Return True: the server decodes a result again where something looks at it."""
        return True

    def take_over(self, given: VisibleContext) -> None:
        """Take over what the server says about the call."""
        self._once = given.rounds
        self._task = given.task
        self._promotable = given.promotable
        if given.state or given.unsent:
            state = {key: msgspec.json.decode(value) for key, value in given.state.items()}
            self._state = _CallState(state)
            self._state.unsent = frozenset(given.unsent)

    def sendable_state(self) -> dict[str, bytes]:
        """Return what the handler left in `state`, as far as it has a JSON form."""
        if not self._state:
            return {}
        encoded = {key: json_or_none(value) for key, value in self._state.items()}
        return {key: value for key, value in encoded.items() if value is not None}

    def fail(self, error: BaseException) -> CallToolResult | McpError:
        """Return the answer to this call when its handler raised an error."""
        return answer_to(self._call, error, mask=self._core.mask_errors)

    def run_by(self, task: "asyncio.Task[Any] | None") -> None:
        """Note the task that runs the handler."""
        self._call.work = task

    async def _ask(
        self,
        method: str,
        params: msgspec.Struct,
        request: InputRequest,
        kind: type[Result],
        key: str | None,
    ) -> Any:
        return decode(kind, await self._line.ask("ask", method, encode(params), key))

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do something once per call; see `Context.once`.

        Args:
            key: Names what is done, within this handler.
            function: Does it, and returns a value with a JSON form.
        """
        before = await self._line.ask("done", key) if self._once else None
        if before is not None:
            return msgspec.json.decode(before)
        value = function()
        if inspect.isawaitable(value):
            value = await value
        if self._once:
            await self._line.ask("record", key, msgspec.json.encode(value))
        return value

    @property
    def task(self) -> str | None:
        """The id of the task that the tool runs as; None while it runs as a plain call.

        The server is asked, while the call may become a task.
        """
        if self._task is None and self._promotable:
            self._task = self._line.ask_now("task")
        return self._task

    async def become_task(self) -> bool:
        """Answer the client now, with a task, and go on."""
        self._task = await self._line.ask("become_task")
        return self._task is not None

    @property
    def session(self) -> SessionState:
        """Values kept for the client beyond this call, by the server."""
        return session_state(ServerState(self._line), self.session_id, self.principal)

    async def read_resource(self, uri: str) -> list[ResourceContents]:
        """Read one of the server's resources, in the server.

        Args:
            uri: The resource's URI.
        """
        return [decode(ResourceContents, each) for each in await self._line.ask("read", uri)]


class BlockingContext(IsolatedContext):
    """The context in a process without an event loop: its methods return when their work is done."""

    __slots__ = ()

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an answer.

        Args:
            awaitable: What an async handler would await.
        """
        return drive(awaitable)

    def _deliver(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        drive(work)
        return Finished()


def drive(work: Awaitable[T]) -> T:
    """Run an awaitable to its end. It may wait for the server only, which blocks this thread."""
    steps = work.__await__()
    try:
        while next(steps) is None:
            pass
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise RuntimeError(
        "a plain `def` tool in an isolated process has no event loop to wait on; make it `async def`"
    )


class ServerPeer:
    """The server, as the other end of a call in an isolated process."""

    share: Hashable = None

    def __init__(self, line: LineOfCall, loop: Any, thread: int) -> None:
        self._line = line
        self.loop = loop
        self.thread = thread

    def waits_for(self, call: Call) -> bool:
        """Whether the call has not ended; a call whose answer is not wanted is killed."""
        return self._line.is_open

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Have the server send a notification; it stops reading when its client does."""
        self._line.tell("notify", method, encode(params))
        await asyncio.sleep(0)

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Not used: the context asks."""
        raise NotImplementedError

    def tell(self, message: bytes) -> bool:
        """Send nothing outside of a call."""
        return False

    def answer(self, call: Call, result: Result) -> None:
        """Not used: the server answers."""
        raise NotImplementedError

    def stop(self, call: Call) -> None:
        """Not used: the server stops calls."""
        raise NotImplementedError

    def reserve(self, uri: str) -> None:
        """Not used: tools do not subscribe."""
        raise NotImplementedError

    subscribe = unsubscribe = reserve


class _CallOutlet:
    """How a call came, as far as a handler can see it."""

    def __init__(self, line: LineOfCall, sent: VisibleContext) -> None:
        self._line = line
        self.address = sent.address
        self.request_headers = sent.headers
        self.session_id = sent.session_id

    def send_away(self, retry_ms: int) -> None:
        self._line.tell("send_away", retry_ms)


class ServerState:
    """The state store of the server, for `Context.session`."""

    def __init__(self, line: LineOfCall) -> None:
        self._line = line

    async def get(self, owner: str, key: str) -> bytes | None:
        """Return a value."""
        value: bytes | None = await self._line.ask("session.get", key)
        return value

    async def set(self, owner: str, key: str, value: bytes) -> None:
        """Keep a value."""
        await self._line.ask("session.set", key, value)

    async def delete(self, owner: str, key: str) -> bool:
        """Remove a value."""
        return bool(await self._line.ask("session.delete", key))

    async def keys(self, owner: str) -> list[str]:
        """Return the keys."""
        return list(await self._line.ask("session.keys"))

    async def clear(self, owner: str) -> None:
        """Remove everything."""
        await self._line.ask("session.clear")


class _CallState(dict[str, Any]):
    """`Context.state`. Looking up a value that could not be sent raises an error that says why."""

    unsent: frozenset[str] = frozenset()

    def __missing__(self, key: str) -> Any:
        if key in self.unsent:
            raise KeyError(
                f"{key!r} is set, and has no form that could be sent to an isolated tool; put a "
                "value there that JSON can hold"
            )
        raise KeyError(key)


class Contexts:
    """Makes the contexts of the calls of one process.

    Args:
        kind: The class of the contexts.
        core: The application's, as it was forked.
        line: To the server.
        loop: The event loop of the process, if it has one.
    """

    def __init__(
        self,
        kind: type[IsolatedContext],
        core: ServerCore,
        line: BlockingLine,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._kind = kind
        self._core = core
        self._line = line
        self._loop = loop
        self._thread = threading.get_ident()
        self._known: tuple[bytes, int, Caller] | None = None  # the last caller

    def bare(self, name: str, version: Version) -> IsolatedContext:
        """Make the context of a tool that does not look at it."""
        caller = Caller(version, None, ClientCapabilities())
        call = Call(0, "tools/call", CallToolRequestParams(name=name), b"{}", caller)
        return self._context(call, LineOfCall(self._line, 0))

    def _context(self, call: Call, line: LineOfCall) -> IsolatedContext:
        peer = ServerPeer(line, self._loop, self._thread)
        return self._kind(call, peer, self._core, line)

    def make(
        self, name: str, version: Version, sent: bytes, arguments: Raw | UnsetType
    ) -> IsolatedContext:
        """Make the context of a call."""
        given = decode_context(sent)
        meta = None if given.meta is None else msgspec.json.decode(given.meta)
        params = CallToolRequestParams(name=name, arguments=arguments, meta=meta)
        caller = self._caller(given.caller, version)
        call = Call(given.id, "tools/call", params, b"{}", caller, given.token)
        line = LineOfCall(self._line, self._line.call)
        call.outlet = _CallOutlet(line, given)
        ctx = self._context(call, line)
        ctx.take_over(given)
        return ctx

    def _caller(self, sent: bytes, version: Version) -> Caller:
        if self._known is not None and self._known[:2] == (sent, version.index):
            return self._known[2]
        given = decode_caller(sent)
        principal = None
        if given.principal is not None:
            principal = Principal(
                given.principal.subject,
                client_id=given.principal.client_id,
                issuer=given.principal.issuer,
                scopes=given.principal.scopes,
                claims=msgspec.json.decode(given.principal.claims),
                expires=given.principal.expires,
            )
        caller = Caller(
            version,
            None if given.client is None else decode(Implementation, given.client),
            decode(ClientCapabilities, given.capabilities),
            given.log_level,
            principal,
        )
        self._known = sent, version.index, caller
        return caller
