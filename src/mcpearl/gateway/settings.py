"""The settings for all upstreams of a gateway, and how it authenticates to one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from mcpearl.auth.principal import Principal
from mcpearl.client.reconnect import Reconnect

IdentityHeaders = Callable[[Principal], Awaitable[Mapping[str, str]] | Mapping[str, str]]
"""Returns the headers with which an upstream is called on behalf of a caller."""


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """Timeouts and limits for each upstream of a gateway.

    Args:
        timeout: Seconds that a call may take; each progress notification restarts them.
        max_timeout: Seconds that a call may take in all.
        connect_timeout: Seconds for opening a connection, and for each answer of the handshake.
        patience: Seconds that lists and calls wait for an upstream that is not connected.
        ask_timeout: Seconds a client has to answer a question of an upstream.
        max_sessions: Sessions of single clients with one upstream, at the same time. A client gets at
            most half of what the others have left; the same holds for the next two limits.
        max_parked: Calls to one upstream that wait for answers of clients without sessions.
        max_subscriptions: Resources of one upstream that are followed on the shared connection.
        max_offers: Tools, resources or prompts that an upstream may have.
        max_rounds: How often a modern upstream may ask before it answers a call.
        idle: Seconds a session is kept after the call of a client without sessions has ended.
        reconnect: When to connect again to an upstream that is down.
        protocol: The one version to speak with upstreams, or `auto` for any.
        failures: Failed calls in a row after which an upstream gets no calls for a while.
        stateless: Whether upstreams keep no state of a client in their sessions, so that clients may
            share them. For a single upstream, set it in the configuration: `"stateless": true`.
    """

    timeout: float = 60.0
    max_timeout: float = 600.0
    connect_timeout: float = 60.0
    patience: float = 5.0
    ask_timeout: float = 300.0
    max_sessions: int = 1000
    max_parked: int = 1000
    max_subscriptions: int = 50_000
    max_offers: int = 50_000
    max_rounds: int = 16
    idle: float = 300.0
    reconnect: Reconnect = Reconnect()
    protocol: str = "auto"
    failures: int = 5
    stateless: bool = False


class Access(Struct, frozen=True, kw_only=True):
    """How a gateway authenticates to an upstream.

    Args:
        auth: How the gateway itself logs in, as for `Client`.
        identity: Makes headers from the caller's principal; without it the upstream does not learn the
            caller's identity.
    """

    auth: Any = None
    identity: IdentityHeaders | None = None
