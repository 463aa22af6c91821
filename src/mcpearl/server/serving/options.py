"""The options of wires as keyword arguments. Their meaning and defaults are in the records of `wires`."""

from collections.abc import Collection
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.server.serving.wires import ConsoleOptions
    from mcpearl.stores.events import EventStore
    from mcpearl.stores.sessions import SessionStore
else:
    Auth = ConsoleOptions = EventStore = SessionStore = (
        Any  # these take longer to load than most servers take to start
    )


class AsgiOptions(TypedDict, total=False):
    """The options of `Server.asgi`, as `Http` documents them."""

    path: str
    allowed_hosts: Collection[str] | None
    allowed_origins: Collection[str] | None
    stateless: bool
    http_sse: bool
    max_sessions: int
    idle_timeout: float
    initialize_timeout: float
    max_history: int
    session_store: SessionStore | None
    event_store: EventStore | None
    max_requests: int
    max_streams: int
    body_timeout: float
    keep_alive: float
    stall_timeout: float
    access_log: bool | str | PathLike[str]
    health: str | None
    metrics: str | None
    auth: Auth | None
    websocket: str | None
    max_websockets: int


class WireOptions(TypedDict, total=False):
    """The options of `app.run("http", …)` and the other wires: `Http`, `Tcp`, `Unix`, `WebSocket`."""

    transport: str
    """Another way to write the name of the wire."""
    # Of several wires
    host: str
    port: int | str
    path: str | PathLike[str]
    certificate: str | PathLike[str] | None
    key: str | PathLike[str] | None
    client_ca: str | PathLike[str] | None
    reuse_port: bool
    auth: Auth | None
    allowed_hosts: Collection[str] | None
    allowed_origins: Collection[str] | None
    max_connections: int
    idle_timeout: float | None
    stall_timeout: float
    # Of HTTP
    access_log: bool | str | PathLike[str]
    drain_delay: float
    health: str | None
    metrics: str | None
    workers: int
    server: Literal["mcpearl", "granian"]
    console: bool | ConsoleOptions
    websocket: str | None
    max_websockets: int
    stateless: bool
    http_sse: bool
    max_sessions: int
    initialize_timeout: float
    max_history: int
    session_store: SessionStore | None
    event_store: EventStore | None
    max_requests: int
    max_streams: int
    body_timeout: float
    keep_alive: float
    # Of TCP, Unix sockets and WebSocket
    framing: str
    handshake_timeout: float
    ping_interval: float | None
    ping_timeout: float
