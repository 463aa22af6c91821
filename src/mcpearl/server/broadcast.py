"""Announces changes of resources and lists to subscribers of this process and of the others.

Without a store, subscribers of this process are notified at once, and the bus carries the change to the
other processes. On a bus that stores its messages, a change has a position. Sessions whose streams
outlive a process are notified by that position, whichever process the change came from: each is notified
once, however many processes announce the change, and a process that loads such a session later announces
what the session has missed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeGuard

from mcpearl.server.subscriptions import LIST_CHANGED, RESOURCE_UPDATED, Spread, Subscriptions
from mcpearl.stores.memory_bus import MemoryBus

if TYPE_CHECKING:
    from mcpearl.stores.bus import Bus, Stored, StoringBus

LISTS = "lists"  # the topic of changed lists


def _stores(bus: "Bus") -> "TypeGuard[StoringBus]":
    """Whether a bus keeps its messages; that of most servers does not."""
    if isinstance(bus, MemoryBus):
        return False
    from mcpearl.stores.bus import StoringBus

    return isinstance(bus, StoringBus)


class Broadcast:
    """Tells subscribers of all processes.

    Args:
        subscriptions: The subscribers of this process.
        bus: Returns the bus to the other processes.
    """

    def __init__(self, subscriptions: Subscriptions, bus: "Callable[[], Bus]") -> None:
        self._subscriptions = subscriptions
        self._bus = bus

    def hear(self) -> Callable[[], None]:
        """Listen to what other processes publish; return a function that ends this."""
        bus, missed = self._bus(), self._subscriptions.all_changed
        with ExitStack() as stack:
            if _stores(bus):
                stack.callback(bus.follow(RESOURCE_UPDATED, self._updated_at, missed))
                stack.callback(bus.follow(LISTS, self._changed_at, lambda: None))
            else:
                stack.callback(bus.subscribe(RESOURCE_UPDATED, self._updated, missed))
                stack.callback(bus.subscribe(LISTS, self._changed))
            return stack.pop_all().close
        raise AssertionError

    def resource_updated(self, uri: str) -> None:
        """Tell every subscriber of a resource."""
        self._subscriptions.resource_updated(uri, self._reach())
        self._bus().publish(RESOURCE_UPDATED, uri.encode())

    def list_changed(self, kind: str) -> None:
        """Tell every subscriber of a kind of list."""
        self._subscriptions.list_changed(kind, self._reach())
        self._bus().publish(LISTS, kind.encode())

    def _reach(self) -> Spread:
        """Return which subscribers are notified at once of what this process publishes."""
        return "live" if _stores(self._bus()) else "all"

    def _updated(self, uri: bytes) -> None:
        self._subscriptions.resource_updated(uri.decode(errors="replace"))

    def _changed(self, kind: bytes) -> None:
        if (name := kind.decode(errors="replace")) in LIST_CHANGED:
            self._subscriptions.list_changed(name)

    def _updated_at(self, stored: "Stored") -> None:
        uri = stored.message.decode(errors="replace")
        reach: Spread = "kept" if stored.own else "all"
        self._subscriptions.resource_updated(uri, reach, stored.position)

    def _changed_at(self, stored: "Stored") -> None:
        kind = stored.message.decode(errors="replace")
        if kind in LIST_CHANGED:
            reach: Spread = "kept" if stored.own else "all"
            self._subscriptions.list_changed(kind, reach, stored.position)
