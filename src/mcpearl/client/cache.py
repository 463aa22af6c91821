"""Caches results that a modern server allows clients to keep, until they expire or a change is announced.

A cache belongs to one client unless the application shares it; then only results with the scope
`public` are shared between clients.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

from msgspec import Struct

from mcpearl.runtime import clock as source
from mcpearl.types.pages import CacheableResult

C = TypeVar("C", bound=CacheableResult)

# The methods whose results a notification makes stale.
_STALE = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

CacheKey = tuple[str, str, str, str]  # server, method, what was asked for, owner of the result
_LONGEST = 10 * 365 * 86_400_000  # milliseconds; caps `ttl_ms`, which may be any number


class _CachedResult(Struct):
    result: CacheableResult
    expires: float


class ResponseCache:
    """A bounded cache of results; the least recently used entry is dropped first.

    >>> cache = ResponseCache(); a = Client(url, cache=cache); b = Client(url, cache=cache)

    Args:
        max_entries: results kept at most.
        clock: returns the current time in seconds; results expire by it.
    """

    def __init__(self, max_entries: int = 1024, clock: Callable[[], float] | None = None) -> None:
        self._max = max_entries
        self._clock = clock or (lambda: source.monotonic())
        self._entries: OrderedDict[CacheKey, _CachedResult] = OrderedDict()
        self.hits = 0
        """Number of lookups that found a result."""
        self.changes = 0
        """Number of times that stale entries were dropped."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, server: str, method: str, asked: str, owner: str) -> CacheableResult | None:
        """Return a result that is still fresh, or None.

        Args:
            server: identity of the server.
            method: method of the request.
            asked: what was asked for, such as a URI or a cursor.
            owner: the client; results with the scope `public` are found by every client.
        """
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
        """Keep a result for the time its `ttl_ms` allows.

        Args:
            server: identity of the server.
            method: method of the request.
            asked: what was asked for, such as a URI or a cursor.
            owner: the client, for results with the scope `private`.
            result: the server's result.
        """
        if result.ttl_ms is None or result.ttl_ms <= 0:
            return
        whose = "" if result.cache_scope == "public" else owner
        expires = self._clock() + min(result.ttl_ms, _LONGEST) / 1000
        key = (server, method, asked, whose)
        self._entries[key] = _CachedResult(result, expires)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max:
            self._entries.popitem(last=False)

    def changed(self, server: str, notification: str, uri: str | None = None) -> None:
        """Drop the results that a notification of a server makes stale.

        Args:
            server: identity of the server.
            notification: method of the notification.
            uri: the resource that changed, in `notifications/resources/updated`.
        """
        if notification == "notifications/resources/updated":
            self._drop(lambda key: key[:3] == (server, "resources/read", uri))
        elif notification in _STALE:
            self._drop(lambda key: key[0] == server and key[1] in _STALE[notification])

    def clear(self, method: str | None = None, server: str | None = None) -> None:
        """Drop entries.

        Args:
            method: drop results of this method only.
            server: drop results of this server only.
        """
        self._drop(lambda key: method in (None, key[1]) and server in (None, key[0]))

    def _drop(self, is_stale: Callable[[CacheKey], Any]) -> None:
        self.changes += 1
        for key in [key for key in self._entries if is_stale(key)]:
            del self._entries[key]


class CacheView:
    """One client's view of a cache: results of its server, private to it or public."""

    def __init__(self, cache: ResponseCache, server: str) -> None:
        self._cache = cache
        self._server = server
        self._owner = source.token(16)  # keeps private results apart in a shared cache

    @property
    def changes(self) -> int:
        """Number of times that stale entries were dropped; read it before a request, for `put`."""
        return self._cache.changes

    def get(self, method: str, asked: str, kind: type[C]) -> C | None:
        """Return a result that is still fresh, or None."""
        if not len(self._cache):
            return None
        return cast("C | None", self._cache.get(self._server, method, asked, self._owner))

    def put(self, method: str, asked: str, result: CacheableResult, asked_at: int) -> None:
        """Keep a result, unless entries were dropped since `asked_at`: it may be stale as well."""
        if result.ttl_ms is not None and asked_at == self._cache.changes:
            self._cache.put(self._server, method, asked, self._owner, result)

    def changed(self, notification: str, uri: str | None) -> None:
        """Drop the results that a notification makes stale."""
        self._cache.changed(self._server, notification, uri)

    def clear(self, method: str | None = None) -> None:
        """Drop all results of this server, or those of one method."""
        self._cache.clear(method, self._server)
