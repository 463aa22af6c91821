"""A dictionary with a bound on what it holds: the oldest entries make room for new ones."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")
_OVERHEAD = 64  # weight of an entry in addition to its key and value


class BoundedDict(Generic[V]):
    """Values by name. The caller states the weight of each; their total stays within the bound.

    >>> schemas = BoundedDict[bytes](32 << 20)
    >>> schemas.put("add", schema, len(schema))
    """

    __slots__ = ("_max_weight", "_values", "_weights", "get", "weight")

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._values: dict[str, V] = {}
        self._weights: dict[str, int] = {}
        self.weight = 0
        """The weight of all entries together."""
        self.get: Callable[[str], V | None] = self._values.get
        """Return a value, or None when there is none. It is the dictionary's own method, for speed."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def put(self, key: str, value: V, weight: int) -> None:
        """Keep a value as the newest, and drop the oldest until all fit.

        A value that is over the bound by itself is not kept.
        """
        self.pop(key)
        weight += len(key) + _OVERHEAD
        if weight > self._max_weight:
            return
        self._values[key] = value
        self._weights[key] = weight
        self.weight += weight
        while self.weight > self._max_weight:
            self.pop(next(iter(self._values)))

    def pop(self, key: str) -> V | None:
        """Remove a value and return it, or None when there is none."""
        self.weight -= self._weights.pop(key, 0)
        return self._values.pop(key, None)

    def clear(self) -> None:
        """Remove everything."""
        self._values.clear()
        self._weights.clear()
        self.weight = 0
