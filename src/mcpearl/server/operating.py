"""What operators see of a server and add to it: its tree, health, routes and counters."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from mcpearl.runtime.child import Restart
from mcpearl.runtime.threads import ThreadPool
from mcpearl.runtime.tree import Changes, Node
from mcpearl.server.connection import ServerConnection
from mcpearl.server.core import ServerCore
from mcpearl.server.registry.registry import Registry
from mcpearl.server.tree import ServerTree
from mcpearl.server.web import HealthCheck, WebPages
from mcpearl.telemetry.options import Telemetry, chosen

if TYPE_CHECKING:
    from mcpearl.runtime.names import Names
    from mcpearl.server.measuring import Measuring
    from mcpearl.server.session import Session
    from mcpearl.server.solo_connection import SoloConnection
    from mcpearl.stores.tasks import TaskStore
else:
    Measuring = Names = Session = SoloConnection = TaskStore = Any

F = TypeVar("F", bound=Callable[..., Any])


class Operating:
    """The part of a `Server` that is watched, and that runs functions beside calls."""

    core: ServerCore
    web: WebPages
    parts: ServerTree
    measuring: "Measuring | None"
    task_store: "TaskStore | None"
    _registry: Registry
    _pool: ThreadPool

    def _be_watched(self, log: Literal["text", "json"], telemetry: Telemetry | bool | None) -> None:
        """Attach the observers that log and export."""
        if log not in ("text", "json"):
            raise ValueError(f"`log` is 'text' or 'json', not {log!r}")
        self.log = log
        exported = self.core.exported = chosen(telemetry)
        if exported is not None:
            from mcpearl.telemetry.otel import OpenTelemetry

            service = self.core.offer.info.name
            self.core.observe(
                OpenTelemetry("server", exported, self._registry.has, service=service)
            )
        if log == "json":  # after what begins spans: their ids are logged
            from mcpearl.telemetry.logs import CallContext

            self.core.observe(CallContext())

    @property
    def connections(self) -> "tuple[ServerConnection | SoloConnection, ...]":
        """The clients and sessions that are connected now."""
        return tuple(self.core.roster)

    @property
    def sessions(self) -> "tuple[Session, ...]":
        """The clients that are connected to this process in a version with sessions.

        Clients of 2026-07-28 have no session: each of their requests is self-contained.
        """
        return tuple(self.core.roster.sessions.values())

    @property
    def threads(self) -> ThreadPool:
        """The threads that plain functions run in."""
        return self._pool

    @property
    def names(self) -> "Names":
        """What is found by name, until the task or connection that holds it ends.

        Sessions, tasks, upstreams and workers are found there as well, as in `("session", id)`.
        """
        return self.core.roster.names

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

    def stores(self) -> "dict[str, Callable[[], Awaitable[Any]]]":
        """Return the stores outside of this process, each with a function that checks it."""
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

    def tree(self) -> Node:
        """Return the parts of the running server: names, states, restarts, errors, uptimes."""
        return self.parts.tree()

    def tree_changes(self, limit: int = 1000) -> Changes:
        """Return an iterator over the changes of `tree` from now on, for `async for`.

        Args:
            limit: How many changes may wait to be taken; then the oldest are dropped.
        """
        return self.parts.changes(limit)
