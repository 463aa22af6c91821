"""The options of a `Client` as types, for code that makes clients on behalf of an application."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, TypedDict

from mcpearl.client.cache import ResponseCache
from mcpearl.client.callbacks import ElicitationCallback, Roots, SamplingCallback
from mcpearl.client.extensions import ClientExtension
from mcpearl.client.link import StateCallback
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.reconnect import Reconnect
from mcpearl.net.tls import Tls
from mcpearl.protocol.events import Notice
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.observer import Observer
from mcpearl.telemetry.options import Telemetry
from mcpearl.types.base import Implementation
from mcpearl.types.logging import LoggingLevel, LoggingMessageNotificationParams

if TYPE_CHECKING:
    from mcpearl.receipts.receipts import Receipts


class SharedOptions(TypedDict, total=False):
    """Options that the clients of several servers can share; `Client` describes each."""

    protocol: str
    timeout: float
    max_timeout: float
    connect_timeout: float
    callback_timeout: float
    keepalive: Keepalive | None
    max_rounds: int
    log_level: LoggingLevel | None
    validate_output: bool
    limits: Limits | None
    info: Implementation | None
    inherit_env: bool
    tls: Tls | SSLContext | None
    proxy: str | None
    http2: bool | None
    receipts: "str | Path | Receipts | None"
    observer: Observer | Iterable[Observer] | None
    telemetry: Telemetry | bool | None


class ClientOptions(SharedOptions, total=False):
    """All options of a `Client`."""

    sampling: SamplingCallback | None
    elicitation: ElicitationCallback | None
    roots: Roots | None
    on_log: Callable[[LoggingMessageNotificationParams], Any] | None
    on_progress: ProgressCallback | None
    on_notification: Callable[[Notice], Any] | None
    on_state: StateCallback | None
    reconnect: bool | Reconnect | None
    cache: ResponseCache | None
    env: Mapping[str, str] | None
    cwd: str | Path | None
    on_stderr: Callable[[str], None] | None
    headers: Mapping[str, str] | None
    framing: str
    auth: Any
    extensions: Iterable[ClientExtension]
