"""Which resources the clients without sessions follow at an upstream that keeps state for each tenant.

A `subscriptions/listen` is heard by the tenant's own sessions with the upstream, all of which are
subscribed, and what they hear goes to the listening calls of that tenant only.
"""

from collections.abc import Hashable
from typing import Any

from msgspec.structs import replace

from mcpearl.protocol import codec
from mcpearl.protocol.events import Call
from mcpearl.protocol.modern import subscription_meta
from mcpearl.server.composition.context import spelling_of
from mcpearl.server.context import Context, call_of, peer_of
from mcpearl.server.peer import Peer
from mcpearl.server.subscriptions import RESOURCE_UPDATED
from mcpearl.types.base import encode


class Following:
    """The followed resources of all tenants. Calls that ended are forgotten when they are met."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, dict[str, dict[Call, tuple[Peer, str]]]] = {}

    def add(self, tenant: Hashable, uri: str, ctx: Context) -> None:
        """Note that a listening call follows a resource."""
        peer = peer_of(ctx)
        spelled = spelling_of(peer, uri)
        known = self._calls.setdefault(tenant, {})
        self._live(known, uri)  # forgets those that ended
        known.setdefault(uri, {})[call_of(ctx)] = (peer, spelled)

    def uris(self, tenant: Hashable) -> list[str]:
        """Return the resources that some call of a tenant follows now."""
        known = self._calls.get(tenant)
        if known is None:
            return []
        found = [uri for uri in list(known) if self._live(known, uri)]
        if not known:
            del self._calls[tenant]
        return found

    def _live(
        self, known: dict[str, dict[Call, tuple[Peer, str]]], uri: str
    ) -> dict[Call, tuple[Peer, str]]:
        calls = known.get(uri, {})
        for call, (peer, _) in list(calls.items()):
            if not peer.waits_for(call):
                del calls[call]
        if not calls:
            known.pop(uri, None)
        return calls

    def updated(self, tenant: Hashable, params: Any) -> None:
        """Announce a change that a tenant's session has heard of."""
        for call, (_, spelled) in list(self._live(self._calls.get(tenant, {}), params.uri).items()):
            told = replace(params, uri=spelled, meta=subscription_meta(call.id))
            call.outlet.send(codec.encode_notification(RESOURCE_UPDATED, encode(told)))
