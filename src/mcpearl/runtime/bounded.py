"""A dictionary with a bound on what it holds: the oldest entries make room for new ones."""

from typing import Generic, TypeVar

V = TypeVar("V")
_OVERHEAD = 64  # what an entry weighs beside its key and value


class BoundedDict(Generic[V]):
    """Values by name. An entry weighs what its caller says; together they stay within the bound.

    >>> schemas = BoundedDict[bytes](32 << 20)
    >>> schemas.put("add", schema, len(schema))
    """

    __slots__ = ("_entries", "_max_weight", "weight")

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._entries: dict[str, tuple[V, int]] = {}
        self.weight = 0
        """Of all entries together."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: str) -> V | None:
        """Return a value, or None when there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: str, value: V, weight: int) -> None:
        """Keep a value as the newest; the oldest go until all fit. One that never fits is left out."""
        self.pop(key)
        weight += len(key) + _OVERHEAD
        if weight > self._max_weight:
            return
        self._entries[key] = value, weight
        self.weight += weight
        while self.weight > self._max_weight:
            self.pop(next(iter(self._entries)))

    def pop(self, key: str) -> V | None:
        """Remove a value and return it, or None when there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.weight -= entry[1]
        return entry[0]

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self.weight = 0
