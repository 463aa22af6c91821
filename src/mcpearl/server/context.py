"""What a handler can do besides returning: report progress, log, ask the client, read a resource.

A `Context` belongs to one call. It reads the same in both eras: asking a legacy client sends it a
request, asking a modern one ends this round of the call (see `rounds`).
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mcpearl.protocol.capabilities import require
from mcpearl.protocol.events import Call, Caller
from mcpearl.runtime import clock
from mcpearl.server.peer import Peer, wants_log
from mcpearl.server.registry.forms import Elicited, Form
from mcpearl.types.base import RequestId, Result
from mcpearl.types.elicitation import ElicitRequest, ElicitRequestParams, ElicitResult
from mcpearl.types.input_required import InputRequest
from mcpearl.types.logging import LoggingLevel, LoggingMessageNotificationParams
from mcpearl.types.progress import ProgressNotificationParams
from mcpearl.types.resources import ResourceContents
from mcpearl.types.roots import ListRootsRequest, ListRootsResult, Root
from mcpearl.types.sampling import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal
    from mcpearl.server.core import ServerCore
    from mcpearl.server.input_rounds import InputRounds

T = TypeVar("T")


class Context:
    """The call a handler is working on. Annotate a parameter with it to get it.

    >>> @app.tool
    ... async def count(to: int, ctx: Context) -> str:
    ...     for number in range(to):
    ...         await ctx.progress(number + 1, to)
    ...     return "done"
    """

    __slots__ = ("_call", "_core", "_peer", "_progress", "_state")

    def __init__(self, call: Call, peer: Peer, core: "ServerCore") -> None:
        self._call = call
        self._peer = peer
        self._core = core
        self._progress: float | None = None  # the last value reported; it only grows
        self._state: dict[str, Any] | None = None

    # Who and what

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
        """Who is asking: `client` (name and version), `capabilities`, `version`."""
        return self._call.caller

    @property
    def principal(self) -> "Principal | None":
        """Who is asking as far as the transport could verify it; None when it could not."""
        principal: Principal | None = self._call.caller.principal
        return principal if principal is not None and principal.subject else None

    def may_use(self, scopes: frozenset[str]) -> bool:
        """Whether the caller has these scopes. On a wire that asks nobody, everyone has all."""
        principal: Principal | None = self._call.caller.principal
        return principal is None or scopes <= principal.scopes

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._core.lifespan_value

    @property
    def state(self) -> dict[str, Any]:
        """A place for middleware and handlers to leave things for each other, for this call."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any more. Plain functions in a thread can look here."""
        return not self._peer.waits_for(self._call)

    # Telling

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Report how far the work is, if the client wants to know. Values must grow.

        Await it in an async handler; a plain function just calls it.
        """
        return self._deliver(self._send_progress(progress, total, message))

    async def _send_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        token = self._call.progress_token
        last = -inf if self._progress is None else self._progress
        if token is not None and last < progress < inf:
            self._progress = progress
            if total is not None and not isfinite(total):
                total = None
            params = ProgressNotificationParams(
                progress_token=token, progress=progress, total=total, message=message
            )
            await self._notify("notifications/progress", params)
        else:
            await asyncio.sleep(0)

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Write to the client's log, if it wants messages of this level."""
        return self._deliver(self._send_log(level, data, logger))

    async def _send_log(self, level: LoggingLevel, data: Any, logger: str | None) -> None:
        if not wants_log(self._call.caller, level):
            await asyncio.sleep(0)
            return
        try:
            msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError):
            data = ascii(data)  # what has no JSON form can still be told
        params = LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        await self._notify("notifications/message", params)

    def debug(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level debug."""
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level info."""
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level warning."""
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Log at level error."""
        return self.log("error", data, logger)

    def close_stream(self, retry_ms: int = 1000) -> None:
        """Let a client of a legacy HTTP session hang up and come back for the rest of this call.

        Long work need not hold a connection open. Where there is nothing to hang up, it does nothing.
        """
        self._call.outlet.send_away(retry_ms)

    async def _notify(self, method: str, params: msgspec.Struct) -> None:
        """Say something that belongs to this call; never after its end, never faster than it is read."""
        if self.cancelled:
            await asyncio.sleep(0)
            return
        await self._peer.notify(self._call, method, params)

    # Asking

    async def elicit(
        self, message: str, schema: Any = None, *, key: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        `schema` is a flat dataclass, `TypedDict`, struct or pydantic model, or a JSON Schema; the
        answer's `data` is of that type when the user accepted.

        >>> answer = await ctx.elicit("Which city?", City)
        >>> if answer.accepted:
        ...     print(answer.data.name)
        """
        require(self._call.caller.capabilities, "elicitation.form")
        form = Form(schema)
        params = ElicitRequestParams(
            message=message, mode="form", requested_schema=form.requested_schema
        )
        result: ElicitResult = await self._ask(
            "elicitation/create", params, ElicitRequest(params=params), ElicitResult, key
        )
        return form.read(result)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
    ) -> Elicited[None]:
        """Ask the user to visit an address, for what must not pass through the client."""
        require(self._call.caller.capabilities, "elicitation.url")
        params = ElicitRequestParams(
            message=message,
            mode="url",
            url=url,
            elicitation_id=elicitation_id or f"{self._call.id}-{clock.token(8)}",
        )
        request = ElicitRequest(params=ElicitRequestParams(message=message, mode="url", url=url))
        result: ElicitResult = await self._ask(
            "elicitation/create", params, request, ElicitResult, key
        )
        return Elicited(result.action, None)

    async def sample(
        self,
        messages: str | list[str | SamplingMessage],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        model_preferences: ModelPreferences | None = None,
        stop_sequences: list[str] | None = None,
        tools: list[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> CreateMessageResult:
        """Ask the client's model to continue a conversation."""
        require(self._call.caller.capabilities, "sampling.tools" if tools else "sampling")
        params = CreateMessageRequestParams(
            messages=_conversation(messages),
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            model_preferences=model_preferences,
            stop_sequences=stop_sequences,
            tools=tools,
            tool_choice=tool_choice,
            metadata=metadata,
        )
        request = CreateMessageRequest(params=params)
        result: CreateMessageResult = await self._ask(
            "sampling/createMessage", params, request, CreateMessageResult, key
        )
        return result

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask the client which places it lets the server work in."""
        require(self._call.caller.capabilities, "roots")
        from mcpearl.types.base import RequestParams

        result: ListRootsResult = await self._ask(
            "roots/list", RequestParams(), ListRootsRequest(), ListRootsResult, key
        )
        return result.roots

    async def _ask(
        self,
        method: str,
        params: msgspec.Struct,
        request: InputRequest,
        kind: type[Result],
        key: str | None,
    ) -> Any:
        if self._call.caller.version.modern:
            rounds = self._open_rounds()
            return await rounds.ask(rounds.key(method.partition("/")[0], key), request, kind)
        return await self._peer.ask(self._call, method, params, kind)

    def _open_rounds(self) -> "InputRounds":
        call = self._call
        if call.rounds is None:
            from mcpearl.server.input_rounds import InputRounds

            call.rounds = InputRounds(call, self._core.sealer, clock.now(), self._peer.stop)
        rounds: InputRounds = call.rounds
        return rounds

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do something once per call, however many rounds the call takes; give what it returned.

        The value travels in the sealed state, so it must have a JSON form.
        """
        if not self._call.caller.version.modern:
            value = function()
            return await value if inspect.isawaitable(value) else value
        rounds = self._open_rounds()
        before = rounds.done(key)
        if before is not None:
            return msgspec.json.decode(before)
        value = function()
        if inspect.isawaitable(value):
            value = await value
        rounds.record(key, msgspec.json.encode(value))
        return value

    async def read_resource(self, uri: str) -> list[ResourceContents]:
        """Read one of this server's own resources."""
        result = await self._core.dispatcher.read_resource(uri, self)
        return result.contents

    # From a thread

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an ask from a plain function: `answer = ctx.wait(ctx.elicit(…))`."""
        if threading.get_ident() == self._peer.thread:
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError("`ctx.wait` is for plain functions; `await` it in an async one")

        async def awaited() -> T:
            # Nobody shall wait in a thread for a call that has ended.
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
        return _Done()

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._peer.loop).result()


def peer_of(ctx: Context) -> Peer:
    """Return the other end of a context's call."""
    return ctx._peer


def share_of(ctx: Context) -> Hashable:
    """Return the key under which this call's peer has its share of threads; None for no share."""
    principal = ctx.principal
    return ctx._peer.share if principal is None else principal.identity


def take_up_round(ctx: Context) -> None:
    """Continue the rounds a request's state is of; raises `McpError` for a state of another call."""
    if ctx._call.caller.version.modern:
        ctx._open_rounds()


def _canceller(task: "asyncio.Task[Any]") -> Callable[[object], None]:
    def cancel(_: object) -> None:
        task.cancel()

    return cancel


class _Done:
    """What a plain function gets for something that is finished already; awaiting it is harmless."""

    def __await__(self) -> Any:
        return iter(())


def _conversation(messages: str | list[str | SamplingMessage]) -> list[SamplingMessage]:
    from mcpearl.types.content import TextContent

    given = [messages] if isinstance(messages, str) else messages
    return [
        SamplingMessage(role="user", content=TextContent(text=message))
        if isinstance(message, str)
        else message
        for message in given
    ]
