"""The subscribers of a server in both eras, indexed by URI and by kind of list.

A change is encoded once per spelling of its URI. Legacy subscribers get the same bytes; a modern
listener's copy carries its subscription id, which is spliced in. When a subscriber ends, all its entries
are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from mcpearl import types
from mcpearl.protocol import codec
from mcpearl.protocol.events import Call, Outlet
from mcpearl.protocol.modern import subscription_meta
from mcpearl.runtime.budget import Account
from mcpearl.server.registry.normal_uri import normal_uri
from mcpearl.types.base import encode

if TYPE_CHECKING:
    from mcpearl.stores.sessions import Missed

LIST_CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
RESOURCE_UPDATED = "notifications/resources/updated"
_STREAM = 8 * 1024  # bytes of a `subscriptions/listen` beside its URIs, about
_ENTRY = 512  # bytes of a subscription beside its URI, about


Announce = Callable[[bytes, str | None], None]
"""Takes an announcement and its position on the bus, if it has one."""


Spread = Literal["all", "live", "kept"]
"""Which subscribers an announcement is for: all, those that end with this process, or those that other
processes announce to as well."""


class Announcement:
    """One notification on its way to many."""

    __slots__ = ("_body", "_method", "plain", "position")

    def __init__(
        self, method: str, params: Struct | None = None, position: str | None = None
    ) -> None:
        self.position = position  # on the bus
        self._method = method
        self._body = b"{}" if params is None else encode(params)
        self.plain = codec.encode_notification(method, self._body)

    def tagged(self, meta: bytes) -> bytes:
        """Return the notification for one subscription of the modern era."""
        return codec.encode_notification(self._method, codec.splice(meta, self._body))


def _size_of(uri: str) -> int:
    """Return about how many bytes a subscription takes: the URI as it is and as it was spelled."""
    return 2 * len(uri) + _ENTRY


class Subscriber:
    """A receiver of announcements: a legacy session, or one modern `subscriptions/listen`."""

    __slots__ = ("_announce", "_holding", "_meta", "_size", "call", "kinds", "outlet", "uris")

    def __init__(
        self,
        outlet: Outlet,
        account: Account,
        call: Call | None = None,
        announce: Announce | None = None,
    ) -> None:
        self.outlet = outlet
        self._announce = announce  # for a session that other processes may have, too
        self._size = 0 if call is None else _STREAM  # bytes of what it holds, about
        self._holding = account.hold("subscriptions", self._size)
        self.call = call  # the listen request, in the modern era
        # Every session has one of these. Empty sets would take three times as much memory.
        self.uris: dict[str, None] = {}  # in their normal form
        self.kinds: tuple[str, ...] = ()
        self._meta = b"" if call is None else b'"_meta":' + encode(subscription_meta(call.id))

    def take_on(self, uri: str) -> None:
        """Count one more URI. Raises `NoRoom`."""
        size = self._size + _size_of(uri)
        self._holding.grow(size)
        self._size = size

    def let_go(self, uri: str) -> None:
        """Stop counting one URI."""
        self._size -= _size_of(uri)
        self._holding.resize(self._size)

    def release(self) -> None:
        """Stop counting."""
        self._size = 0
        self._holding.release()

    def is_in(self, reach: Spread) -> bool:
        """Whether an announcement that is spread like this is for this subscriber."""
        return reach == "all" or (reach == "kept") == (self._announce is not None)

    def deliver(self, announcement: Announcement) -> None:
        """Send an announcement in this subscriber's form."""
        if self._announce is not None:
            self._announce(announcement.plain, announcement.position)
            return
        self.outlet.send(announcement.tagged(self._meta) if self._meta else announcement.plain)


class Subscriptions:
    """The index of subscribers by URI and kind of list. Connections own how long they live."""

    def __init__(self) -> None:
        # By normal form: the subscribers, each with the URI as it was spelled.
        self._by_uri: dict[str, dict[Subscriber, str]] = {}
        self._by_kind: dict[str, dict[Subscriber, None]] = {kind: {} for kind in LIST_CHANGED}

    def subscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Note interest in one resource. Raises `NoRoom`."""
        normal = normal_uri(uri)
        if normal not in subscriber.uris:
            subscriber.take_on(normal)
        subscriber.uris[normal] = None
        self._by_uri.setdefault(normal, {})[subscriber] = uri

    def unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        """End the interest in one resource, if there is any."""
        uri = normal_uri(uri)
        if uri in subscriber.uris:
            del subscriber.uris[uri]
            subscriber.let_go(uri)
        listeners = self._by_uri.get(uri)
        if listeners is not None:
            listeners.pop(subscriber, None)
            if not listeners:
                del self._by_uri[uri]

    def keep_allowed(self, subscriber: Subscriber, allowed: Callable[[str], bool]) -> list[str]:
        """End the interest in resources that are no longer allowed; return which those were."""
        ended = [uri for uri in subscriber.uris if not allowed(uri)]
        for uri in ended:
            self.unsubscribe(subscriber, uri)
        return ended

    def follow(self, subscriber: Subscriber, kind: str) -> None:
        """Note interest in changes of a list."""
        if kind not in subscriber.kinds:
            subscriber.kinds += (kind,)
        self._by_kind[kind][subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a subscriber altogether."""
        for uri in list(subscriber.uris):
            self.unsubscribe(subscriber, uri)
        for kind in subscriber.kinds:
            self._by_kind[kind].pop(subscriber, None)
        subscriber.release()

    def resource_updated(self, uri: str, reach: Spread = "all", position: str | None = None) -> int:
        """Notify the subscribers of a resource, each under its spelling; return how many there are.

        Args:
            uri: The resource.
            reach: Which of them.
            position: Where the change is on the bus.
        """
        listeners = self._by_uri.get(normal_uri(uri))
        if not listeners:
            return 0
        announcements: dict[str, Announcement] = {}
        for subscriber, spelled in list(listeners.items()):
            if not subscriber.is_in(reach):
                continue
            announcement = announcements.get(spelled)
            if announcement is None:
                announcement = announcements[spelled] = _update(spelled, position)
            subscriber.deliver(announcement)
        return len(listeners)

    def make_up(self, subscriber: Subscriber, missed: Sequence[Missed] | None) -> None:
        """Announce to one subscriber what may not have been announced to it.

        Args:
            subscriber: One whose announcements other processes may have made.
            missed: What was published meanwhile; None if that is not known.
        """
        if missed is None:
            for uri in subscriber.uris:
                subscriber.deliver(_update(self._by_uri[uri][subscriber], None))
            for kind in subscriber.kinds:
                subscriber.deliver(Announcement(LIST_CHANGED[kind], None, None))
            return
        for each in missed:
            name = each.message.decode(errors="replace")
            if each.topic == RESOURCE_UPDATED and (uri := normal_uri(name)) in subscriber.uris:
                subscriber.deliver(_update(self._by_uri[uri][subscriber], each.position))
            elif each.topic != RESOURCE_UPDATED and name in subscriber.kinds:
                subscriber.deliver(Announcement(LIST_CHANGED[name], None, each.position))

    def spelled(self, subscriber: Subscriber) -> tuple[str, ...]:
        """Return the resources of a subscriber as it named them, sorted."""
        return tuple(sorted(self._by_uri[uri][subscriber] for uri in subscriber.uris))

    def has(self, uri: str) -> bool:
        """Whether a resource has subscribers."""
        return normal_uri(uri) in self._by_uri

    def all_changed(self) -> None:
        """Announce everything that has subscribers, when changes of other processes were missed."""
        for uri in list(self._by_uri):
            self.resource_updated(uri)
        for kind in LIST_CHANGED:
            self.list_changed(kind)

    def list_changed(self, kind: str, reach: Spread = "all", position: str | None = None) -> int:
        """Notify the subscribers of a list; return how many there are.

        Args:
            kind: `tools`, `prompts` or `resources`.
            reach: Which of them.
            position: Where the change is on the bus.
        """
        listeners = self._by_kind[kind]
        announcement = Announcement(LIST_CHANGED[kind], None, position)
        for subscriber in list(listeners):
            if subscriber.is_in(reach):
                subscriber.deliver(announcement)
        return len(listeners)

    def counts(self) -> dict[str, int]:
        """Count the subscribers by kind, and the URIs that have any."""
        listeners: dict[str, int] = {kind: len(each) for kind, each in self._by_kind.items()}
        return {"uris": len(self._by_uri), **listeners}


def _update(spelled: str, position: str | None) -> Announcement:
    params = types.ResourceUpdatedNotificationParams(uri=spelled)
    return Announcement(RESOURCE_UPDATED, params, position)


def granted(asked: types.SubscriptionFilter, has: Any) -> types.SubscriptionFilter:
    """Return the part of a filter that this server supports; `has` checks its capabilities."""
    resources = asked.resource_subscriptions
    return types.SubscriptionFilter(
        tools_list_changed=_both(asked.tools_list_changed, has("tools.list_changed")),
        prompts_list_changed=_both(asked.prompts_list_changed, has("prompts.list_changed")),
        resources_list_changed=_both(asked.resources_list_changed, has("resources.list_changed")),
        resource_subscriptions=resources if resources and has("resources.subscribe") else None,
    )


def _both(asked: bool | None, offered: bool) -> bool | None:
    return True if asked and offered else None


def followed(honoured: types.SubscriptionFilter) -> list[str]:
    """Return the kinds of lists that a filter names."""
    wanted = {
        "tools": honoured.tools_list_changed,
        "prompts": honoured.prompts_list_changed,
        "resources": honoured.resources_list_changed,
    }
    return [kind for kind, on in wanted.items() if on]
