"""Remembers facts about tokens for a while, by hash. The tokens themselves are not kept."""

from collections import OrderedDict
from typing import Generic, TypeVar

from mcpearl.runtime import clock

T = TypeVar("T")


class KnownTokens(Generic[T]):
    """Values by the hash of a token. At the limit, the oldest entry is dropped."""

    __slots__ = ("_found", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> T | None:
        """Return the value of a token, or None if it is unknown or has expired."""
        found = self._found.get(key)
        if found is None:
            return None
        if found[0] <= clock.monotonic():
            del self._found[key]
            return None
        return found[1]

    def put(self, key: bytes, value: T, until: float) -> None:
        """Remember a value until a time of the monotonic clock."""
        self._found.pop(key, None)
        if len(self._found) >= self._limit:
            self._found.popitem(last=False)
        self._found[key] = until, value
