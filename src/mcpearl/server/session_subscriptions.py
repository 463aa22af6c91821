"""What one legacy session is subscribed to: the resources and lists its client is notified of.

The index over all clients is `server/subscriptions`. Here is the session's entry in it, which is made
when the session first needs one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.events import Outlet
from mcpearl.runtime.budget import Account, NoRoom
from mcpearl.server.subscriptions import Subscriber

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore
    from mcpearl.stores.sessions import Missed
    from mcpearl.transports.transport import Transport


class SessionSubscriptions:
    """The subscriptions of one session.

    Args:
        core: What the server's connections share.
        outlet: Where notifications are sent.
        account: Counts what the subscriptions hold.
        transport: Carries the client's messages; it may announce for several processes.
    """

    __slots__ = ("_account", "_core", "_outlet", "_subscriber", "_transport")

    def __init__(
        self, core: ServerCore, outlet: Outlet, account: Account, transport: Transport
    ) -> None:
        self._core = core
        self._outlet = outlet
        self._account = account
        self._transport = transport
        self._subscriber: Subscriber | None = None

    def __len__(self) -> int:
        return 0 if self._subscriber is None else len(self._subscriber.uris)

    def __contains__(self, uri: str) -> bool:
        return uri in self._own().uris

    def _own(self) -> Subscriber:
        if self._subscriber is None:
            from mcpearl.transports.transport import (
                Announcing,  # not needed before a client is ready
            )

            announce = None
            if isinstance(self._transport, Announcing):
                announce = self._transport.announce
            self._subscriber = Subscriber(self._outlet, self._account, announce=announce)
        return self._subscriber

    def uris(self) -> tuple[str, ...]:
        """Return the resources, as the client spells their URIs."""
        own = self._subscriber
        return () if own is None else self._core.subscriptions.spelled(own)

    def follow_lists(self, kinds: Iterable[str]) -> None:
        """Notify the client of changes of these kinds of lists from now on."""
        for kind in kinds:
            self._core.subscriptions.follow(self._own(), kind)

    def subscribe(self, uri: str) -> None:
        """Send updates of a resource from now on; raises `LimitReached`."""
        try:
            self._core.subscriptions.subscribe(self._own(), uri)
        except NoRoom as error:
            raise LimitReached(str(error)) from None

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates of a resource."""
        self._core.subscriptions.unsubscribe(self._own(), uri)

    def adopt(self, uris: Iterable[str]) -> None:
        """Subscribe to these resources and no others, as another process has stored the session."""
        held = set(self._core.subscriptions.spelled(self._own()))
        wanted = set(uris)
        for uri in held - wanted:
            self.unsubscribe(uri)
        for uri in wanted - held:
            self.subscribe(uri)

    def make_up(self, missed: Sequence[Missed] | None) -> None:
        """Announce what other processes may not have announced to the client of a restored session."""
        self._core.subscriptions.make_up(self._own(), missed)

    def keep_allowed(self, principal: Any) -> None:
        """Drop the resources that a new token of the client does not allow."""
        dispatcher = self._core.dispatcher
        if self._subscriber is not None and dispatcher.scoped and principal is not None:
            self._core.subscriptions.keep_allowed(
                self._subscriber,
                lambda uri: dispatcher.scopes_of("resources/subscribe", uri) <= principal.scopes,
            )

    def leave(self) -> None:
        """End all of them, with the session."""
        if self._subscriber is not None:
            self._core.subscriptions.leave(self._subscriber)
