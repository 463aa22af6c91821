"""Results that may be kept, and lists that come in pages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, cast

from mcpearl.client.cache import ResponseCache
from mcpearl.client.requests import Requests
from mcpearl.protocol.errors import InvalidResult, McpError
from mcpearl.runtime import clock
from mcpearl.types.base import CacheableResult, PaginatedRequestParams, PaginatedResult

C = TypeVar("C", bound=CacheableResult)
P = TypeVar("P", bound=PaginatedResult)
T = TypeVar("T")
MAX_PAGES = 10_000


class CacheView:
    """One client's view of a cache: the results of its server, its own and everybody's."""

    def __init__(self, cache: ResponseCache, server: str) -> None:
        self._cache = cache
        self._server = server
        self._owner = clock.token(16)  # whose private results are whose, in a shared cache

    @property
    def changes(self) -> int:
        """How often something was said to be stale; for `put`."""
        return self._cache.changes

    def get(self, method: str, asked: str, kind: type[C]) -> C | None:
        """Give a result that is still fresh."""
        if not len(self._cache):
            return None
        return cast("C | None", self._cache.get(self._server, method, asked, self._owner))

    def put(self, method: str, asked: str, result: CacheableResult, asked_at: int) -> None:
        """Keep a result, unless what was told to be stale while it was on its way may be just that."""
        if result.ttl_ms is not None and asked_at == self._cache.changes:
            self._cache.put(self._server, method, asked, self._owner, result)

    def changed(self, notification: str, uri: str | None) -> None:
        """Drop what a notification says is no longer so."""
        self._cache.changed(self._server, notification, uri)

    def clear(self, method: str | None = None) -> None:
        """Drop everything of this server, or of one method."""
        self._cache.clear(method, self._server)


async def get_page(
    asking: Requests, kept: CacheView, method: str, cursor: str | None, kind: type[P]
) -> P:
    """Get one page of a list, kept or asked for."""
    asked = "" if cursor is None else f"cursor:{cursor}"
    page = kept.get(method, asked, kind)
    if page is not None:
        return page
    asked_at = kept.changes
    try:
        page = await asking.ask(method, PaginatedRequestParams(cursor=cursor), kind)
    except McpError:
        if cursor is not None:
            kept.clear(method)  # the list behind the cursor is no longer the same
        raise
    kept.put(method, asked, page, asked_at)
    return page


async def walk(
    list_page: Callable[[str | None], Awaitable[P]], items: Callable[[P], list[T]]
) -> AsyncIterator[T]:
    """Give the items of all pages, one after the other."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await list_page(cursor)
        for item in items(page):
            yield item
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
        if cursor in seen:
            raise InvalidResult("the server gave the same cursor again; the list would never end")
        seen.add(cursor)
    raise InvalidResult(f"the list has more than {MAX_PAGES} pages")
