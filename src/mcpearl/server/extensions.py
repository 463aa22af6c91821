"""Extensions of a server: they add methods and notifications, and can run around tool calls.

An extension is written outside of mcpearl and passed to `Server(extensions=[…])`. It is announced in
`server/discover` and to legacy clients that name it in `initialize`. `ExtendedDispatcher` puts the
extensions of a server in front of the dispatcher of its other calls.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from mcpearl.protocol.capabilities import require
from mcpearl.protocol.events import Call, Caller, Notice
from mcpearl.protocol.extensions import Extension, announced, declared
from mcpearl.protocol.routes import Route
from mcpearl.server.context import Context
from mcpearl.server.dispatch import Answering, Dispatch, Dispatcher, Next
from mcpearl.transports.mirrored_headers import ParameterPath
from mcpearl.types.base import NotificationParams, RequestParams, Result
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.methods import REQUESTS, Method
from mcpearl.types.resources import ReadResourceResult

if TYPE_CHECKING:
    from mcpearl.server.server import Server
else:
    Server = Any

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__mcpearl_extension__"
# Methods of tasks are in the table of methods, since a version has them without an extension.
_TABLED = frozenset(name for name in REQUESTS if name.startswith("tasks/"))


class _Marked:
    """What a decorator notes on a method of an extension."""

    __slots__ = ("answered", "is_open", "name", "params")

    def __init__(self, name: str, params: type[Any], *, answered: bool, is_open: bool) -> None:
        self.name = name
        self.params = params
        self.answered = answered  # whether it is a request
        self.is_open = is_open  # also to clients that did not declare the extension

    def route(self) -> Route:
        """Return the method as the server's end admits it."""
        result = Result if self.answered else None
        return Route(Method(name=self.name, params=self.params, result=result, sender="client"))


def method(
    name: str, params: type[RequestParams] = RequestParams, *, undeclared: bool = False
) -> Callable[[F], F]:
    """Answer a request of the extension with the decorated method: `async def (self, params, ctx)`.

    Args:
        name: The method, such as `audit/read`.
        params: The type of its params.
        undeclared: Answer clients that did not declare the extension, too. They get an error otherwise.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, _Marked(name, params, answered=True, is_open=undeclared))
        return function

    return mark


def notification(
    name: str, params: type[NotificationParams] = NotificationParams
) -> Callable[[F], F]:
    """Take a notification of clients with the decorated method: `def (self, params, caller)`.

    Args:
        name: The notification, such as `notifications/audit/seen`.
        params: The type of its params.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, _Marked(name, params, answered=False, is_open=True))
        return function

    return mark


class ServerExtension(Extension):
    """One extension of a server. Subclasses set `identifier` and add what they need.

    >>> class Audit(ServerExtension):
    ...     identifier = "com.example/audit"
    ...
    ...     @method("audit/read")
    ...     async def read(self, params: RequestParams, ctx: Context) -> Result:
    ...         return Result(extra={"entries": self.entries})
    """

    passes_at_once = False
    """Whether what runs around tools waits for nothing while a tool runs as a call, and uses no task."""
    passes_results = False
    """Whether what runs around tools returns their results as they are and does not look at them. Tools
    may return encoded results then, which takes less time."""

    def call_tool(self, ctx: Context, call_next: Next) -> Answering:
        """Run around every `tools/call`. An extension that does not override it costs calls nothing.

        Args:
            ctx: The context of the call.
            call_next: Runs the tool, and the extensions after this one.
        """
        return call_next()

    def around(self, inner: Dispatch) -> Dispatch:
        """Return a function that answers `tools/call` in place of `inner`; called once.

        Override it instead of `call_tool` if most calls pass unchanged; the function sees every call.

        Args:
            inner: Runs the tool, and the extensions after this one.
        """
        return lambda call, ctx: self.call_tool(ctx, lambda: inner(call, ctx))

    def has(self, ctx: Context) -> bool:
        """Return whether the caller declared this extension.

        Args:
            ctx: The context of the call.
        """
        return declared(ctx.client.capabilities.extensions, self.identifier)

    def require(self, ctx: Context) -> None:
        """Raise `MissingClientCapability` unless the caller declared this extension.

        Args:
            ctx: The context of the call.
        """
        require(ctx.client.capabilities, f"extensions.{self.identifier}")

    def attach(self, server: "Server") -> None:
        """Get ready for a server; called once, before it runs or while it does.

        Args:
            server: The server that has this extension.
        """

    async def start(self, server: "Server") -> None:
        """Begin, when the server starts; its lifespan has been entered.

        Args:
            server: The server that has this extension.
        """

    async def close(self) -> None:
        """End, when the server stops; its lifespan has not been left."""

    def announce(self, capabilities: ServerCapabilities) -> ServerCapabilities:
        """Return the capabilities of the server with what this extension adds beside its settings.

        Args:
            capabilities: The capabilities without it.
        """
        return capabilities


class ExtendedDispatcher:
    """A dispatcher with extensions in front of it."""

    def __init__(self, inner: Dispatcher, extensions: Sequence[ServerExtension]) -> None:
        announced(extensions)  # refuses what is not an extension
        self._inner = inner
        self._extensions = tuple(extensions)
        self._answers: dict[str, Dispatch] = {}
        self._listeners: dict[str, Callable[[Any, Caller | None], Any]] = {}
        self._routes = dict(inner.routes())
        self._notices = dict(inner.notices())
        for extension in self._extensions:
            self._add(extension)
        tools: Dispatch = inner.dispatch
        for extension in reversed(self._extensions):
            if _runs_around_tools(type(extension)):
                self._answers["tools/call"] = tools = extension.around(tools)

    def _add(self, extension: ServerExtension) -> None:
        for name in dir(type(extension)):
            marked: _Marked | None = getattr(getattr(type(extension), name), _MARK, None)
            if marked is None:
                continue
            if marked.answered:
                self._take(marked.name)
                self._answers[marked.name] = _answering(extension, marked, getattr(extension, name))
                if marked.name not in _TABLED:
                    self._routes[marked.name] = marked.route()
            else:
                self._take(marked.name)
                self._listeners[marked.name] = getattr(extension, name)
                self._notices[marked.name] = marked.route()

    def _take(self, name: str) -> None:
        if name in self._answers or name in self._listeners:
            raise ValueError(f"two extensions have the method `{name}`")

    def capabilities(self) -> ServerCapabilities:
        """Return those of the dispatcher inside, with the extensions."""
        capabilities = self._inner.capabilities()
        own = announced(self._extensions)
        capabilities = replace(capabilities, extensions={**(capabilities.extensions or {}), **own})
        for extension in self._extensions:
            capabilities = extension.announce(capabilities)
        return capabilities

    def routes(self) -> Mapping[str, Route]:
        """Return the methods of the extensions."""
        return self._routes

    def notices(self) -> Mapping[str, Route]:
        """Return the notifications of the extensions."""
        return self._notices

    def dispatch(self, call: Call, ctx: Context) -> Answering:
        """Answer a call of an extension; leave others to the dispatcher inside."""
        answer = self._answers.get(call.method)
        return self._inner.dispatch(call, ctx) if answer is None else answer(call, ctx)

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Hand a notification to its extension, or to the dispatcher inside."""
        listener = self._listeners.get(notice.method)
        if listener is None:
            self._inner.notified(notice, caller)
        else:
            listener(notice.params, caller)

    def follow(self, uri: str, ctx: Context) -> Any:
        """Ask the dispatcher inside whether the caller may follow a resource."""
        return self._inner.follow(uri, ctx)

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult:
        """Read a resource of the dispatcher inside."""
        return await self._inner.read_resource(uri, ctx)

    @property
    def scoped(self) -> bool:
        """Whether anything needs scopes."""
        return self._inner.scoped

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes that a caller needs for what a request names."""
        return self._inner.scopes_of(method, name)

    def all_scopes(self) -> frozenset[str]:
        """Return every scope that something needs."""
        return self._inner.all_scopes()

    @property
    def mirrored(self) -> Mapping[str, Mapping[ParameterPath, str]]:
        """The parameters that tools mirror into HTTP headers, by tool."""
        return self._inner.mirrored

    @property
    def at_once(self) -> Set[str]:
        """The tools whose calls return without waiting, if no extension could wait around them."""
        passed = all(each.passes_at_once for each in self._around_tools())
        return self._inner.at_once if passed else frozenset()

    @property
    def takes_encoded(self) -> bool:
        """Whether no extension looks at the results of tools."""
        return all(each.passes_results for each in self._around_tools())

    def _around_tools(self) -> list[ServerExtension]:
        return [each for each in self._extensions if _runs_around_tools(type(each))]


def _runs_around_tools(kind: type[ServerExtension]) -> bool:
    if kind.around is not ServerExtension.around:
        return True
    return kind.call_tool is not ServerExtension.call_tool


def _answering(
    extension: ServerExtension,
    marked: _Marked,
    answer: Callable[[Any, Context], Awaitable[Result]],
) -> Dispatch:
    def dispatch(call: Call, ctx: Context) -> Answering:
        if not marked.is_open:
            extension.require(ctx)
        return answer(call.params, ctx)

    return dispatch
