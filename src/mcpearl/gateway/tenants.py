"""Tenants: the clients for which sessions with an upstream are kept apart.

A legacy upstream may keep state in a session, so one session serves one tenant only: a legacy session,
the connection of a modern client (stdio, a socket, in memory), or, over modern HTTP, a principal. A
modern HTTP request without a principal is a tenant of its own, for the duration of the call with all its
rounds.
"""

from collections.abc import Hashable
from typing import Any

from mcpearl.net.ports import host_key
from mcpearl.protocol.events import Call
from mcpearl.server.composition.context import SpelledPeer
from mcpearl.server.connection import ServerConnection
from mcpearl.server.context import Context, peer_of

ANYONE: Hashable = "anyone"
"""Stands for all clients, at upstreams that keep no state of any client."""


class Tenant:
    """A client without a session, for which sessions with an upstream are kept.

    Args:
        key: Identifies the tenant; None for a client that cannot be recognized again.
        principal: The authenticated caller, if it is known.
        owner: The client to whose share the sessions count, see `owner_of`.
    """

    __slots__ = ("key", "owner", "principal")

    def __init__(self, key: Hashable, principal: Any = None, owner: Hashable = None) -> None:
        self.key = key
        self.principal = principal
        self.owner = owner


def tenant_of(call: Call, ctx: Context, *, shared: bool, named: bool) -> Tenant:
    """Return the tenant of a call.

    Args:
        call: The call.
        ctx: Its context.
        shared: Whether the upstream keeps no state of its clients.
        named: Whether the upstream learns the caller's identity, and can tell callers apart.
    """
    principal = call.caller.principal
    known = principal if principal is not None and principal.subject else None
    owner = owner_of(call, ctx)
    if named or (known is not None and shared):
        return Tenant(None if known is None else known.identity, known, owner)
    return Tenant(ANYONE if shared else client_of(call, ctx), known, owner)


def owner_of(call: Call, ctx: Context) -> Hashable:
    """Return the client to whose share sessions and parked calls count: the principal, else the address.

    If there is neither, it is the connection: one client, however many calls it makes.

    Args:
        call: The call.
        ctx: Its context.
    """
    principal = call.caller.principal
    if principal is not None and principal.subject:
        identity: Hashable = principal.identity
        return identity
    address = ctx.client_address
    return client_of(call, ctx) if address is None else host_key(address)


def client_of(call: Call, ctx: Context) -> Hashable:
    """Return a key that all calls of a client have in common; None if its client cannot be recognized.

    Args:
        call: The call.
        ctx: Its context.
    """
    caller = call.caller
    if caller.session is not None and not caller.version.modern:
        session: Hashable = caller.session
        return session
    peer = peer_of(ctx)
    if isinstance(peer, SpelledPeer):
        peer = peer.peer
    if isinstance(peer, ServerConnection):
        return peer
    principal = caller.principal
    return principal.identity if principal is not None and principal.subject else None
