"""The server people write: identity, registration, notifications, and how it is served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from mcpearl.net.fairness import Fairness
from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.runtime.arguments import refuse_text
from mcpearl.runtime.child import Restart
from mcpearl.runtime.coalesce import Coalescer
from mcpearl.runtime.lag import LoopLag
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.names import Names
from mcpearl.runtime.observer import Observer
from mcpearl.runtime.rate import RateLimit
from mcpearl.runtime.threads import ThreadPool
from mcpearl.runtime.tree import Changes, Node
from mcpearl.server.attendants import NoticeListener, SessionListener
from mcpearl.server.composing import Composing
from mcpearl.server.connection import ServerConnection, SoloConnection
from mcpearl.server.core import ServerCore
from mcpearl.server.dispatch import Dispatch, Dispatcher, HandlerDispatcher, Middleware
from mcpearl.server.handler import Handler
from mcpearl.server.lifespan import Uptime
from mcpearl.server.registering import Registering
from mcpearl.server.registry.registration import (
    check_lifespan,
    check_texts,
    check_versions,
    icons_of,
)
from mcpearl.server.registry.registry import OnDuplicate, Registry
from mcpearl.server.roster import UNWINDING
from mcpearl.server.serving import environment
from mcpearl.server.serving.options import AsgiOptions, WireOptions
from mcpearl.server.session import Session
from mcpearl.server.subscriptions import LIST_CHANGED, RESOURCE_UPDATED
from mcpearl.server.tree import ServerTree
from mcpearl.server.web import HealthCheck, Web
from mcpearl.stores.bus import Bus
from mcpearl.stores.memory_bus import MemoryBus
from mcpearl.stores.shared import SharedStore
from mcpearl.stores.state import StateStore
from mcpearl.telemetry.options import Telemetry, chosen
from mcpearl.transports.transport import Transport
from mcpearl.types.base import Icon, Implementation

if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.server.protection import Auth
    from mcpearl.receipts.receipts import Receipts
    from mcpearl.receipts.recorder import Recorder
    from mcpearl.runtime.isolation.profile import Isolate
    from mcpearl.runtime.rate import Meter
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.isolation.isolation import Isolation
    from mcpearl.server.measuring import Measuring
    from mcpearl.server.serving.wires import Wire
    from mcpearl.server.tasks.options import TaskOption
    from mcpearl.server.throttle import Shedding, Throttle
    from mcpearl.stores.tasks import TaskStore
    from mcpearl.transports.http_server.endpoint import Endpoint
    from mcpearl.transports.http_server.turning_away import Refusal
else:
    # They take longer to load than most servers to start.
    Auth = Endpoint = Measuring = Meter = Principal = ServerExtension = Shedding = Throttle = (
        Wire
    ) = Any
    Isolate = Isolation = Receipts = Recorder = TaskOption = TaskStore = Any

F = TypeVar("F", bound=Callable[..., Any])
_FLUSHING = 4.0  # seconds for what is left to be exported at the end
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server(Registering, Composing):
    """An MCP server. Decorate functions, then run it.

    >>> app = Server("weather", version="1.0.0")
    >>> @app.tool
    ... async def forecast(city: str, days: int = 3) -> list[str]:
    ...     "What the weather will be."
    ...     return ["sun"] * days
    >>> app.run()

    Args:
        name: The server's name, which clients show and log.
        version: The server's own version.
        title: A name for people, where `name` is not one.
        description: What the server is for.
        website_url: Where to read about it.
        icons: Images that stand for it.
        instructions: How a model should use it; clients may put it into their prompt.
        handler: Answers requests instead of the functions that decorators register: a `Handler` with
            a method for each request, or a `Dispatcher` that is given every call.
        lifespan: Returns an async context manager, entered before the first client is served and left
            after the last; what it yields is `Context.lifespan`.
        middleware: Functions around every call, the first outermost; see `Server.middleware`.
        extensions: Extensions of the protocol that it offers; see `ServerExtension`.
        limits: Bounds of each connection; see `Limits`.
        page_size: Entries of one page of a list.
        list_ttl_ms: For how long clients may cache lists, in milliseconds; None says nothing.
        on_duplicate: What happens when a second tool, resource, prompt or completion gets the name of
            another: `warn` (log a warning and replace it), `error`, `replace`, or `ignore` the second.
        threads: Threads for handlers that are plain functions.
        tool_timeout: Seconds a tool may take, unless it has a `timeout` of its own; None for ever.
        blocked_after: Seconds an `async def` may hold up the event loop before the log says which; None
            for no watching.
        ask_timeout: Seconds a client has to answer a request of a handler.
        grace: Seconds calls have to finish when the server stops.
        keepalive: When a silent session is pinged; None turns pings off.
        mask_errors: Keep the text of unexpected exceptions from clients.
        state_keys: Keys of 32 bytes that seal the state of calls that ask the client. The
            first one seals, all of them open. Give the same to every process that serves the same
            clients, here or as `MCPEARL_STATE_KEYS`; without any, one is made up.
        state_ttl: Seconds a client may take to answer before the call has to start again.
        state_store: Keeps what handlers put into `Context.session`; in memory by default.
        lenient: Take arguments as models send them by mistake: `"3"` for a number, `"true"` for a
            boolean, JSON text for a list or object. A tool may have its own `lenient`.
        versions: Protocol versions to speak, newest first.
        auth: Which clients may connect over HTTP and WebSocket; see `mcpearl.auth`.
        max_held: Bytes that may be held for all clients together: bodies that arrive, answers that are
            not read, sessions, subscriptions, and so on. One client may hold a quarter of it, several
            less each; more is refused. It is for each process. By default a quarter of the machine's
            memory, 2 GiB at most, which `workers` divide.
        observer: Notified of calls, connections and bounds; one `Observer`, or several.
        telemetry: What is exported with OpenTelemetry; False for nothing. By default everything but
            contents, if its SDK is loaded or environment variables say where to export to.
        log: `json` for log records as JSON objects with the ids of their calls, `text` for readable
            lines; what `app.run` shows on stderr if the application has not configured logging.
        rate: How often each caller may call; over it a call is refused, with the time to wait.
        shedding: When new calls are refused because the server does not keep up; see `Shedding`.
        receipts: Where every call is recorded, so that later changes show: a folder, or `Receipts`.
        isolate: Run tools in processes of their own, unless they have an `isolate` of their own: True,
            or `Isolate` with the limits of the processes.
        store: Where tasks are kept: an address such as `sqlite:///tasks.db`, or a `TaskStore`; in
            memory by default. With `redis://…`, several machines can serve the same clients: tasks,
            legacy sessions, events, notifications and keys are shared by all of them.
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
        handler: Handler | Dispatcher | None = None,
        lifespan: Lifespan | None = None,
        middleware: list[Middleware] | None = None,
        extensions: Iterable[ServerExtension] = (),
        limits: Limits | None = None,
        page_size: int = 100,
        list_ttl_ms: int | None = None,
        on_duplicate: OnDuplicate = "warn",
        threads: int = 32,
        tool_timeout: float | None = None,
        blocked_after: float | None = 1.0,
        ask_timeout: float = 300.0,
        grace: float = 5.0,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008 (it cannot be changed)
        mask_errors: bool = False,
        state_keys: list[bytes] | None = None,
        state_ttl: float = 600.0,
        state_store: StateStore | None = None,
        lenient: bool = False,
        versions: tuple[str, ...] = SUPPORTED,
        auth: "Auth | None" = None,
        max_held: int | None = None,
        observer: Observer | Iterable[Observer] | None = None,
        telemetry: Telemetry | bool | None = None,
        log: Literal["text", "json"] = "text",
        rate: RateLimit | None = None,
        shedding: "Shedding | None" = None,
        receipts: "str | Path | Receipts | None" = None,
        isolate: "bool | Isolate" = False,
        store: "str | TaskStore | SharedStore | None" = None,
    ) -> None:
        check_texts(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            instructions=instructions,
        )
        check_lifespan(lifespan)
        check_versions(versions)
        refuse_text("state_keys", state_keys)
        self.auth = auth
        store = _opened(environment.store() if store is None else store, name)
        self.shared = store if isinstance(store, SharedStore) else None
        self.task_store = store.tasks if isinstance(store, SharedStore) else store
        self.turns = Fairness()  # between clients on sockets
        # To other processes of this server; set before it runs.
        self.bus: Bus = MemoryBus() if self.shared is None else self.shared.bus
        self._pool = ThreadPool(threads, refusal=LimitReached)
        self._tool_timeout = tool_timeout
        self._blocked_after = blocked_after
        self._lenient = lenient
        self._isolate = isolate
        self.isolation: Isolation | None = None  # of tools that run in processes of their own
        self._middleware = list(middleware or ())
        self._registry = Registry(
            name, self._pool, page_size, list_ttl_ms, on_duplicate, self._changed
        )
        self.handler = handler or self._registry
        info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons_of(icons, f"server `{name}`"),
        )
        own: Dispatcher = (
            HandlerDispatcher(self.handler) if isinstance(self.handler, Handler) else self.handler
        )
        self._dispatcher = own  # without the extensions
        self._page_size = page_size
        self._extensions = list(extensions)
        self.core = ServerCore(
            own,
            info,
            instructions=instructions,
            versions=versions,
            limits=limits or Limits(),
            keepalive=keepalive,
            ask_timeout=ask_timeout,
            grace=grace,
            mask_errors=mask_errors,
            state_keys=environment.state_keys() if state_keys is None else state_keys,
            state_ttl=state_ttl,
            max_held=max_held,
            observer=observer,
        )
        self.core.recorder = None if receipts is None else _recorder(receipts, name)
        self._pool.reached = self.core.bounded
        self._be_watched(log, telemetry)
        self.core.add_counters(self._pool.counters)
        self._throttle = self._make_throttle(rate, shedding)
        for extension in self._extensions:
            extension.attach(self)
        if isinstance(self.handler, Handler) and self.handler.tasked:
            self._have_tasks()
        self._compose()
        if state_store is not None:
            self.core.state_store = state_store
        self._lifespan = lifespan
        self.web = Web()  # for HTTP beside MCP
        self.parts = ServerTree(name)  # what is supervised while the server runs
        self.lag = LoopLag()  # of the event loop, measured if anything looks at it
        self.measuring: Measuring | None = None  # what it counts for those who ask, once one does
        self._uptime = Uptime(repr(self), self._up, self._entered, self._leaving)
        self._coalescers = {
            kind: Coalescer(lambda kind=kind: self._announce(kind))  # type: ignore[misc]
            for kind in LIST_CHANGED
        }

    def _be_watched(self, log: Literal["text", "json"], telemetry: Telemetry | bool | None) -> None:
        """Have calls told to what logs and exports."""
        if log not in ("text", "json"):
            raise ValueError(f"`log` is 'text' or 'json', not {log!r}")
        self.log = log
        self._exported = chosen(telemetry)
        if log == "json":
            from mcpearl.telemetry.logs import CallContext

            self.core.observe(CallContext())
        if self._exported is not None:
            from mcpearl.telemetry.otel import OpenTelemetry

            self.core.observe(OpenTelemetry("server", self._exported, self._registry.has))

    async def _flush(self) -> None:
        """Export what is left, in a thread that is not waited for long."""
        from mcpearl.telemetry.sdk import left_to_flush

        flush = left_to_flush()
        if flush is None:
            return
        pool = ThreadPool(1, name="mcpearl-export")
        with suppress(Exception):
            async with asyncio.timeout(_FLUSHING):
                await pool.run(flush)
        pool.close()

    def _make_throttle(
        self, rate: RateLimit | None, shedding: "Shedding | None"
    ) -> "Throttle | None":
        if rate is None and shedding is None:
            return None
        from mcpearl.server.throttle import Throttle

        return Throttle(rate, shedding, self._pool, self.turns, self.core.bounded)

    @property
    def shed(self) -> "Refusal | None":
        """What a method is refused with while the server does not keep up; None if it never is."""
        throttle = self._throttle
        return None if throttle is None or throttle.congestion is None else throttle.refusal

    @property
    def name(self) -> str:
        """The server's name."""
        return self.core.offer.info.name

    @property
    def connections(self) -> "tuple[ServerConnection | SoloConnection, ...]":
        """The clients and sessions that are connected now."""
        return tuple(self.core.roster)

    @property
    def sessions(self) -> "tuple[Session, ...]":
        """The clients that are connected to this process in a version with sessions.

        Clients of 2026-07-28 have none: each of their requests stands for itself.
        """
        found = (getattr(connection, "session", None) for connection in self.core.roster)
        return tuple(session for session in found if session is not None)

    @property
    def threads(self) -> ThreadPool:
        """The threads that plain functions run in."""
        return self._pool

    @property
    def names(self) -> Names:
        """What is found by name in this process, until the task or connection that holds it ends."""
        return self.core.roster.names

    @property
    def lifespan_value(self) -> Any:
        """What the lifespan yielded, while the server runs."""
        return self.core.lifespan_value

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.core.offer.info.version!r})"

    # Around calls, and beside them

    def middleware(self, function: Middleware) -> Middleware:
        """Run a function around every call.

        >>> @app.middleware
        ... async def timed(ctx, call_next):
        ...     began = time.monotonic()
        ...     try:
        ...         return await call_next()
        ...     finally:
        ...         print(ctx.method, time.monotonic() - began)

        Args:
            function: Gets the call's `Context` and a function that runs the rest; returns the result.
        """
        self._middleware.append(function)
        self._compose()
        return function

    def _have_tasks(self) -> None:
        """Have the extension for tasks, if there is none yet."""
        from mcpearl.server.tasks.extension import TasksExtension

        if not any(isinstance(each, TasksExtension) for each in self._extensions):
            extension = TasksExtension()
            self._extensions.append(extension)
            extension.attach(self)
            self._compose()

    def _have_isolation(self) -> "Isolation":
        """Return what runs isolated tools, made with the first of them."""
        if self.isolation is None:
            from mcpearl.server.isolation.isolation import Isolation

            lifespan = None if self._lifespan is None else self._enter_lifespan
            self.isolation = Isolation(self.core, self.parts.root, lifespan, self._middleware)
        return self.isolation

    def _compose(self) -> None:
        """Put extensions and middleware around what answers calls."""
        dispatcher = self._dispatcher
        if self._extensions:
            from mcpearl.server.extensions import ExtendedDispatcher

            dispatcher = ExtendedDispatcher(dispatcher, self._extensions)
        self.core.use(dispatcher, self._middleware, self._around)

    def _around(self, dispatch: Dispatch) -> Dispatch:
        """Put limits around what answers calls, and hold back answers until they are recorded."""
        if self._throttle is not None:
            dispatch = self._throttle.around(dispatch)
            self.core.offer.gate = self._throttle.gate()
        if self.core.recorder is not None and self.core.recorder.durable:
            from mcpearl.server.recording import durable

            dispatch = durable(self.core, self.core.recorder, dispatch)
        return dispatch

    def share_limits(self) -> None:
        """Count calls against rates together with the processes that are forked from now on."""
        tools = self._registry.tools.values()
        for limited in (self._throttle, *tools):
            meter: Meter | None = getattr(limited, "meter", None)
            if meter is not None:
                meter.share()
        self._compose()

    def route(
        self, path: str, *, methods: Iterable[str] = ("GET",), max_body: int = 1024 * 1024
    ) -> Callable[[F], F]:
        """Serve a function at a path of the HTTP endpoint, beside MCP. Register it before serving.

        >>> @app.route("/version")
        ... async def version(request: HttpRequest) -> dict[str, str]:
        ...     return {"version": "1.0.0"}

        The path is open to every client, whatever `auth` the endpoint has.

        Args:
            path: The path; it is compared as a whole.
            methods: The HTTP methods.
            max_body: Bytes the body of a request may have.
        """
        from mcpearl.transports.http_server.pages import make_route

        def register(function: F) -> F:
            self.web.add(make_route(path, methods, function, max_body))
            return function

        return register

    def health(self, function: HealthCheck) -> HealthCheck:
        """Ask a function whether the server is ready, with `app.run("http", health="/health")`.

        Args:
            function: Takes nothing, may be async. It returns None or True if all is well, or the reason.
        """
        self.web.checks.append(function)
        return function

    def measure(self) -> "Measuring":
        """Count calls, connections and bounds from now on; call it before serving.

        `app.run("http", metrics="/metrics")` does.
        """
        if self.measuring is None:
            from mcpearl.server.measuring import Measuring

            self.measuring = Measuring(self, self._registry.has)
        return self.measuring

    def stores(self) -> "dict[str, Callable[[], Awaitable[Any]]]":
        """Return the stores outside of this process, each with what finds out whether it is there."""
        found: dict[str, Callable[[], Awaitable[Any]]] = {}
        tasks, state = self.task_store, self.core.given_state_store
        if tasks is not None and tasks.durable:
            found["store of tasks"] = lambda: tasks.get("ready?", (None, "", None))
        if state is not None:
            found["store of state"] = lambda: state.get("", "ready?")
        return found

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Run a plain function in one of the server's threads.

        Args:
            function: The function, without arguments.
        """
        return await self._pool.run(function)

    def on_session(self, function: SessionListener) -> SessionListener:
        """Call a function when a legacy client has connected, for as long as it stays.

        >>> @app.on_session
        ... async def visit(session):
        ...     await session.log("info", "welcome")
        ...     yield                                # until the client leaves
        ...     print(session.client.name, "left")

        Args:
            function: Gets the `Session`, on the event loop. It may be plain, async, in which case it is
                cancelled when the client leaves, or a generator, whose rest then runs.
        """
        self.core.attendants.on_session.append(function)
        return function

    @overload
    def on_notification(self, function: NoticeListener, /) -> NoticeListener: ...

    @overload
    def on_notification(self, method: str, /) -> Callable[[NoticeListener], NoticeListener]: ...

    def on_notification(self, which: NoticeListener | str, /) -> Any:
        """Call a function with what clients notify.

        >>> @app.on_notification("notifications/roots/list_changed")
        ... async def changed(notice, caller):
        ...     print(await caller.session.roots())

        Args:
            which: The method of the notifications; the decorator alone hears all of them. The function
                gets the notice (`method`, `params`) and the caller, on the event loop; it may be async.
        """
        if isinstance(which, str):
            return lambda function: self._add_listener(function, which)
        return self._add_listener(which, None)

    def _add_listener(self, function: NoticeListener, method: str | None) -> NoticeListener:
        registry = self._own_registry("on_notification")
        registry.listeners.append(self.core.attendants.guarded(function, method))
        return function

    @overload
    def background(self, function: F, /) -> F: ...

    @overload
    def background(
        self, /, *, name: str | None = None, restart: Restart = "permanent", shutdown: float = 5.0
    ) -> Callable[[F], F]: ...

    def background(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        restart: Restart = "permanent",
        shutdown: float = 5.0,
    ) -> Any:
        """Run a coroutine function as long as the server runs, and again when it ends.

        It starts after the lifespan was entered and is cancelled before that is left. One that keeps
        failing ends the server; see `Supervisor`.

        >>> @app.background
        ... async def refresh():
        ...     while True:
        ...         await load_prices()
        ...         await asyncio.sleep(60)

        Args:
            function: The function, when the decorator is used bare.
            name: Its name in the tree; the function's by default.
            restart: `permanent`, `transient` (only when it raises) or `temporary` (never).
            shutdown: Seconds it has to end when it is cancelled.
        """

        def register(function: F) -> F:
            self.parts.add_background(function, name, restart, shutdown)
            return function

        return register if function is None else register(function)

    # Telling

    def notify_resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource that it changed.

        Safe from any thread.

        Args:
            uri: The resource's URI.
        """
        self._uptime.on_loop(lambda: self._resource_updated(uri))

    def _resource_updated(self, uri: str) -> None:
        self.core.subscriptions.resource_updated(uri)
        self.bus.publish(RESOURCE_UPDATED, uri.encode())
        for outer in self.core.enclosing:
            outer.resource_updated(uri)

    def _updated_elsewhere(self, uri: bytes) -> None:
        self.core.subscriptions.resource_updated(uri.decode(errors="replace"))

    def notify_list_changed(self, kind: str) -> None:
        """Notify clients that a list changed. The decorators do so themselves; a handler has to.

        Args:
            kind: `tools`, `resources` or `prompts`.
        """
        self._changed(kind)

    def _changed(self, kind: str) -> None:
        if self._composition is not None:
            self._composition.index.doubt()
        self.core.renew()
        for outer in self.core.enclosing:
            outer.list_changed(kind)
        coalescer = self._coalescers.get(kind)
        loop = self._uptime.loop
        if coalescer is not None and loop is not None:
            self._uptime.on_loop(lambda: coalescer.poke(loop))

    def _announce(self, kind: str) -> None:
        self.core.subscriptions.list_changed(kind)

    # Serving

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the server up: its lifespan is entered by the first holder and left by the last."""
        await self._uptime.hold()
        try:
            yield
        finally:
            await self._uptime.release()

    @asynccontextmanager
    async def _up(self) -> AsyncIterator[Any]:
        """Hear what other processes publish, and hold the lifespan."""
        async with AsyncExitStack() as stack:
            subscriptions = self.core.subscriptions
            if self.shared is not None:
                await self.core.join(self.shared)
                stack.push_async_callback(self.shared.close)
            if self.core.recorder is not None:
                await self.core.recorder.start()
                stack.push_async_callback(self.core.recorder.stop)
            stack.callback(
                self.bus.subscribe(
                    RESOURCE_UPDATED, self._updated_elsewhere, subscriptions.all_updated
                )
            )
            await self.parts.start(self.bus, subscriptions.all_updated)
            stack.push_async_callback(self.parts.root.stop)
            if self.shared is not None:
                await self.parts.add_store(self.shared)
            stack.push_async_callback(self._stop_isolation)
            if self.isolation is not None:
                await self.isolation.start()  # before there is a thread
            if self._blocked_after is not None:
                from mcpearl.server.blocking import BlockingWatch

                watch = BlockingWatch(self._blocked_after, self.core.blocked)
                watch.start()
                stack.callback(watch.stop)
            if self._exported is not None:
                from mcpearl.telemetry.sdk import set_up

                set_up(self.name)
                stack.push_async_callback(self._flush)
            self.lag.start()
            stack.callback(self.lag.stop)
            if self._lifespan is not None:
                await self._enter_lifespan(stack)
            stack.push_async_callback(self._stop_parts)
            await self._start_parts()
            if self._throttle is not None:
                self._throttle.start()
                stack.callback(self._throttle.stop)
            stack.push_async_callback(self._close_extensions)
            for extension in self._extensions:
                await extension.start(self)
            await self.parts.start_background()
            stack.push_async_callback(self.parts.stop_background)
            yield self.lifespan_value

    async def _enter_lifespan(self, stack: AsyncExitStack) -> None:
        assert self._lifespan is not None
        self._entered(await stack.enter_async_context(self._lifespan(self)))

    async def _stop_isolation(self) -> None:
        if self.isolation is not None:
            await self.isolation.stop()

    async def _close_extensions(self) -> None:
        for extension in reversed(self._extensions):
            await extension.close()

    def _entered(self, value: Any) -> None:
        self.core.lifespan_value = value

    async def _leaving(self) -> None:
        await self.core.attendants.settle(UNWINDING)
        await self.core.roster.settle()
        for coalescer in self._coalescers.values():
            coalescer.flush()

    def tree(self) -> Node:
        """Return the parts of the running server: names, states, restarts, errors, uptimes."""
        return self.parts.root.tree()

    def tree_changes(self, limit: int = 1000) -> Changes:
        """Return an iterator over the changes of `tree` from now on, for `async for`.

        Args:
            limit: How many changes may wait to be taken; then the oldest are dropped.
        """
        return self.parts.root.changes(limit)

    async def connect(
        self, transport: Transport, principal: "Principal | None" = None
    ) -> ServerConnection:
        """Serve one client on a transport. The server must be `running`.

        Args:
            transport: Carries the client's messages; it is opened here.
            principal: The client, where the transport knows it; without one it may use everything.
        """
        connection = ServerConnection(self.core, transport, principal)
        try:
            await transport.open(connection)
        except BaseException:
            connection.lost(None)
            raise
        return connection

    def asgi(self, **options: Unpack[AsgiOptions]) -> "Endpoint":
        """Return the ASGI application that serves this server, at `/mcp` unless `path` says else.

        Serve it with any ASGI server, or mount it in Starlette or FastAPI; see `Endpoint`.

        Args:
            **options: Options of `Http` that do not concern the port.
        """
        from mcpearl.server.serving.http import make_endpoint

        return make_endpoint(self, **options)

    def run(self, *wires: "str | Wire", **options: Unpack[WireOptions]) -> None:
        """Serve until the end: of input, or by a signal. Blocks; see `serve` for async code.

        >>> app.run()                                        # stdio
        >>> app.run("http", port=8000)                       # one wire, with its options
        >>> app.run(Http(port=8000), Unix(path="app.sock"))  # several at once

        Args:
            *wires: Where to serve: `"stdio"` (the default), `"http"`, `"tcp"`, `"unix"` or `"ws"`, or
                records with their options: `Stdio`, `Http`, `Tcp`, `Unix`, `WebSocket`.
            **options: Options of the one wire that is given by name, as its record has them; the
                environment may set them too. `transport=` is another way to write the name.
        """
        from mcpearl.server.serving.run import run

        run(self, *wires, **options)

    def serving(
        self, wire: "str | Wire" = "http", **options: Unpack[WireOptions]
    ) -> AbstractAsyncContextManager[str]:
        """Serve on one wire while a context lasts, and yield the address to connect to.

        >>> async with app.serving("http", port=0) as url, Client(url) as client:
        ...     await client.call_tool("forecast", {"city": "Oslo"})

        Args:
            wire: Where to serve, as for `run`; every wire but stdio has an address.
            **options: Options of the wire, if it is given by name. `port=0` takes a free port.
        """
        from mcpearl.server.serving.run import serving

        return serving(self, wire, options)

    async def serve(self, *wires: "str | Wire", **options: Unpack[WireOptions]) -> None:
        """Serve until the end, from async code.

        Args:
            *wires: Where to serve, as for `run`.
            **options: Options of the one wire that is given by name.
        """
        from mcpearl.server.serving.run import serve

        await serve(self, *wires, **options)


def _recorder(receipts: "str | Path | Receipts", name: str) -> "Recorder":
    from mcpearl.receipts.receipts import receipts_of

    return receipts_of(receipts).recorder("server", name)


def _opened(
    store: "str | TaskStore | SharedStore | None", name: str
) -> "TaskStore | SharedStore | None":
    if not isinstance(store, str):
        return store
    from mcpearl.stores.opening import open_store

    return open_store(store, name)
