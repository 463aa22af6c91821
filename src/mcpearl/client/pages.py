"""Lists that come in pages: one page, kept or asked for, and walking over all of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from mcpearl.client.cache import CacheView
from mcpearl.client.requests import Requests
from mcpearl.protocol.errors import InvalidResult, McpError
from mcpearl.types.base import PaginatedRequestParams, PaginatedResult


class Page(Protocol):
    """A part of a list."""

    next_cursor: str | None


P = TypeVar("P", bound=PaginatedResult)
Q = TypeVar("Q", bound=Page)
T = TypeVar("T")
MAX_PAGES = 10_000


async def get_page(
    requests: Requests, cache: CacheView, method: str, cursor: str | None, kind: type[P]
) -> P:
    """Return one page of a list, from the cache if it is there."""
    requests.need(method)
    key = "" if cursor is None else f"cursor:{cursor}"
    page = cache.get(method, key, kind)
    if page is not None:
        return page
    asked_at = cache.changes
    try:
        page = await requests.ask(method, PaginatedRequestParams(cursor=cursor), kind)
    except McpError:
        if cursor is not None:
            cache.clear(method)  # the list behind the cursor is no longer the same
        raise
    cache.put(method, key, page, asked_at)
    return page


async def pages(
    list_page: Callable[[str | None], Awaitable[Q]], max_pages: int | None = None
) -> AsyncIterator[Q]:
    """Yield the pages of a list, one after the other."""
    max_pages = MAX_PAGES if max_pages is None else max_pages
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(max_pages):
        page = await list_page(cursor)
        yield page
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
        if cursor in seen:
            raise InvalidResult("the server sent the same cursor again; the list would never end")
        seen.add(cursor)
    raise InvalidResult(f"the list has more than {max_pages} pages")


async def walk(
    list_page: Callable[[str | None], Awaitable[Q]], items: Callable[[Q], list[T]]
) -> AsyncIterator[T]:
    """Yield the items of all pages, one after the other."""
    async for page in pages(list_page):
        for item in items(page):
            yield item
