"""The options that a gateway has in common with every server."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from mcpearl.protocol.limits import Limits
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.observer import Observer
from mcpearl.runtime.rate import RateLimit
from mcpearl.server.dispatch import Middleware
from mcpearl.server.extensions import ServerExtension
from mcpearl.stores.shared import SharedStore
from mcpearl.stores.state import StateStore
from mcpearl.telemetry.options import Telemetry
from mcpearl.types.base import Icon

if TYPE_CHECKING:
    from mcpearl.auth.server.protection import Auth
    from mcpearl.receipts.receipts import Receipts
    from mcpearl.server.throttle import Shedding
    from mcpearl.stores.tasks import TaskStore
else:
    Auth = Receipts = Shedding = TaskStore = Any


class ServerOptions(TypedDict, total=False):
    """Options of `Server`, which describes each."""

    title: str | None
    description: str | None
    website_url: str | None
    icons: list[Icon] | None
    instructions: str | None
    lifespan: Any
    middleware: list[Middleware] | None
    extensions: Iterable[ServerExtension]
    limits: Limits | None
    page_size: int
    list_ttl_ms: int | None
    ask_timeout: float
    grace: float
    keepalive: Keepalive | None
    mask_errors: bool
    state_keys: list[bytes] | None
    state_ttl: float
    state_store: StateStore | None
    versions: tuple[str, ...]
    auth: "Auth | None"
    max_held: int | None
    observer: Observer | Iterable[Observer] | None
    rate: RateLimit | None
    shedding: "Shedding | None"
    telemetry: Telemetry | bool | None
    log: Literal["text", "json"]
    receipts: "str | Path | Receipts | None"
    store: "str | TaskStore | SharedStore | None"
