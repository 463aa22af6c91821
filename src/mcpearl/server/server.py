"""The server people write: identity, registration, notifications, and how it is served."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.runtime.arguments import refuse_less_than_one, refuse_text
from mcpearl.runtime.coalesce import Coalescer
from mcpearl.runtime.lag import LoopLag
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.loading import Loading
from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.broadcast import Broadcast
from mcpearl.server.connection import ServerConnection
from mcpearl.server.core import ServerCore
from mcpearl.server.dispatch import Dispatch, Dispatcher, HandlerDispatcher, Middleware
from mcpearl.server.handler import Handler
from mcpearl.server.lifespan import Uptime
from mcpearl.server.operating import Operating
from mcpearl.server.registry.registration import (
    check_lifespan,
    check_texts,
    check_versions,
    icons_of,
)
from mcpearl.server.registry.registry import OnDuplicate, Registry
from mcpearl.server.running import Running
from mcpearl.server.serving import environment
from mcpearl.server.serving.options import AsgiOptions, WireOptions
from mcpearl.server.subscriptions import LIST_CHANGED
from mcpearl.server.tree import ServerTree
from mcpearl.server.web import WebPages
from mcpearl.stores.memory_bus import MemoryBus
from mcpearl.telemetry.options import Telemetry
from mcpearl.types.base import Icon, Implementation

if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal
    from mcpearl.auth.server.protection import Auth
    from mcpearl.net.fairness import Fairness
    from mcpearl.receipts.receipts import Receipts
    from mcpearl.receipts.recorder import Recorder
    from mcpearl.runtime.isolation.profile import Isolate
    from mcpearl.runtime.observer import Observer
    from mcpearl.runtime.rate import Meter, RateLimit
    from mcpearl.server.extensions import ServerExtension
    from mcpearl.server.isolation.isolation import Isolation
    from mcpearl.server.measuring import Measuring
    from mcpearl.server.serving.wire import ServableWire
    from mcpearl.server.tasks.options import TaskOption
    from mcpearl.server.throttle import Shedding, Throttle
    from mcpearl.stores.bus import Bus
    from mcpearl.stores.shared import SharedStore
    from mcpearl.stores.state import StateStore
    from mcpearl.stores.tasks import TaskStore
    from mcpearl.transports.http_server.endpoint import Endpoint
    from mcpearl.transports.transport import Transport
else:
    # These take longer to load than most servers take to start.
    Auth = Endpoint = Fairness = Measuring = Meter = Principal = ServerExtension = Shedding = (
        Throttle
    ) = ServableWire = Any
    Isolate = Isolation = Observer = RateLimit = Receipts = Recorder = SharedStore = StateStore = (
        Any
    )
    Bus = TaskOption = TaskStore = Transport = Any

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server(Operating, Running):
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
            a method for each request, or a `Dispatcher` that receives every call.
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
        tool_timeout: Seconds a tool may take, unless it has a `timeout` of its own; None for no limit.
        blocked_after: Seconds an `async def` may hold up the event loop before the log says which; one
            that takes less than about twice as long may be missed. None for no watching.
        ask_timeout: Seconds a client has to answer a request of a handler.
        grace: Seconds calls have to finish when the server stops.
        keepalive: When a silent session is pinged; None turns pings off.
        mask_errors: Keep the text of unexpected exceptions from clients.
        state_keys: Keys of 32 bytes that seal the state of calls that ask the client. The
            first one seals, all of them open. Every process that serves the same clients needs the
            same keys, here or as `MCPEARL_STATE_KEYS`; by default there is one random key.
        state_ttl: Seconds a client may take to answer before the call has to start again.
        state_store: Keeps what handlers put into `Context.session`; in memory by default.
        lenient: Accept arguments that models send by mistake: `"3"` for a number, `"true"` for a
            boolean, JSON text for a list or object. A tool may have its own `lenient`.
        versions: Protocol versions to speak, newest first.
        auth: Which clients may connect over HTTP and WebSocket; see `mcpearl.auth`.
        max_held: Bytes that may be held for all clients together: bodies that arrive, answers that are
            not read, sessions, subscriptions, and so on. One client may hold a quarter of it, several
            less each; more is refused. It applies to each process. By default a quarter of the
            machine's memory, 2 GiB at most, divided among `workers`.
        observer: Notified of calls, connections and bounds; one `Observer`, or several.
        telemetry: What is exported with OpenTelemetry; False for nothing. By default everything but
            contents, if its SDK is loaded or environment variables say where to export to.
        log: `json` for log records as JSON objects with the ids of their calls, `text` for readable
            lines; what `app.run` shows on stderr if the application has not configured logging.
        rate: How often each caller may call; further calls are refused, with the time to wait. Requests
            for lists have a count of their own.
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
        state_store: "StateStore | None" = None,
        lenient: bool = False,
        versions: tuple[str, ...] = SUPPORTED,
        auth: "Auth | None" = None,
        max_held: int | None = None,
        observer: "Observer | Iterable[Observer] | None" = None,
        telemetry: Telemetry | bool | None = None,
        log: Literal["text", "json"] = "text",
        rate: "RateLimit | None" = None,
        shedding: "Shedding | None" = None,
        receipts: "str | PathLike[str] | Receipts | None" = None,
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
        refuse_less_than_one("page_size", page_size)
        self.auth = auth
        store = _opened(environment.store() if store is None else store, name)
        self.shared, self.task_store = _parted(store)
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
        if receipts is not None:
            self.core.recorder = _recorder(receipts, name)
            self.core.add_counters(self.core.recorder.counters)
        self._pool.reached = self.core.refused
        self._be_watched(log, telemetry)
        self.core.add_counters(self._pool.counters)
        self._throttle = self._make_throttle(rate, shedding)
        self.parts = ServerTree(name)  # what is supervised while the server runs
        for extension in self._extensions:
            extension.attach(self)
        if isinstance(self.handler, Handler) and self.handler.tasked:
            self._have_tasks()
        self._compose()
        if state_store is None and self.shared is not None:
            state_store = self.shared.state
        if state_store is not None:
            self.core.state_store = state_store
        self._lifespan = lifespan
        self.web = WebPages()  # for HTTP beside MCP
        self.lag = LoopLag()  # of the event loop, measured if anything looks at it
        self.measuring: Measuring | None = None  # what it counts, once it is asked for
        self._uptime = Uptime(repr(self), self._up, self._entered, self._leaving)
        self._broadcast = Broadcast(self.core.subscriptions, lambda: self.bus)
        self._coalescers = {
            kind: Coalescer(partial(self._broadcast.list_changed, kind)) for kind in LIST_CHANGED
        }

    @cached_property
    def turns(self) -> "Fairness":
        """What keeps order between clients on sockets."""
        from mcpearl.net.fairness import Fairness

        return Fairness()

    def _make_throttle(
        self, rate: "RateLimit | None", shedding: "Shedding | None"
    ) -> "Throttle | None":
        if rate is None and shedding is None:
            return None
        from mcpearl.server.throttle import Throttle

        return Throttle(rate, shedding, self._pool, self.turns, self.core.refused)

    def measure(self) -> "Measuring":
        """Count calls, connections and bounds from now on; call it before serving.

        `app.run("http", metrics="/metrics")` does this.
        """
        if self.measuring is None:
            from mcpearl.server.measuring import Measuring

            self.measuring = Measuring(self, self._registry.has)
        return self.measuring

    async def _start_extensions(self) -> None:
        for extension in self._extensions:
            await extension.start(self)

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.core.offer.info.version!r})"

    # Around calls

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
        """Add the extension for tasks, if there is none yet."""
        from mcpearl.server.tasks.extension import TasksExtension

        if not any(isinstance(each, TasksExtension) for each in self._extensions):
            extension = TasksExtension()
            self._extensions.append(extension)
            extension.attach(self)
            self._compose()

    def _have_isolation(self) -> "Isolation":
        """Return the object that runs isolated tools; it is made for the first of them."""
        if self.isolation is None:
            from mcpearl.server.isolation.isolation import Isolation

            lifespan = None if self._lifespan is None else self._enter_lifespan
            self.isolation = Isolation(self.core, self.parts.root, lifespan)
        return self.isolation

    def _compose(self) -> None:
        """Put extensions and middleware around the dispatcher."""
        dispatcher, takes_encoded = self._dispatcher, True
        if self._extensions:
            from mcpearl.server.extensions import ExtendedDispatcher

            dispatcher = extended = ExtendedDispatcher(dispatcher, self._extensions)
            takes_encoded = extended.takes_encoded
        self.core.use(dispatcher, self._middleware, self._around, takes_encoded=takes_encoded)

    def _around(self, dispatch: Dispatch) -> Dispatch:
        """Put limits around the dispatcher."""
        if self._throttle is not None:
            dispatch = self._throttle.around(dispatch)
            self.core.offer.gate = self._throttle.gate()
            self.core.refusal = self._throttle.refusal
        return dispatch

    def share_limits(self) -> None:
        """Count calls against rates together with the processes that are forked from now on."""
        if self.shared is not None:
            return  # the store adds up what all processes count
        for meter in self._meters().values():
            meter.share()
        self._compose()

    def _meters(self) -> "dict[str, Meter]":
        """Return the meters that count calls against rates, by what they limit."""
        meters = {tool.name: tool.meter for tool in self._registry.tools.values()}
        if self._throttle is not None:
            meters[""] = self._throttle.meter
            meters["*lists"] = self._throttle.list_meter  # no tool has such a name
        return {name: meter for name, meter in meters.items() if meter is not None}

    # Serving

    async def connect(
        self, transport: "Transport", principal: "Principal | None" = None
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
        """Return the ASGI application that serves this server, at `/mcp` unless `path` says otherwise.

        Serve it with any ASGI server, or mount it in Starlette or FastAPI; see `Endpoint`.

        Args:
            **options: Options of `Http` that do not concern the port.
        """
        from mcpearl.server.serving.http import make_endpoint

        return make_endpoint(self, **options)

    def run(self, *wires: "str | ServableWire", **options: Unpack[WireOptions]) -> None:
        """Serve until input ends or a signal arrives. Blocks; see `serve` for async code.

        >>> app.run()                                        # stdio
        >>> app.run("http", port=8000)                       # one wire, with its options
        >>> app.run(Http(port=8000), Unix(path="app.sock"))  # several at once

        Args:
            *wires: Where to serve: `"stdio"` (the default), `"http"`, `"tcp"`, `"unix"` or `"ws"`, or
                records with their options: `Stdio`, `Http`, `Tcp`, `Unix`, `WebSocket`.
            **options: Options of the one wire that is given by name, as its record has them; the
                environment may set them too. `transport=` is another way to write the name.
        """
        with Loading():
            from mcpearl.server.serving.run import run

        run(self, *wires, **options)

    def serving(
        self, wire: "str | ServableWire" = "http", **options: Unpack[WireOptions]
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

    async def serve(self, *wires: "str | ServableWire", **options: Unpack[WireOptions]) -> None:
        """Serve until the end, from async code.

        Args:
            *wires: Where to serve, as for `run`.
            **options: Options of the one wire that is given by name.
        """
        from mcpearl.server.serving.run import serve

        await serve(self, *wires, **options)


def _recorder(receipts: "str | PathLike[str] | Receipts", name: str) -> "Recorder":
    from mcpearl.receipts.receipts import receipts_of

    return receipts_of(receipts).recorder("server", name)


def _opened(
    store: "str | TaskStore | SharedStore | None", name: str
) -> "TaskStore | SharedStore | None":
    if not isinstance(store, str):
        return store
    from mcpearl.stores.opening import open_store

    return open_store(store, name)


def _parted(
    store: "TaskStore | SharedStore | None",
) -> "tuple[SharedStore | None, TaskStore | None]":
    """Return the store of a deployment, if it is one, and the store of tasks."""
    if store is None:
        return None, None
    from mcpearl.stores import shared  # the server of a single process does not need it

    return (store, store.tasks) if isinstance(store, shared.SharedStore) else (None, store)
