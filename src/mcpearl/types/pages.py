"""Lists that come in pages, and results that may be cached."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from mcpearl.types.base import CacheScope, Cursor, RequestParams, Result

T = TypeVar("T")


class Listing(Generic[T]):
    """A result that is a sequence of things: it can be iterated, counted and indexed."""

    __slots__ = ()

    def _items(self) -> list[T]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def __getitem__(self, index: int) -> T:
        return self._items()[index]

    def __bool__(self) -> bool:
        return True  # a result is there, even if it is empty


class CacheableResult(Result, kw_only=True):
    """A result with caching hints: for how long (milliseconds) and for whom it may be cached."""

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


class PaginatedResult(CacheableResult, kw_only=True):
    """One page of a list; `next_cursor` requests the page after it."""

    next_cursor: Cursor | None = None


class PaginatedRequestParams(RequestParams, kw_only=True):
    """Requests a page of a list: the first one, or the one after a cursor."""

    cursor: Cursor | None = None
