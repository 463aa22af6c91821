"""Results a modern server said may be kept, until their time is over or a change is announced.

A cache belongs to one client unless it is shared on purpose; then only results with the scope
`public` cross from one client to another.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from mcpearl.runtime import clock as source
from mcpearl.types.base import CacheableResult

# What a notification makes stale.
_STALE = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

Key = tuple[str, str, str, str]  # server, method, what was asked for, whose answer it is
_LONGEST = 10 * 365 * 86_400_000  # milliseconds; a server may say any number


class _Kept(Struct):
    result: CacheableResult
    expires: float


class ResponseCache:
    """Bounded; the entry that was not used for longest goes first.

    >>> cache = ResponseCache(); a = Client(url, cache=cache); b = Client(url, cache=cache)
    """

    def __init__(self, max_entries: int = 1024, clock: Callable[[], float] | None = None) -> None:
        self._max = max_entries
        self._clock = clock or (lambda: source.monotonic())
        self._entries: OrderedDict[Key, _Kept] = OrderedDict()
        self.hits = 0
        self.changes = 0  # how often something was said to be stale

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, server: str, method: str, asked: str, owner: str) -> CacheableResult | None:
        """Give a result that is still fresh, for this owner or for everyone."""
        for whose in (owner, ""):
            key = (server, method, asked, whose)
            kept = self._entries.get(key)
            if kept is None:
                continue
            if kept.expires <= self._clock():
                del self._entries[key]
                continue
            self._entries.move_to_end(key)
            self.hits += 1
            return kept.result
        return None

    def put(
        self, server: str, method: str, asked: str, owner: str, result: CacheableResult
    ) -> None:
        """Keep a result as long as it says, if it says so."""
        if result.ttl_ms is None or result.ttl_ms <= 0:
            return
        whose = "" if result.cache_scope == "public" else owner
        expires = self._clock() + min(result.ttl_ms, _LONGEST) / 1000
        key = (server, method, asked, whose)
        self._entries[key] = _Kept(result, expires)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max:
            self._entries.popitem(last=False)

    def changed(self, server: str, notification: str, uri: str | None = None) -> None:
        """Drop what a notification of a server says is no longer so."""
        if notification == "notifications/resources/updated":
            self._drop(lambda key: key[:3] == (server, "resources/read", uri))
        elif notification in _STALE:
            self._drop(lambda key: key[0] == server and key[1] in _STALE[notification])

    def clear(self, method: str | None = None, server: str | None = None) -> None:
        """Drop everything, or everything of one method, of one server."""
        self._drop(lambda key: method in (None, key[1]) and server in (None, key[0]))

    def _drop(self, is_stale: Callable[[Key], Any]) -> None:
        self.changes += 1
        for key in [key for key in self._entries if is_stale(key)]:
            del self._entries[key]
