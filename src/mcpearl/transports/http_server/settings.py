"""The options of an HTTP endpoint, whichever server it runs under."""

from collections.abc import Collection
from os import PathLike
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpearl.transports.http_server import patterns

if TYPE_CHECKING:
    from mcpearl.stores.events import EventStore
    from mcpearl.stores.sessions import SessionStore
else:
    EventStore = SessionStore = Any  # loaded with the endpoint, not with its options


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """Where an endpoint is, what it allows, and how much its clients may use."""

    path: str = "/mcp"
    """The path of the endpoint."""
    allowed_hosts: Collection[str] | None = None
    """Hosts a request may name: `mcp.example.com`, `*.example.com`, with any port unless one is given,
    `*` for any. By default only local ones on a local address, and any elsewhere."""
    allowed_origins: Collection[str] | None = None
    """Origins whose pages may send requests: `https://app.example.com`, `https://*.example.com`,
    `http://localhost:*` for any port, `*` for all; None for local ones."""
    stateless: bool = False
    """Serve legacy requests without sessions, each by itself."""
    http_sse: bool = False
    """Serve the HTTP+SSE transport of 2024-11-05 too, at `/sse` and `/messages`."""
    max_sessions: int = 100_000
    """Legacy sessions at once; one more is refused with 503."""
    idle_timeout: float = 1800.0
    """Seconds after which an unused legacy session ends."""
    initialize_timeout: float = 60.0
    """The same until a client has sent `notifications/initialized`."""
    max_history: int = 256 * 1024 * 1024
    """Bytes of events that are kept in memory for streams that may be resumed."""
    session_store: "SessionStore | None" = None
    """Where sessions are kept that several processes share; by default in this process alone."""
    event_store: "EventStore | None" = None
    """Where events of streams are kept that may be resumed; by default in memory."""
    max_requests: int = 10_000
    """Requests being answered at once; one more is refused with 503."""
    max_streams: int = 100_000
    """Streams that wait for something to be sent; one more is refused with 503."""
    body_timeout: float = 30.0
    """Seconds in which the body of a request must arrive."""
    keep_alive: float = 15.0
    """Seconds of silence after which a stream carries a sign of life."""
    stall_timeout: float = 60.0
    """Seconds in which a client must read some of what it was sent."""
    health: str | None = None
    """A path that tells whether the server is ready, with `/live` and `/ready` below it."""
    metrics: str | None = None
    """A path that Prometheus reads metrics from. It is open to every client that reaches the port."""
    access_log: bool | str | PathLike[str] = False
    """Log every request: address, path, status, size, time, method. True for the logger `mcpearl.access`;
    or the path of a file, which costs less."""

    def __post_init__(self) -> None:
        check_allowed(self.allowed_hosts, self.allowed_origins)


def check_allowed(hosts: Collection[str] | None, origins: Collection[str] | None) -> None:
    """Refuse values that are not patterns of hosts or origins."""
    if hosts is not None:
        patterns.hosts(hosts)
    if origins is not None:
        patterns.origins(origins)
