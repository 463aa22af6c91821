"""The client that applications use: it connects to a server, calls it, and answers its questions.

`Client` is the public surface. The work is done by its parts: `Link` keeps a connection up,
`Requests` sends calls on it, `ToolCalls` checks what tools return, `ClientSubscriptions` owns the
subscriptions, and an `EraRules` does what differs between the two eras of the protocol.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from mcpearl._version import __version__
from mcpearl.client.cache import CacheView, ResponseCache
from mcpearl.client.callbacks import (
    Callbacks,
    ElicitationCallback,
    Roots,
    SamplingCallback,
)
from mcpearl.client.calling import Calling
from mcpearl.client.connection import BoundCallback, ClientConnection
from mcpearl.client.entries import ServerEntry
from mcpearl.client.eras import EraRules, LegacyEra, ModernEra
from mcpearl.client.extensions import ClientExtension, ClientExtensions, ExtensionResult, OpenParams
from mcpearl.client.handlers import Handlers, shown
from mcpearl.client.handshake import Handshake
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link, StateCallback
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.reconnect import Reconnect, policy_for
from mcpearl.client.requests import Requests
from mcpearl.client.subscriptions import ClientSubscriptions
from mcpearl.client.targets import Reachable, ReachOptions, entry_of, find_target
from mcpearl.client.tasks.client_tasks import ClientTasks
from mcpearl.client.tool_calls import ToolCalls
from mcpearl.net.tls import Tls
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.events import Notice
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.observer import Observer
from mcpearl.runtime.observers import Guarded, both, guarded
from mcpearl.runtime.tree import Changes, Node
from mcpearl.telemetry.options import Telemetry, chosen, is_in_environment
from mcpearl.transports.transport import Transport
from mcpearl.types.base import Implementation, RequestParams, Result, convert
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.logging import LoggingLevel, LoggingMessageNotificationParams
from mcpearl.types.pages import PaginatedResult

if TYPE_CHECKING:
    from mcpearl.receipts.receipts import Receipts
    from mcpearl.receipts.recorder import Recorder
else:
    Receipts = Recorder = Any

T = TypeVar("T")
P = TypeVar("P", bound=PaginatedResult)
R = TypeVar("R", bound=Result)


class Client(Calling):
    """A connection to one MCP server, of either era.

    >>> async with Client("server.py") as client:
    ...     result = await client.call_tool("add", {"a": 1, "b": 2})

    Args:
        target: a `Server` (in memory), the path of a `.py` or `.js` file, a command as a list, a
            host's configuration (`{"command": …, "args": …, "env": …}` or `{"url": …}`), a whole
            configuration (`{"mcpServers": {…}}`; the tools of several servers are called
            `server__tool`), a URL, a transport, or another client of the server.
        sampling: called when the server wants a message from a model.
        elicitation: called when the server wants input from the user.
        roots: the directories a server may work in, or a function that returns them.
        on_log: called with each log message of the server.
        on_progress: called with the progress of calls that have no callback of their own.
        on_notification: called with every other notification.
        on_state: called with each phase the client enters; see `state`.
        protocol: the one version to speak, or `auto` for any.
        timeout: seconds that a call may take; each progress notification restarts them.
        max_timeout: seconds that a call may take in all, whatever its progress.
        connect_timeout: seconds for opening a connection, and for each answer of the handshake; a
            server that is downloaded on its first start may need most of them.
        callback_timeout: seconds for a callback to answer a question of the server.
        reconnect: whether and when to connect again after the connection was lost. By default the
            client reconnects to servers that it can start or dial again.
        keepalive: when a silent legacy server is pinged; None for never.
        max_rounds: how often a server may ask for input before it answers a call.
        log_level: the lowest level of log messages that the server sends; by default all, if `on_log`
            is set.
        validate_output: whether results of tools are checked against their output schemas.
        cache: keeps the results that the server allows to be cached; pass the same one to several
            clients to share it.
        limits: bounds of messages, requests and output.
        info: the name and version that the client introduces itself with.
        env: environment variables of a server process.
        inherit_env: whether a server process gets the whole environment of this one.
        cwd: the directory in which a server process starts.
        on_stderr: called with each line a server process writes to stderr; by default the lines go to
            this process's stderr.
        headers: added to every HTTP request, and to the handshake of a WebSocket.
        tls: the certificates to trust and to present, or an `SSLContext`.
        framing: how messages are separated on a socket: `newline` or `content-length`.
        proxy: the `http://` address of a proxy; by default the one that environment variables name.
        http2: whether to speak HTTP/2: False for never, True for always, None to let the server choose.
        auth: how to authorize at a server with a URL: `"oauth"` to log in with the browser, a method
            from `mcpearl.auth`, or a function that returns a token.
        extensions: extensions of the protocol that the client supports, besides tasks.
        observer: notified of calls and connections; one `Observer`, or several.
        telemetry: what is exported with OpenTelemetry; False for nothing. By default everything except
            contents, if its SDK is loaded or environment variables say where to export to.
        receipts: where every request is recorded, so that changes to the records can be detected
            later: a folder, or `Receipts`.
    """

    def __init__(
        self,
        target: Reachable,
        *,
        sampling: SamplingCallback | None = None,
        elicitation: ElicitationCallback | None = None,
        roots: Roots | None = None,
        on_log: Callable[[LoggingMessageNotificationParams], Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_notification: Callable[[Notice], Any] | None = None,
        on_state: StateCallback | None = None,
        protocol: str = "auto",
        timeout: float = 60.0,
        max_timeout: float = 600.0,
        connect_timeout: float = 60.0,
        callback_timeout: float = 300.0,
        reconnect: bool | Reconnect | None = None,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008 (it cannot be changed)
        max_rounds: int = 16,
        log_level: LoggingLevel | None = None,
        validate_output: bool = True,
        cache: ResponseCache | None = None,
        limits: Limits | None = None,
        info: Implementation | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | Path | None = None,
        on_stderr: Callable[[str], None] | None = None,
        headers: Mapping[str, str] | None = None,
        tls: Tls | SSLContext | None = None,
        framing: str = "newline",
        proxy: str | None = None,
        http2: bool | None = None,
        auth: Any = None,
        extensions: Iterable[ClientExtension] = (),
        receipts: "str | Path | Receipts | None" = None,
        observer: Observer | Iterable[Observer] | None = None,
        telemetry: Telemetry | bool | None = None,
    ) -> None:
        options = ReachOptions(
            env, inherit_env, cwd, on_stderr, headers, tls, framing, proxy, http2, keepalive, auth
        )
        self._target = found = find_target(target, options)
        self._observer = self._watching(guarded(observer), telemetry)
        self._recorder = None if receipts is None else _recorder(receipts, found.name)
        self._callbacks = self._answering(Callbacks(sampling, elicitation, roots, callback_timeout))
        self._on_log = on_log
        self._on_notification = on_notification
        self._timeout = timeout
        self._limits = limits or Limits()
        self._info = info or Implementation(name="mcpearl", version=__version__)
        self._cache = CacheView(ResponseCache() if cache is None else cache, found.identity)
        self._known_tools = KnownTools()
        era_known_as = found.identity if found.restartable else None
        self._link = Link(
            found,
            Handshake(era_known_as, protocol, connect_timeout, log_level, on_log is not None),
            self._limits,
            policy_for(found, reconnect),
            keepalive,
            begin=self._begin if self._observer is None else self._observed,
            restore=self._restore,
            given_up=lambda lost: self._subscriptions.end(lost),
            on_state=on_state,
        )
        self._subscriptions = ClientSubscriptions(self._link, timeout)
        make_requests = self._kind_of_requests()
        self._requests = make_requests(
            self._link,
            self._callbacks,
            self._known_tools,
            lambda name, deadline: self._tool_calls.learn(name, deadline),
            self._claimed,
            timeout=timeout,
            max_timeout=max_timeout,
            max_rounds=max_rounds,
            on_progress=on_progress,
        )
        self._tasks = ClientTasks(
            self._link,
            self._requests,
            self._callbacks,
            self._known_tools,
            self._subscriptions,
            lambda name, deadline: self._tool_calls.learn(name, deadline),
        )
        self._extensions = ClientExtensions([self._tasks, *extensions])
        self._handlers = Handlers(self._extensions.routes)
        self._callbacks.handlers = self._handlers
        self._tool_calls: ToolCalls = ToolCalls(
            self._link,
            self._requests,
            self._known_tools,
            self._cache,
            self.list_tools,
            validate=validate_output,
            tasks=self._tasks,
        )
        parts = self._link, self._requests, self._subscriptions
        self._eras: dict[str, EraRules] = {"legacy": LegacyEra(*parts), "modern": ModernEra(*parts)}

    def _watching(
        self, observer: Guarded | None, telemetry: Telemetry | bool | None
    ) -> Guarded | None:
        """Return the observer of calls: the application's, and OpenTelemetry if it is used."""
        exported = chosen(telemetry)
        if exported is None:
            return observer
        from mcpearl.telemetry.otel import OpenTelemetry, server_attributes

        server = server_attributes(self._target.identity)
        return both(observer, Guarded(OpenTelemetry("client", exported, server=server)))

    def _kind_of_requests(self) -> Callable[..., Requests]:
        if self._observer is None:
            return Requests
        from mcpearl.client.observing import ObservedRequests

        return partial(ObservedRequests, self._observer)

    # Connecting

    async def connect(self) -> None:
        """Connect to the server and agree on a version. `async with` calls this, and later `close`."""
        self._tool_calls.begin()
        if is_in_environment() and self._observer is not None:
            from mcpearl.telemetry.sdk import set_up

            set_up(self._info.name)
        if self._recorder is not None:
            await self._recorder.start()
        try:
            await self._link.connect()
        except BaseException:
            await self._stop_recording()
            raise

    async def _stop_recording(self) -> None:
        if self._recorder is not None:
            await self._recorder.stop()

    def _answering(self, callbacks: Callbacks) -> Callbacks:
        """Return the callbacks that answer the server's questions; a subclass may replace them."""
        return callbacks

    def _begin(self, transport: Transport) -> ClientConnection:
        added = self._extensions
        capabilities = self._callbacks.capabilities(added.settings)
        handlers = self._handlers
        end = ClientEnd(
            self._info,
            capabilities,
            self._limits,
            handlers.notices,
            added.claims,
            handlers.requests,
        )
        parts = transport, end, self._callbacks, self._noticed, self._lost
        if self._recorder is not None:
            from mcpearl.client.recording import RecordedConnection

            return RecordedConnection(self._recorder, *parts)
        return ClientConnection(*parts)

    def _observed(self, transport: Transport) -> ClientConnection:
        """Begin a connection, and notify the observer."""
        assert self._observer is not None
        connection = self._begin(transport)
        connection.answering.observer = self._observer
        self._observer.connection_began(connection)
        return connection

    def _lost(self, connection: ClientConnection) -> None:
        """Notify the observer and the link that a connection has ended."""
        if self._observer is not None:
            was_up = connection is self._link.connection
            self._observer.connection_ended(connection, connection.lost_reason if was_up else None)
        self._link.lost(connection)

    async def _restore(self, connection: ClientConnection) -> None:
        """Restore log level and subscriptions on a new connection; drop what may have changed since."""
        if self._link.healing:
            self._cache.clear()
            self._known_tools.doubt()
        self._tool_calls.tasks_offered = self._tasks.offered
        await self._era.restore(connection, self._timeout)

    async def close(self) -> None:
        """Close the connection, or stop reconnecting, and end all that belongs to it. Idempotent."""
        self._subscriptions.end(ConnectionLost("the client was closed"))
        try:
            await self._link.close()
        finally:
            self._callbacks.close()
            await self._stop_recording()

    async def given_up(self) -> None:
        """Wait until the connection is lost and will not come back, and raise the reason."""
        await self._link.given_up()

    async def __aenter__(self) -> "Client":
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError("a client is asynchronous: use `async with Client(…) as client:`")

    def __exit__(self, *exception: object) -> None:
        """Do nothing. `with` needs this method to call `__enter__`, which explains what to use."""

    def __repr__(self) -> str:
        return f"<Client of {self._target.name}, {self.state}>"

    @property
    def state(self) -> Phase:
        """The phase the client is in, such as `ready`, or `failed` while it reconnects."""
        return self._link.phase

    @property
    def is_over(self) -> bool:
        """Whether the client is closed, or its connection is lost and will not come back."""
        return self._link.is_over

    def tree(self) -> Node:
        """Return the connection and its subscriptions: states, restarts, the last error, uptime."""
        return self._link.node(self._subscriptions.nodes())

    def tree_changes(self, limit: int = 1000) -> Changes:
        """Return an iterator over the changes of the connection from now on, for `async for`.

        Args:
            limit: how many changes may wait to be read; then the oldest are dropped.
        """
        return self._link.followers.iterate(limit)

    @property
    def entry(self) -> ServerEntry:
        """How the server is reached, for others that connect to it: `app.mount("x", host["x"])`.

        They get connections of their own, or start the same command. It is not available for a client
        that was made for a transport, which can be opened only once.
        """
        return entry_of(self._target)

    # The server, as it introduced itself in the last handshake; available after closing too

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version."""
        return self._link.introduced().server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server announced."""
        return self._link.introduced().capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server, in the server's words."""
        return self._link.introduced().instructions

    @property
    def protocol_version(self) -> str:
        """The protocol version that was agreed on."""
        return self._link.introduced().version.name

    @property
    def era(self) -> Literal["legacy", "modern"]:
        """`legacy` if the server keeps a session, `modern` if each request stands for itself."""
        return self._link.introduced().version.era

    @property
    def _era(self) -> EraRules:
        return self._eras[self.era]

    # Extensions

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | RequestParams | None = None,
        kind: type[R] = Result,  # type: ignore[assignment]
        *,
        timeout: float | None = None,
    ) -> R:
        """Send a request for which there is no method here, such as one of an extension.

        Args:
            method: the method.
            params: its params.
            kind: the type of its result; members that the type does not have are kept in `extra`.
            timeout: seconds for the call; by default the client's.
        """
        given = params if isinstance(params, RequestParams) else convert(OpenParams, params or {})
        return await self._requests.ask(method, given, kind, timeout)

    async def _claimed(self, asked: ExtensionResult, result: Result) -> Result:
        return await self._extensions.claimant(result).resolve(self, asked, result)

    # The connection itself

    async def ping(self, timeout: float | None = None) -> None:
        """Return when the server has answered a ping, or `server/discover` in the modern era.

        Args:
            timeout: seconds for the answer; by default the client's.
        """
        await self._era.ping(timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Choose which log messages the server sends from now on.

        Args:
            level: the lowest level to send.
        """
        await self._era.set_log_level(level)

    def notify_roots_changed(self) -> None:
        """Tell a legacy server that the roots changed; a modern one asks when it needs them."""
        self._era.notify_roots_changed()

    def on(self, method: str, handler: Callable[[Any], Any] | None) -> None:
        """Call a function with each notification of one kind, or with requests of an extension.

        The handler replaces `on_log` or `on_notification` for its method, and stays set when the client
        reconnects. It is called with the params, which are a dict if the specification does not define
        the method. The handler of a request returns its result: a dict, or None for an empty one.

        Args:
            method: the method, such as `notifications/tools/list_changed`.
            handler: a function, which may be async; None removes the current one.
        """
        self._handlers.put(method, handler)
        if method == "notifications/message" and handler is not None:
            self._link.listen_to_logs()

    def _noticed(self, notice: Notice) -> BoundCallback | None:
        """Handle a notification, and return the callback to be called with it, and its argument."""
        params = notice.params
        self._cache.changed(notice.method, getattr(params, "uri", None))
        if notice.method == "notifications/tools/list_changed":
            self._known_tools.forget()
        elif notice.method == "notifications/tasks/status":
            self._tasks.heard(notice)
        handler = self._handlers.of(notice.method)
        if handler is not None:
            return handler, shown(params)
        extension = self._extensions.of_notice(notice.method)
        if extension is not None:
            return partial(extension.noticed, self), notice
        if notice.method == "notifications/message" and self._on_log is not None:
            return self._on_log, params
        if self._on_notification is not None:
            return self._on_notification, notice
        return None


def _recorder(receipts: "str | Path | Receipts", name: str) -> "Recorder":
    from mcpearl.receipts.receipts import receipts_of

    return receipts_of(receipts).recorder("client", name)
