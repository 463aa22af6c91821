"""A queue that several peers share: each has its turn, however many items another one has waiting."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

_Item = TypeVar("_Item", bound=Hashable)


class Turns(Generic[_Item]):
    """What waits, by peer. Peers take turns; the items of one peer are taken in order.

    Where it is said what each peer has in hand already, the one with least comes first.

    None is the peer of all items whose peers cannot be told apart.
    """

    __slots__ = ("_again", "_by_peer", "count")

    def __init__(self) -> None:
        self._again: OrderedDict[_Item, None] = OrderedDict()  # those that had their turn already
        self._by_peer: OrderedDict[Hashable, OrderedDict[_Item, None]] = OrderedDict()
        self.count = 0
        """How many items wait."""

    @property
    def peers(self) -> int:
        """How many peers have items that wait."""
        return len(self._by_peer)

    def add(self, item: _Item, peer: Hashable) -> None:
        """Have an item wait for the turn of its peer."""
        items = self._by_peer.get(peer)
        if items is None:
            items = self._by_peer[peer] = OrderedDict()
        items[item] = None
        self.count += 1

    def put_first(self, item: _Item) -> None:
        """Have an item wait in front of all others."""
        self._again[item] = None
        self._again.move_to_end(item, last=False)
        self.count += 1

    def take(self, held: Mapping[Hashable, int] | None = None) -> _Item | None:
        """Return the item whose turn it is, and forget it; None when none waits.

        Args:
            held: How much the peers have in hand; those that are not in it have nothing. None to take
                turns whatever they have.
        """
        if not self.count:
            return None
        self.count -= 1
        if self._again:
            return self._again.popitem(last=False)[0]
        peer = next(iter(self._by_peer)) if not held else self._with_least(held)
        items = self._by_peer.pop(peer)
        item, _ = items.popitem(last=False)
        if items:
            self._by_peer[peer] = items
        return item

    def _with_least(self, held: Mapping[Hashable, int]) -> Hashable:
        """Return the first peer of those with least in hand."""
        found, least = None, -1
        for peer in self._by_peer:  # at most one more than there are in `held`
            holds = held.get(peer, 0)
            if not holds:
                return peer
            if least < 0 or holds < least:
                found, least = peer, holds
        return found

    def remove(self, item: _Item, peer: Hashable) -> None:
        """Forget an item, if it waits."""
        if item in self._again:
            del self._again[item]
            self.count -= 1
            return
        items = self._by_peer.get(peer)
        if items is not None and item in items:
            del items[item]
            self.count -= 1
            if not items:
                del self._by_peer[peer]

    def make_room(self, peer: Hashable) -> _Item | None:
        """Take the last item of the peer with most, for one of a peer that has less than its share.

        Peers have equal shares of what waits. None when `peer` has its share already.
        """
        own = self._by_peer.get(peer)
        peers = len(self._by_peer) + (own is None)
        if (0 if own is None else len(own)) >= (self.count - len(self._again)) // peers:
            return None
        largest = max(self._by_peer, key=lambda each: len(self._by_peer[each]))
        item = next(reversed(self._by_peer[largest]))
        self.remove(item, largest)
        return item
