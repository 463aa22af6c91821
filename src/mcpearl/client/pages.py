"""Lists that come in pages: getting one page, cached or from the server, and iterating over all."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

from mcpearl.client.cache import CacheView
from mcpearl.client.requests import Requests
from mcpearl.protocol.errors import InvalidResult, McpError
from mcpearl.types.pages import PaginatedRequestParams, PaginatedResult


class Page(Protocol):
    """One page of a list."""

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
            cache.clear(method)  # the list that the cursor belongs to may have changed
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


class PagedItems(AsyncIterator[T]):
    """All items of a list that comes in pages: iterate over it, or await it for a list.

    >>> async for tool in client.tools():
    ...     print(tool.name)
    >>> tools = await client.tools()

    Args:
        list_page: Returns the page at a cursor; the first page for None.
        items: Returns the items of a page.
    """

    def __init__(
        self, list_page: Callable[[str | None], Awaitable[Q]], items: Callable[[Q], list[T]]
    ) -> None:
        self._items = _walk(list_page, items)

    def __anext__(self) -> Awaitable[T]:
        return self._items.__anext__()

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._collect().__await__()

    async def _collect(self) -> list[T]:
        return [item async for item in self._items]

    async def aclose(self) -> None:
        """End the iteration early."""
        await self._items.aclose()


async def _walk(
    list_page: Callable[[str | None], Awaitable[Q]], items: Callable[[Q], list[T]]
) -> AsyncGenerator[T, None]:
    async for page in pages(list_page):
        for item in items(page):
            yield item
