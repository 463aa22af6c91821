"""What a server offers over HTTP beside MCP: routes, health checks, and whether it is draining."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.server.serving.worker_board import WorkerBoard
    from mcpearl.transports.http_server.pages import PageRoute

HealthCheck = Callable[[], Any]


class WebPages:
    """Filled by decorators before the server runs, read by its HTTP endpoints."""

    __slots__ = ("board", "checks", "consoles", "draining", "number", "routes")

    def __init__(self) -> None:
        self.routes: dict[str, PageRoute] = {}
        self.checks: list[HealthCheck] = []
        self.draining = False
        self.board: WorkerBoard | None = None  # where workers report whether they are ready
        self.number = 0  # the number of this worker
        self.consoles: dict[Any, Any] = {}  # by their options; they outlive the wires

    def add(self, route: "PageRoute") -> None:
        """Add a route."""
        if route.path in self.routes:
            raise ValueError(f"there is a route at {route.path!r} already")
        self.routes[route.path] = route
