"""Dispatchers: from an admitted call to its answer.

A `Dispatcher` answers admitted calls: the registry behind the decorators, an application's `Handler`, a
mounted server, an upstream of a gateway, a child process. The middleware around it is compiled into one
function when it changes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol

from mcpearl import types
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Caller, Encoded, Notice
from mcpearl.protocol.modern import ROUND_METHODS
from mcpearl.protocol.routes import Route
from mcpearl.server.handler import Handler
from mcpearl.types.base import Result
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from mcpearl.server.context import Context
    from mcpearl.transports.mirrored_headers import ParameterPath
else:
    Context = Any  # a call has one; a start makes none

Answering = Awaitable[Result | Encoded]
Dispatch = Callable[[Call, Context], Answering]
Next = Callable[[], Answering]
Middleware = Callable[[Context, Next], Answering]


class Dispatcher(Protocol):
    """Answers admitted calls, and knows what they need: scopes, headers, capabilities."""

    def capabilities(self) -> ServerCapabilities:
        """Return its capabilities; called again after every change."""
        ...

    def routes(self) -> Mapping[str, Route]:
        """Return the methods it answers beyond the specification's."""
        ...

    def notices(self) -> Mapping[str, Route]:
        """Return the notifications it takes beyond the specification's."""
        ...

    def dispatch(self, call: Call, ctx: Context) -> Answering:
        """Answer one call: with a result, or with an encoded result."""
        ...

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Take a notification of a client."""
        ...

    async def follow(self, uri: str, ctx: Context) -> None:
        """Agree that the caller gets updates of a resource; raises to refuse."""
        ...

    async def read_resource(self, uri: str, ctx: Context) -> "types.ReadResourceResult":
        """Read a resource from inside another call."""
        ...

    @property
    def scoped(self) -> bool:
        """Whether anything needs scopes."""
        ...

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes that a caller needs for what a request names."""
        ...

    def all_scopes(self) -> frozenset[str]:
        """Return every scope that something needs."""
        ...

    @property
    def mirrored(self) -> "Mapping[str, Mapping[ParameterPath, str]]":
        """The parameters that tools currently mirror into HTTP headers, by tool."""
        ...

    @property
    def at_once(self) -> Set[str]:
        """The tools whose calls return without waiting. They are run without a task of their own.

        Such a call that waits after all continues in a task; what it did before did not see that task.
        """
        ...


def compile_chain(middleware: Sequence[Middleware], dispatch: Dispatch) -> Dispatch:
    """Put middleware around a dispatcher, the first one outermost."""
    for layer in reversed(middleware):
        dispatch = _layered(layer, dispatch)
    return dispatch


def _layered(middleware: Middleware, inner: Dispatch) -> Dispatch:
    async def dispatch(call: Call, ctx: Context) -> Result | Encoded:
        answer: Any = await middleware(ctx, lambda: inner(call, ctx))
        if isinstance(answer, (Result, Encoded)):
            return answer
        name = getattr(middleware, "__name__", repr(middleware))
        raise TypeError(
            f"middleware `{name}` returned {type(answer).__name__}, not a `Result`; it must return "
            "what `await call_next()` returned, or a result of its own"
        )

    return dispatch


class HandlerDispatcher:
    """The dispatcher of a `Handler`: one of its methods for each method of the specification."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.capabilities = handler.capabilities
        self.scopes_of = handler.scopes_of
        self.all_scopes = handler.all_scopes
        self.notified = handler.notified
        mirrored = handler.mirrored
        if mirrored is None:
            from mcpearl.transports.mirrored_headers import MirroredByDefinition

            mirrored = MirroredByDefinition(handler.tool)
        self._mirrored = mirrored
        self._answers: dict[str, Callable[[Any, Context], Answering]] = {
            "tools/call": handler.call_tool,
            "completion/complete": handler.complete,
            "resources/read": lambda params, ctx: handler.read_resource(params.uri, ctx),
            "prompts/get": lambda params, ctx: handler.get_prompt(
                params.name, params.arguments or {}, ctx
            ),
            "tools/list": lambda params, ctx: handler.list_tools(params.cursor, ctx),
            "resources/list": lambda params, ctx: handler.list_resources(params.cursor, ctx),
            "resources/templates/list": lambda params, ctx: handler.list_resource_templates(
                params.cursor, ctx
            ),
            "prompts/list": lambda params, ctx: handler.list_prompts(params.cursor, ctx),
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    @property
    def scoped(self) -> bool:
        """Whether anything needs scopes."""
        return self.handler.scoped

    @property
    def mirrored(self) -> "Mapping[str, Mapping[ParameterPath, str]]":
        """The parameters that tools mirror into HTTP headers, by tool."""
        return self._mirrored

    @property
    def at_once(self) -> Set[str]:
        """The tools whose calls return without waiting."""
        return self.handler.at_once

    def routes(self) -> Mapping[str, Route]:
        """Return no methods beyond the specification's."""
        return {}

    def notices(self) -> Mapping[str, Route]:
        """Return no notifications beyond the specification's."""
        return {}

    def dispatch(self, call: Call, ctx: Context) -> Answering:
        """Answer one call by the handler's method for it."""
        answer = self._answers.get(call.method)
        if answer is None:
            raise McpError(
                METHOD_NOT_FOUND, f"Method not found: {call.method}", {"method": call.method}
            )
        if call.method in ROUND_METHODS and call.params.request_state is not None:
            from mcpearl.server.context import take_up_round

            take_up_round(ctx)
        return answer(call.params, ctx)

    async def _subscribe(self, params: Any, ctx: Context) -> Result:
        from mcpearl.server.context import peer_of

        peer = peer_of(ctx)
        peer.reserve(params.uri)
        await self.handler.subscribe(params.uri, ctx)
        if not ctx.cancelled:
            peer.subscribe(params.uri)
        return Result()

    async def _unsubscribe(self, params: Any, ctx: Context) -> Result:
        from mcpearl.server.context import peer_of

        await self.handler.unsubscribe(params.uri, ctx)
        if not ctx.cancelled:
            peer_of(ctx).unsubscribe(params.uri)
        return Result()

    async def follow(self, uri: str, ctx: Context) -> None:
        """Ask the handler whether the caller may follow a resource."""
        await self.handler.subscribe(uri, ctx)

    async def read_resource(self, uri: str, ctx: Context) -> "types.ReadResourceResult":
        """Read a resource of the handler."""
        result = await self.handler.read_resource(uri, ctx)
        if not isinstance(result, types.ReadResourceResult):
            raise TypeError(
                f"resource `{uri}` asks the client for input, so no handler can read it"
            )
        return result
