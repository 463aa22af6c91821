"""What a handler can do besides returning a value: report progress, log, ask the client, read.

A `Context` belongs to one call. It reads the same in both eras: asking a legacy client sends it a
request, asking a modern one ends this round of the call (see `input_rounds`).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from mcpearl import types
from mcpearl.protocol.events import Call, Caller
from mcpearl.server.asking import Asking
from mcpearl.server.peer import Peer, wants_log
from mcpearl.types.base import RequestId, Result

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    from mcpearl.auth.principal import Principal
    from mcpearl.server.core import ServerCore
    from mcpearl.server.input_rounds import InputRounds
    from mcpearl.server.session_state import SessionState
    from mcpearl.server.tasks.questions import TaskQuestions

    L = DefaultingTypeVar("L", default=Any)
else:
    # Loaded where they are made, not where they are named.
    Principal = ServerCore = SessionState = Any
    L = TypeVar("L")

T = TypeVar("T")


class Context(Asking, Generic[L]):
    """The call a handler is working on. Annotate a parameter with it to get it.

    >>> @app.tool
    ... async def count(to: int, ctx: Context) -> str:
    ...     for number in range(to):
    ...         await ctx.progress(number + 1, to)
    ...     return "done"

    `Context[Lifespan]` says of which type `lifespan` is.

    Args:
        call: The call; the server makes the contexts of handlers.
        peer: The other end of the call.
        core: What the server's connections share.
    """

    __slots__ = ("_progress", "_state")

    def __init__(self, call: Call, peer: Peer, core: ServerCore) -> None:
        self._call = call
        self._peer = peer
        self._core = core
        self._progress: float | None = None  # the last value reported; it only grows
        self._state: dict[str, Any] | None = None

    # The call and its caller

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self._call.id

    @property
    def method(self) -> str:
        """The method that was called, such as `tools/call`."""
        return self._call.method

    @property
    def params(self) -> Any:
        """The typed params of the request."""
        return self._call.params

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of the request."""
        return self._call.params.meta or {}

    @property
    def client(self) -> Caller:
        """The caller: its `client` (name and version), `capabilities`, `version`."""
        return self._call.caller

    @property
    def principal(self) -> Principal | None:
        """The authenticated caller; None when the transport did not authenticate it."""
        principal: Principal | None = self._call.caller.principal
        return principal if principal is not None and principal.subject else None

    def may_use(self, scopes: frozenset[str]) -> bool:
        """Whether the caller has these scopes. On a wire without authorization every caller has all.

        Args:
            scopes: The scopes that are needed.
        """
        principal: Principal | None = self._call.caller.principal
        return principal is None or scopes <= principal.scopes

    @property
    def core(self) -> ServerCore:
        """What the server's connections share; for dispatchers."""
        return self._core

    def _client_name(self, name: str) -> str:
        return name

    def takes_encoded(self) -> bool:
        """Whether nothing looks at the result before it is sent; for dispatchers."""
        return self._core.takes_encoded

    @property
    def lifespan(self) -> L:
        """What the server's lifespan yielded."""
        value: L = self._core.lifespan_value
        return value

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request, by name in lower case; empty on wires without headers."""
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self._call.outlet.request_headers.items()
        }

    @property
    def client_address(self) -> str | None:
        """The client's IP address; behind a proxy the proxy's. None on wires without addresses."""
        address: str | None = self._call.outlet.address
        return address

    @property
    def session_id(self) -> str | None:
        """Identifies the client's session; None in the modern era, which has no sessions."""
        if self._call.caller.version.modern:
            return None
        id: str | None = self._call.outlet.session_id
        return id

    @property
    def session(self) -> SessionState:
        """Values kept for the client beyond this call: for its session, or else for its principal.

        Raises `LookupError` for a client that has neither.
        """
        from mcpearl.server.session_state import session_state

        return session_state(self._core.state_store, self.session_id, self.principal)

    @property
    def state(self) -> dict[str, Any]:
        """A place for middleware and handlers to leave things for each other, for this call."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def cancelled(self) -> bool:
        """Whether the answer is no longer wanted. Plain functions in a thread can look here."""
        return not self._peer.waits_for(self._call)

    # Telling

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Report how far the work is, if the client asked for progress.

        Await it in an async handler; a plain function just calls it.

        Args:
            progress: How much is done. Values must grow; others are not sent.
            total: How much there is to do, if that is known.
            message: What is being done.
        """
        return self._deliver(self._send_progress(progress, total, message))

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Report how far the work is: another name of `progress`.

        Args:
            progress: How much is done.
            total: How much there is to do, if that is known.
            message: What is being done.
        """
        return self.progress(progress, total, message)

    async def _send_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        token = self._call.progress_token
        last = -inf if self._progress is None else self._progress
        if token is not None and last < progress < inf:
            self._progress = progress
            if total is not None and not isfinite(total):
                total = None
            params = types.ProgressNotificationParams(
                progress_token=token, progress=progress, total=total, message=message
            )
            await self._notify("notifications/progress", params)
        else:
            await asyncio.sleep(0)

    def log(
        self, level: types.LoggingLevel, data: Any, logger: str | None = None
    ) -> Awaitable[None]:
        """Write to the client's log, if it wants messages of this level.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
            data: The message: a string, or anything with a JSON form.
            logger: The name of the part that logs.
        """
        return self._deliver(self._send_log(level, data, logger))

    async def _send_log(self, level: types.LoggingLevel, data: Any, logger: str | None) -> None:
        if not wants_log(self._call.caller, level):
            await asyncio.sleep(0)
            return
        try:
            msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError):
            data = ascii(data)  # it has no JSON form
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        await self._notify("notifications/message", params)

    def debug(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level debug.

        Args:
            data: The message, as for `log`.
            logger: The name of the part that logs.
        """
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level info.

        Args:
            data: The message, as for `log`.
            logger: The name of the part that logs.
        """
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level warning.

        Args:
            data: The message, as for `log`.
            logger: The name of the part that logs.
        """
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level error.

        Args:
            data: The message, as for `log`.
            logger: The name of the part that logs.
        """
        return self.log("error", data, logger)

    def close_stream(self, retry_ms: int = 1000) -> None:
        """Let a client of a legacy HTTP session disconnect and come back for the rest of this call.

        Long work then does not hold a connection open. On other wires this does nothing.

        Args:
            retry_ms: Milliseconds after which the client should come back.
        """
        self._call.outlet.send_away(retry_ms)

    async def _notify(self, method: str, params: msgspec.Struct) -> None:
        """Send a notification unless the call has ended; wait while the client does not read."""
        if self.cancelled:
            await asyncio.sleep(0)
            return
        await self._peer.notify(self._call, method, params)

    # Tasks

    @property
    def task(self) -> str | None:
        """The id of the task that the tool runs as; None while it runs as a plain call."""
        run = self._call.run
        return None if run is None or run.record is None else run.record.id

    async def become_task(self) -> bool:
        """Answer the client with a task now, and continue; for a tool with `task=Tasks(after=…)`.

        Returns:
            Whether the tool runs as a task now; False for a client that cannot take one.
        """
        run = self._call.run
        return False if run is None else await run.adopt()

    async def read_resource(self, uri: str) -> list[types.ResourceContents]:
        """Read one of this server's own resources.

        Args:
            uri: The resource's URI.
        """
        result = await self._core.dispatcher.read_resource(uri, self)
        return result.contents

    # From a thread

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an answer in a plain function: `answer = ctx.wait(ctx.elicit(…))`.

        Args:
            awaitable: What an async handler would await.
        """
        if threading.get_ident() == self._peer.thread:
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError("`ctx.wait` is for plain functions; `await` it in an async one")

        async def awaited() -> T:
            # A thread must not wait for a call that has ended.
            task, work = asyncio.current_task(), self._call.work
            assert task is not None
            end = _canceller(task)
            work.add_done_callback(end)
            try:
                return await awaitable
            finally:
                work.remove_done_callback(end)

        return self._on_loop(awaited())

    def _deliver(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        if threading.get_ident() == self._peer.thread:
            return work
        self._on_loop(work)
        return Finished()

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._peer.loop).result()


def peer_of(ctx: Context) -> Peer:
    """Return the other end of a context's call."""
    return ctx._peer


def call_of(ctx: Context) -> Call:
    """Return the call a handler answers."""
    return ctx._call


def client_name(ctx: Context, name: str) -> str:
    """Return the name, or URI, by which the client knows what its request names here as `name`."""
    return ctx._client_name(name)


def share_of(ctx: Context) -> Hashable:
    """Return the key that identifies the peer's share of threads; None if it has no share."""
    principal = ctx.principal
    return ctx._peer.share if principal is None else principal.identity


def rounds_of(ctx: Context) -> InputRounds | TaskQuestions | None:
    """Return the object that keeps the client's answers; None for a call of a legacy client."""
    return ctx._rounds()


async def ask_client(
    ctx: Context,
    method: str,
    params: msgspec.Struct,
    request: types.InputRequest,
    kind: type[Result],
    key: str | None,
) -> Any:
    """Ask the client on behalf of a handler, as its era does."""
    return await ctx._ask(method, params, request, kind, key)


async def notify_client(ctx: Context, method: str, params: msgspec.Struct) -> None:
    """Send a notification of a call."""
    await ctx._notify(method, params)


def continue_with(ctx: Context, call: Call, peer: Peer) -> None:
    """Let a handler continue for another call and peer, which do not depend on a connection."""
    ctx._call, ctx._peer = call, peer


def take_up_round(ctx: Context) -> None:
    """Continue the rounds recorded in the request's state; raises `McpError` if it is of another call."""
    ctx._rounds()


def _canceller(task: asyncio.Task[Any]) -> Callable[[object], None]:
    def cancel(_: object) -> None:
        task.cancel()

    return cancel


class Finished:
    """Returned to a plain function after the work is finished; awaiting it does nothing."""

    def __await__(self) -> Any:
        return iter(())
