"""The resources that clients without sessions follow at an upstream that keeps state for each tenant.

For a `subscriptions/listen` call, all sessions that the tenant has with the upstream are subscribed.
Changes announced in those sessions go only to the listening calls of that tenant.
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

_FEWEST = 64  # resources of a tenant before they are first searched for ones that no call follows


class _TenantResources(dict[str, dict[Call, tuple[Peer, str]]]):
    """The listening calls of one tenant, by the resources they follow."""

    look_at = _FEWEST
    """The number of resources at which they are searched next."""


class Following:
    """The followed resources of all tenants. Ended calls are removed when a search finds them."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _TenantResources] = {}

    def add(self, tenant: Hashable, uri: str, ctx: Context) -> list[str]:
        """Note that a listening call follows a resource; return resources that no call follows any more.

        Args:
            tenant: The tenant.
            uri: The resource.
            ctx: The context of the call.
        """
        peer = peer_of(ctx)
        spelled = spelling_of(peer, uri)
        known = self._calls.get(tenant)
        if known is None:
            known = self._calls[tenant] = _TenantResources()
        self._live(known, uri)  # removes calls that ended
        known.setdefault(uri, {})[call_of(ctx)] = (peer, spelled)
        if len(known) <= known.look_at:
            return []
        gone = [each for each in list(known) if not self._live(known, each)]
        known.look_at = max(_FEWEST, 2 * len(known))
        return gone

    def uris(self, tenant: Hashable) -> list[str]:
        """Return the resources that some call of a tenant follows now."""
        known = self._calls.get(tenant)
        if known is None:
            return []
        found = [uri for uri in list(known) if self._live(known, uri)]
        if not known:
            del self._calls[tenant]
        return found

    def _live(self, known: _TenantResources, uri: str) -> dict[Call, tuple[Peer, str]]:
        calls = known.get(uri, {})
        for call, (peer, _) in list(calls.items()):
            if not peer.waits_for(call):
                del calls[call]
        if not calls:
            known.pop(uri, None)
        return calls

    def updated(self, tenant: Hashable, params: Any) -> None:
        """Pass a change that was announced in a tenant's session on to the tenant's listening calls."""
        known = self._calls.get(tenant)
        if known is None:
            return
        for call, (_, spelled) in list(self._live(known, params.uri).items()):
            told = replace(params, uri=spelled, meta=subscription_meta(call.id))
            call.outlet.send(codec.encode_notification(RESOURCE_UPDATED, encode(told)))
