"""Which client wants to hear of what: an index from URI and kind of list to subscribers, in both eras.

A change is encoded once per spelling of its URI. Legacy subscribers get the same bytes; a modern
listener's copy carries its subscription id, put in by splicing. A subscriber that ends takes all its
entries along.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from mcpearl.protocol import codec
from mcpearl.protocol.events import Call, Outlet
from mcpearl.protocol.modern import subscription_meta
from mcpearl.runtime.budget import Account
from mcpearl.server.registry.normal_uri import normal_uri
from mcpearl.types.base import encode
from mcpearl.types.resources import ResourceUpdatedNotificationParams
from mcpearl.types.subscriptions import SubscriptionFilter

LIST_CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
RESOURCE_UPDATED = "notifications/resources/updated"
_STREAM = 8 * 1024  # bytes of a `subscriptions/listen` beside its URIs, about
_ENTRY = 512  # bytes of a subscription beside its URI, about


class Announcement:
    """One notification on its way to many."""

    __slots__ = ("_body", "_method", "plain")

    def __init__(self, method: str, params: Struct | None = None) -> None:
        self._method = method
        self._body = b"{}" if params is None else encode(params)
        self.plain = codec.encode_notification(method, self._body)

    def tagged(self, meta: bytes) -> bytes:
        """The same for one subscription of the modern era."""
        return codec.encode_notification(self._method, codec.splice(meta, self._body))


def _size_of(uri: str) -> int:
    """Return about how many bytes a subscription takes: the URI as it is and as it was spelled."""
    return 2 * len(uri) + _ENTRY


class Subscriber:
    """A receiver of announcements: a legacy session, or one modern `subscriptions/listen`."""

    __slots__ = ("_holding", "_meta", "_size", "call", "kinds", "outlet", "uris")

    def __init__(self, outlet: Outlet, account: Account, call: Call | None = None) -> None:
        self.outlet = outlet
        self._size = 0 if call is None else _STREAM  # bytes of what it holds, about
        self._holding = account.hold("subscriptions", self._size)
        self.call = call  # the listen request, in the modern era
        self.uris: set[str] = set()  # in their normal form
        self.kinds: set[str] = set()
        self._meta = b"" if call is None else b'"_meta":' + encode(subscription_meta(call.id))

    def take_on(self, uri: str) -> None:
        """Count one more URI. Raises `NoRoom`."""
        size = self._size + _size_of(uri)
        self._holding.grow(size)
        self._size = size

    def let_go(self, uri: str) -> None:
        """Count one URI less."""
        self._size -= _size_of(uri)
        self._holding.resize(self._size)

    def release(self) -> None:
        """Count nothing any more."""
        self._size = 0
        self._holding.release()

    def deliver(self, announcement: Announcement) -> None:
        """Send an announcement in this subscriber's form."""
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
        subscriber.uris.add(normal)
        self._by_uri.setdefault(normal, {})[subscriber] = uri

    def unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        """End the interest in one resource; none is fine too."""
        uri = normal_uri(uri)
        if uri in subscriber.uris:
            subscriber.uris.discard(uri)
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
        subscriber.kinds.add(kind)
        self._by_kind[kind][subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a subscriber altogether."""
        for uri in list(subscriber.uris):
            self.unsubscribe(subscriber, uri)
        for kind in subscriber.kinds:
            self._by_kind[kind].pop(subscriber, None)
        subscriber.release()

    def resource_updated(self, uri: str) -> int:
        """Notify the subscribers of a resource, each under its spelling; return how many."""
        listeners = self._by_uri.get(normal_uri(uri))
        if not listeners:
            return 0
        announcements: dict[str, Announcement] = {}
        for subscriber, spelled in list(listeners.items()):
            announcement = announcements.get(spelled)
            if announcement is None:
                announcement = announcements[spelled] = Announcement(
                    "notifications/resources/updated",
                    ResourceUpdatedNotificationParams(uri=spelled),
                )
            subscriber.deliver(announcement)
        return len(listeners)

    def has(self, uri: str) -> bool:
        """Whether a resource has subscribers."""
        return normal_uri(uri) in self._by_uri

    def all_updated(self) -> None:
        """Announce every resource that has subscribers, when updates of other processes were missed."""
        for uri in list(self._by_uri):
            self.resource_updated(uri)

    def list_changed(self, kind: str) -> int:
        """Notify the subscribers of a list; return how many."""
        return _deliver(Announcement(LIST_CHANGED[kind]), self._by_kind[kind])

    def counts(self) -> dict[str, int]:
        """Count the subscribers by kind, and the URIs that have any."""
        listeners: dict[str, int] = {kind: len(each) for kind, each in self._by_kind.items()}
        return {"uris": len(self._by_uri), **listeners}


def _deliver(announcement: Announcement, listeners: dict[Subscriber, Any]) -> int:
    for subscriber in list(listeners):
        subscriber.deliver(announcement)
    return len(listeners)


def granted(asked: SubscriptionFilter, has: Any) -> SubscriptionFilter:
    """The part of a filter this server can honour; `has` tells its capabilities."""
    resources = asked.resource_subscriptions
    return SubscriptionFilter(
        tools_list_changed=_both(asked.tools_list_changed, has("tools.list_changed")),
        prompts_list_changed=_both(asked.prompts_list_changed, has("prompts.list_changed")),
        resources_list_changed=_both(asked.resources_list_changed, has("resources.list_changed")),
        resource_subscriptions=resources if resources and has("resources.subscribe") else None,
    )


def _both(asked: bool | None, offered: bool) -> bool | None:
    return True if asked and offered else None


def followed(honoured: SubscriptionFilter) -> list[str]:
    """The lists a filter names."""
    wanted = {
        "tools": honoured.tools_list_changed,
        "prompts": honoured.prompts_list_changed,
        "resources": honoured.resources_list_changed,
    }
    return [kind for kind, on in wanted.items() if on]
