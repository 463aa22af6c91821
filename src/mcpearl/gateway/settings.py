"""What holds for every upstream of a gateway."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from mcpearl.auth.principal import Principal
from mcpearl.client.reconnect import Reconnect

Identity = Callable[[Principal], Awaitable[Mapping[str, str]] | Mapping[str, str]]
"""Returns the headers with which an upstream is called on behalf of a caller."""


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """How a gateway treats an upstream.

    Args:
        timeout: Seconds for a call without news of it; progress starts them again.
        max_timeout: Seconds for a call in all.
        connect_timeout: Seconds for opening a connection, and for each answer of the handshake.
        patience: Seconds that lists and calls wait for an upstream that is not connected.
        ask_timeout: Seconds a client has to answer a question of an upstream.
        max_sessions: Sessions with one upstream that belong to single clients, at once. One client gets
            at most half of those that the others leave; so it is with the next two.
        max_parked: Calls of one upstream that wait for answers of clients without sessions.
        max_subscriptions: Resources of one upstream that are followed on the shared connection.
        max_offers: Tools, resources or prompts that an upstream may have.
        max_rounds: How often a modern upstream may ask before it answers a call.
        idle: Seconds a session is kept after the call of a client without sessions has ended.
        reconnect: When connections are tried again.
        protocol: The one version to speak with it, or `auto` for any.
        failures: Failed calls in a row after which an upstream is left alone for a while.
        stateless: Whether upstreams with sessions keep nothing of a client in them, so that clients may
            share them. A single one says it in the configuration: `"stateless": true`.
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
    """How an upstream is got into.

    Args:
        auth: How the gateway itself logs in, as for `Client`.
        identity: Makes headers of the caller's principal; without it the caller stays unknown.
    """

    auth: Any = None
    identity: Identity | None = None
