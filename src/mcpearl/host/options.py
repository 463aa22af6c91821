"""The options of a `Host` as types, for code that makes hosts on behalf of an application."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcpearl.client.options import SharedOptions
from mcpearl.client.reconnect import Reconnect
from mcpearl.host.records import HostChange


class HostOptions(SharedOptions, total=False):
    """All options of a `Host`."""

    sampling: Callable[..., Any] | None
    elicitation: Callable[..., Any] | None
    roots: Any
    on_log: Callable[..., Any] | None
    on_progress: Callable[..., Any] | None
    on_notification: Callable[..., Any] | None
    on_stderr: Callable[..., Any] | None
    on_change: Callable[[HostChange], None] | None
    auth: Mapping[str, Any] | Literal["oauth"] | None
    reconnect: Reconnect | None
    lazy: bool
    patience: float
    failures: int | None
    max_servers: int
    max_offers: int
