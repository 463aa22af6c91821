"""The context of a call inside a mounted part.

The call is still the one the client made, with its id, outlet and rounds; only the params are the
part's own, and what belongs to a server (lifespan, resources) is the mounted server's.
"""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpearl.protocol.events import Call
from mcpearl.server.context import Context
from mcpearl.server.peer import Peer

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore


class PartContext(Context[Any]):
    """A context whose call was made to an outer server.

    Args:
        outer: The context of the call in the outer server.
        core: What the connections of the mounted server share.
        params: The params as the part has them; None for the outer ones with another name.
        name: That name. Such params are made when something reads them.
        peer: The other end of the call, where it differs from the outer one.
    """

    __slots__ = ("_name", "_other_peer", "_outer", "_params")

    def __init__(
        self,
        outer: Context,
        core: "ServerCore",
        params: Any,
        name: str = "",
        peer: Peer | None = None,
    ) -> None:
        self._outer = outer
        self._core = core
        self._params = params
        self._name = name
        self._other_peer = peer
        self._progress = None

    # A call that becomes a task continues with another call and peer, which the outer context has.

    @property
    def _call(self) -> Call:  # type: ignore[override]
        return self._outer._call

    @property
    def _peer(self) -> Peer:  # type: ignore[override]
        return self._other_peer or self._outer._peer

    @property
    def params(self) -> Any:
        """The typed params of the request, with the names the part has."""
        if self._params is None:
            self._params = replace(self._outer.params, name=self._name)
        return self._params

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of the request."""
        return self.params.meta or {}

    @property
    def state(self) -> dict[str, Any]:
        """Values that middleware and handlers share, including those of the outer server."""
        return self._outer.state

    def takes_encoded(self) -> bool:
        """Whether nothing reads the result, neither in the part nor in the outer server."""
        return self._core.takes_encoded and self._outer.takes_encoded()

    def _client_name(self, name: str) -> str:
        if name != _named(self.params):
            return (
                name  # something the part looks up itself, such as a resource that its tool reads
            )
        called = _named(self._outer.params)
        return name if called is None else self._outer._client_name(called)

    def _rounds(self) -> Any:
        return self._outer._rounds()  # sealed for the call that the client made


class SpelledPeer:
    """The peer of a subscription to a resource that clients know by another URI than the part.

    Args:
        peer: The other end of the call.
        uri: The URI as clients spell it.
    """

    def __init__(self, peer: Peer, uri: str) -> None:
        self._peer = peer
        self.uri = uri

    @property
    def peer(self) -> Peer:
        """The other end of the call."""
        return self._peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    def reserve(self, uri: str) -> None:
        """Make sure that there is room for the subscription."""
        self._peer.reserve(self.uri)

    def subscribe(self, uri: str) -> None:
        """Send updates under the client's spelling."""
        self._peer.subscribe(self.uri)

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates."""
        self._peer.unsubscribe(self.uri)


def _named(params: Any) -> str | None:
    """Return the name, or URI, in params."""
    params = getattr(params, "ref", params)  # what a completion is for
    name: str | None = getattr(params, "name", None) or getattr(params, "uri", None)
    return name


def spelling_of(peer: Peer, uri: str) -> str:
    """Return a resource's URI as the client of this peer spells it.

    Args:
        peer: The other end of a subscription.
        uri: The URI as the part has it.
    """
    return peer.uri if isinstance(peer, SpelledPeer) else uri
