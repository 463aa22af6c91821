"""State of sessions and principals in the memory of this process."""

from collections import OrderedDict

from mcpearl.protocol.errors import LimitReached
from mcpearl.runtime import clock


class _Owned:
    """The values of one owner."""

    __slots__ = ("size", "used", "values")

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.size = 0
        self.used = 0.0


class MemoryStateStore:
    """A `StateStore` that ends with the process. Workers do not share it.

    Args:
        max_owner: Bytes that one session or principal may hold.
        max_total: Bytes that all of them may hold. Beyond that, the state of the least recently used
            owners is dropped.
        idle_timeout: Seconds after which the unused state of an owner is dropped.
    """

    def __init__(
        self,
        *,
        max_owner: int = 1024 * 1024,
        max_total: int = 256 * 1024 * 1024,
        idle_timeout: float = 3600.0,
    ) -> None:
        self._max_owner = max_owner
        self._max_total = max_total
        self._idle = idle_timeout
        self._owned: OrderedDict[str, _Owned] = OrderedDict()  # least recently used first
        self._total = 0

    def __len__(self) -> int:
        """Return how many owners hold something."""
        return len(self._owned)

    async def get(self, owner: str, key: str) -> bytes | None:
        """Return a value, or None when there is none.

        Args:
            owner: The session or principal.
            key: The name of the value.
        """
        owned = self._find(owner)
        return None if owned is None else owned.values.get(key)

    async def set(self, owner: str, key: str, value: bytes) -> None:
        """Keep a value; raises `LimitReached` when the owner has no room for it.

        Args:
            owner: The session or principal.
            key: The name of the value.
            value: The value, as JSON.
        """
        owned = self._find(owner) or _Owned()
        grown = _size(key, value) - _size(key, owned.values.get(key))
        if owned.size + grown > self._max_owner:
            raise LimitReached(
                f"`{key[:64]}` cannot be kept: the session would hold {owned.size + grown} bytes, "
                f"over the {self._max_owner} of `MemoryStateStore(max_owner=…)`"
            )
        owned.values[key] = value
        owned.size += grown
        self._total += grown
        owned.used = clock.monotonic()
        self._owned[owner] = owned
        self._owned.move_to_end(owner)
        while self._total > self._max_total and len(self._owned) > 1:
            self._forget(next(iter(self._owned)))

    async def delete(self, owner: str, key: str) -> bool:
        """Remove a value; return False when there was none.

        Args:
            owner: The session or principal.
            key: The name of the value.
        """
        owned = self._find(owner)
        if owned is None or key not in owned.values:
            return False
        gone = _size(key, owned.values.pop(key))
        owned.size -= gone
        self._total -= gone
        if not owned.values:
            self._forget(owner)
        return True

    async def keys(self, owner: str) -> list[str]:
        """Return the keys of an owner's values.

        Args:
            owner: The session or principal.
        """
        owned = self._find(owner)
        return [] if owned is None else list(owned.values)

    async def clear(self, owner: str) -> None:
        """Remove all values of an owner.

        Args:
            owner: The session or principal.
        """
        if owner in self._owned:
            self._forget(owner)

    def _find(self, owner: str) -> _Owned | None:
        now = clock.monotonic()
        while self._owned:
            first, oldest = next(iter(self._owned.items()))
            if now - oldest.used <= self._idle:
                break
            self._forget(first)
        owned = self._owned.get(owner)
        if owned is not None:
            owned.used = now
            self._owned.move_to_end(owner)
        return owned

    def _forget(self, owner: str) -> None:
        self._total -= self._owned.pop(owner).size


def _size(key: str, value: bytes | None) -> int:
    return 0 if value is None else len(key.encode(errors="replace")) + len(value) + _ENTRY


_ENTRY = 100  # approximate bytes of an entry in addition to its key and value
