"""The server people write: identity, registration, and everything its connections share."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mcpearl.net.fairness import Fairness
from mcpearl.protocol.events import Call, Notice
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import Stamp
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.runtime.coalesce import Coalescer
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.connection import UNWINDING, ServerConnection
from mcpearl.server.context import Context
from mcpearl.server.handler import Handler, perform
from mcpearl.server.registry.prompts import Completer, PromptEntry
from mcpearl.server.registry.registry import Registry
from mcpearl.server.registry.resources import ResourceEntry, TemplateEntry
from mcpearl.server.registry.tools import ToolEntry
from mcpearl.server.subscriptions import LIST_CHANGED, Subscriptions
from mcpearl.transports.mirrored_headers import Path
from mcpearl.transports.transport import Transport
from mcpearl.types.base import Annotations, CacheScope, Icon, Implementation, Result
from mcpearl.types.resources import ReadResourceResult
from mcpearl.types.tools import ToolAnnotations

logger = logging.getLogger("mcpearl.server")
if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.server.protection import Auth
    from mcpearl.protocol.seal import Sealer
    from mcpearl.server.serving.wires import Wire
    from mcpearl.transports.http_server.endpoint import Endpoint

F = TypeVar("F", bound=Callable[..., Any])
_NO_SCOPES: frozenset[str] = frozenset()
Next = Callable[[], Awaitable[Result]]
Middleware = Callable[[Context, Next], Awaitable[Result]]
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server:
    """An MCP server. Decorate functions, then run it.

    >>> app = Server("weather", version="1.0.0")
    >>> @app.tool
    ... async def forecast(city: str, days: int = 3) -> list[str]:
    ...     "What the weather will be."
    ...     return ["sun"] * days
    >>> app.run()
    """

    def __init__(
        self,
        name: str,
        version: str = "0.0.0",
        *,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        instructions: str | None = None,
        handler: Handler | None = None,
        lifespan: Lifespan | None = None,
        middleware: list[Middleware] | None = None,
        limits: Limits | None = None,
        page_size: int = 100,
        list_ttl_ms: int | None = None,
        threads: int = 32,
        tool_timeout: float | None = None,
        ask_timeout: float = 300.0,
        grace: float = 5.0,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008 (it cannot be changed)
        mask_errors: bool = False,
        state_keys: list[bytes] | None = None,
        state_ttl: float = 600.0,
        versions: tuple[str, ...] = SUPPORTED,
        auth: "Auth | None" = None,
    ) -> None:
        self.auth = auth
        self.limits = limits or Limits()
        self.ask_timeout = ask_timeout
        self.grace = grace
        self.keepalive = keepalive
        self.mask_errors = mask_errors
        self.lifespan_value: Any = None
        self.connections: set[ServerConnection] = set()
        self.unwinding: set[asyncio.Task[None]] = set()  # cancelled calls that have not ended yet
        self.subscriptions = Subscriptions()
        self.turns = Fairness()  # of clients on sockets
        self.relay: Callable[[str], None] | None = None  # tells other workers what was updated
        self._pool = ThreadPool(threads)
        self._tool_timeout = tool_timeout
        self._middleware = list(middleware or ())
        self._lifespan = lifespan
        self._running = 0  # how many serve at the moment; the lifespan is theirs
        self._starting: asyncio.Lock | None = None
        self._stack: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._sealer: Sealer | None = None
        self._state_keys = state_keys
        self._state_ttl = state_ttl
        self._coalescers = {
            kind: Coalescer(lambda kind=kind: self._announce(kind))  # type: ignore[misc]
            for kind in LIST_CHANGED
        }
        self._registry = Registry(name, self._pool, page_size, list_ttl_ms, self._changed)
        self.handler: Handler = handler or self._registry
        info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.stamp = Stamp(info)
        self.offer = Offer(info, self.handler.capabilities(), instructions, versions)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.offer.info.name

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.offer.info.version!r})"

    # Registering

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Serve a function as a tool: its signature is the schema, its docstring the description."""

        def register(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return register if function is None else register(function)

    def add_tool(self, function: Callable[..., Any], **options: Any) -> None:
        """Add a tool, now or at run time; takes what `tool` takes."""
        options.setdefault("timeout", self._tool_timeout)
        self._own_registry("add_tool").add_tool(ToolEntry(function, self._pool, **options))

    def remove_tool(self, name: str) -> bool:
        """Remove a tool; False when there was none of that name."""
        return self._own_registry("remove_tool").remove_tool(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Serve a function as a resource, or as a template when the URI has `{variables}`."""
        if callable(uri):
            raise TypeError("`@app.resource` needs the URI: write `@app.resource('config://app')`")
        options: dict[str, Any] = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
            "ttl_ms": ttl_ms,
            "cache_scope": cache_scope,
            "scopes": scopes,
        }
        if size is not None:
            options["size"] = size

        def register(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return register

    def add_resource(self, uri: str, function: Callable[..., Any], **options: Any) -> None:
        """Add a resource or template, now or at run time; takes what `resource` takes."""
        registry = self._own_registry("add_resource")
        if "{" in uri:
            registry.add_template(TemplateEntry(uri, function, self._pool, **options))
        else:
            registry.add_resource(ResourceEntry(uri, function, self._pool, **options))

    def remove_resource(self, uri: str) -> bool:
        """Remove a resource or template; False when there was none."""
        return self._own_registry("remove_resource").remove_resource(uri)

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Serve a function as a prompt: its parameters are the arguments."""

        def register(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return register if function is None else register(function)

    def add_prompt(self, function: Callable[..., Any], **options: Any) -> None:
        """Add a prompt, now or at run time; takes what `prompt` takes."""
        self._own_registry("add_prompt").add_prompt(PromptEntry(function, self._pool, **options))

    def remove_prompt(self, name: str) -> bool:
        """Remove a prompt; False when there was none of that name."""
        return self._own_registry("remove_prompt").remove_prompt(name)

    def complete(self, reference: str, argument: str) -> Callable[[Completer], Completer]:
        """Suggest values for an argument of a prompt (by name) or a template (by its URI).

        >>> @app.complete("brief", "city")
        ... def cities(typed: str) -> list[str]:
        ...     return [city for city in CITIES if city.startswith(typed)]
        """

        def register(completer: Completer) -> Completer:
            self._own_registry("complete").add_completer(reference, argument, completer)
            return completer

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Run a function around every call: `async def timed(ctx, call_next)`."""
        self._middleware.append(function)
        return function

    def _own_registry(self, what: str) -> Registry:
        if self.handler is not self._registry:
            raise TypeError(
                f"`{what}` fills the server's own registry, but this server was given a handler; "
                "serve it from there"
            )
        return self._registry

    # Telling

    def notify_resource_updated(self, uri: str) -> None:
        """Tell everyone who subscribed to this resource that it changed. Safe from any thread."""
        self._on_loop(lambda: self._resource_updated(uri))

    def _resource_updated(self, uri: str) -> None:
        self.subscriptions.resource_updated(uri)
        if self.relay is not None:
            self.relay(uri)

    def notify_list_changed(self, kind: str) -> None:
        """Tell that a list changed (`tools`, `resources`, `prompts`); for handlers of one's own."""
        self._changed(kind)

    def _changed(self, kind: str) -> None:
        if hasattr(self, "offer"):
            self.offer.renew(self.handler.capabilities())
        coalescer = self._coalescers.get(kind)
        if coalescer is not None and self._loop is not None:
            loop = self._loop
            self._on_loop(lambda: coalescer.poke(loop))

    def _announce(self, kind: str) -> None:
        self.subscriptions.list_changed(kind)

    def _on_loop(self, action: Callable[[], Any]) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    # Running calls

    def perform(self, call: Call, ctx: Context) -> Awaitable[Result]:
        """Run one admitted call through the middleware to the handler."""
        # The path most calls take, without a frame in between.
        if (
            call.method == "tools/call"
            and not self._middleware
            and call.params.request_state is None
        ):
            return self.handler.call_tool(call.params, ctx)
        return self._perform(call, ctx)

    async def _perform(self, call: Call, ctx: Context) -> Result:
        ctx.begin()

        def layer(index: int) -> Awaitable[Result]:
            if index == len(self._middleware):
                return self._handle(call, ctx)
            return self._middleware[index](ctx, lambda: layer(index + 1))

        return await layer(0)

    async def _handle(self, call: Call, ctx: Context) -> Result:
        connection = ctx.connection
        if (
            call.method == "resources/subscribe"
            and call.params.uri not in connection.subscriber().uris
        ):
            connection.reserve(1)
        result = await perform(self.handler, call.method, call.params, ctx)
        if not connection.end.is_open(call):
            return result  # cancelled, or the client is gone: nobody is there to be told
        if call.method == "resources/subscribe":
            self.subscriptions.subscribe(connection.subscriber(), call.params.uri)
        elif call.method == "resources/unsubscribe":
            self.subscriptions.unsubscribe(connection.subscriber(), call.params.uri)
        return result

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult:
        """Read one of this server's resources from inside a call."""
        result = await self.handler.read_resource(uri, ctx)
        if not isinstance(result, ReadResourceResult):
            raise TypeError(f"resource `{uri}` needs input from the client and cannot be read here")
        return result

    def noticed(self, notice: Notice, connection: ServerConnection) -> None:
        """Take a notification of a client that is for the application."""

    def sealer(self) -> "Sealer":
        """The sealer of `requestState`, made when first needed."""
        if self._sealer is None:
            from mcpearl.protocol.seal import Sealer

            self._sealer = Sealer(
                self._state_keys, ttl=self._state_ttl, max_size=self.limits.max_request_state
            )
        return self._sealer

    # Serving

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Server"]:
        """Hold the server up: its lifespan is entered by the first holder and left by the last."""
        await self._enter()
        try:
            yield self
        finally:
            await self._leave()

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if self._running and self._loop is not loop:
            raise RuntimeError(f"{self!r} is running on another event loop already")
        if not self._running:
            self._starting = asyncio.Lock()
            self._loop = loop
            self._thread = threading.get_ident()
        self._running += 1
        assert self._starting is not None
        async with self._starting:
            if self._stack is None:
                stack = AsyncExitStack()
                try:
                    if self._lifespan is not None:
                        self.lifespan_value = await stack.enter_async_context(self._lifespan(self))
                except BaseException:
                    self._running -= 1
                    raise
                self._stack = stack

    async def _leave(self) -> None:
        self._running -= 1
        if self._running == 0 and self._stack is not None:
            await self._unwind()
        if self._running == 0 and self._stack is not None:
            stack, self._stack = self._stack, None
            for coalescer in self._coalescers.values():
                coalescer.flush()
            self._loop = None
            self._thread = None
            self.lifespan_value = None
            await stack.aclose()

    async def _unwind(self) -> None:
        """Let cancelled handlers end while what the lifespan gave them is still there."""
        ending = self.unwinding - {asyncio.current_task()}
        if ending:
            _, stuck = await asyncio.wait(ending, timeout=UNWINDING)
            if stuck:
                logger.warning("%d handlers go on although they were cancelled", len(stuck))

    async def connect(
        self, transport: Transport, principal: "Principal | None" = None
    ) -> ServerConnection:
        """Serve one client on an open transport. The server must be `running`.

        `principal` is who the client is, where the transport knows; without one it may use all.
        """
        connection = ServerConnection(self, transport, principal)
        self.connections.add(connection)
        try:
            await transport.open(connection)
        except BaseException:
            self.connections.discard(connection)
            raise
        return connection

    def asgi(self, **options: Any) -> "Endpoint":
        """Give the ASGI application that serves this server, at `/mcp` unless `path` says else.

        Serve it with any ASGI server, or mount it in Starlette or FastAPI; see `Endpoint`.
        """
        from mcpearl.server.serving.http import make_endpoint

        return make_endpoint(self, **options)

    @property
    def is_scoped(self) -> bool:
        """Whether anything in the registry needs scopes."""
        return self._registry.scoped

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Give the scopes it takes to use what a request names, as far as the registry knows."""
        return self._registry.scopes_of(method, name) if self._registry.scoped else _NO_SCOPES

    def all_scopes(self) -> frozenset[str]:
        """Give every scope that some tool, resource or prompt needs."""
        return self._registry.all_scopes()

    @property
    def mirrored_parameters(self) -> dict[str, dict[Path, str]]:
        """The parameters that registered tools mirror into HTTP headers, by tool."""
        return self._registry.mirrored

    def run(self, *wires: "str | Wire", **options: Any) -> None:
        """Serve until the end: of input, or by a signal. Blocks; see `serve` for async code.

        >>> app.run()                                        # stdio
        >>> app.run("http", port=8000)                       # one wire, with its options
        >>> app.run(Http(port=8000), Unix(path="app.sock"))  # several at once
        """
        from mcpearl.server.serving.run import run

        run(self, *wires, **options)

    async def serve(self, *wires: "str | Wire", **options: Any) -> None:
        """Serve until the end, from async code; takes what `run` takes."""
        from mcpearl.server.serving.run import serve

        await serve(self, *wires, **options)
