"""Pages of a list, with cursors that only the list they came from accepts.

Entries have increasing numbers, so a cursor stays valid when entries are added or removed between
pages. All workers of a server make the same cursors.
"""

import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Container
from operator import itemgetter
from typing import Generic, TypeVar

from mcpearl.protocol.errors import McpError
from mcpearl.types.jsonrpc import INVALID_PARAMS

T = TypeVar("T")
_CHECK_BYTES = 6


class Registered(Generic[T]):
    """The entries of one kind, by key, in the order they were added."""

    def __init__(self, kind: str, scope: str, page_size: int) -> None:
        self.kind = kind
        self.page_size = page_size
        self._scope = f"{scope}/{kind}".encode()
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}  # of these keys, in order; they only grow
        #: Find an entry by its key; None when there is none.
        self.get = self._entries.get
        self._next = 1
        self._adding = threading.Lock()  # a plain function may add entries from its thread

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @property
    def ever_used(self) -> bool:
        """Whether there is or was an entry."""
        return self._next > 1

    def add(self, key: str, entry: T) -> None:
        """Add an entry at the end, or replace the entry with the same key in place."""
        with self._adding:
            if key not in self._numbers:
                self._numbers[key], self._next = self._next, self._next + 1
            self._entries[key] = entry

    def replace(self, key: str, entry: T, by: T) -> None:
        """Replace an entry in place, if it is still the one with this key."""
        with self._adding:
            if self._entries.get(key) is entry:
                self._entries[key] = by

    def remove(self, key: str) -> bool:
        """Remove an entry. Return False if there was none."""
        with self._adding:
            self._numbers.pop(key, None)
            return self._entries.pop(key, None) is not None

    def keys_but(self, others: Container[str]) -> list[str]:
        """Return the keys that are not among others."""
        return [key for key in self._entries if key not in others]

    def values(self) -> list[T]:
        """Return all entries, in order."""
        return list(self._entries.values())

    def page(
        self, cursor: str | None, shown: Callable[[T], bool] | None = None
    ) -> tuple[list[T], str | None]:
        """Return one page of the entries for which `shown` is true, and the next cursor."""
        with self._adding:
            numbered = list(zip(self._numbers.values(), self._entries.values(), strict=True))
        if shown is not None:
            numbered = [pair for pair in numbered if shown(pair[1])]
        start = 0
        if cursor is not None:
            from bisect import bisect_right  # as in `_check`

            start = bisect_right(numbered, self._open(cursor), key=itemgetter(0))
        end = start + self.page_size
        following = self._seal(numbered[end - 1][0]) if end < len(numbered) else None
        return [entry for _, entry in numbered[start:end]], following

    def _seal(self, number: int) -> str:
        position = str(number).encode()
        return urlsafe_b64encode(self._check(position) + position).rstrip(b"=").decode()

    def _open(self, cursor: str) -> int:
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            number = int(raw[_CHECK_BYTES:])
            if self._seal(number) == cursor:
                return number
        except ValueError:
            pass
        shown = cursor if len(cursor) <= 64 else cursor[:64] + "…"
        raise McpError(
            INVALID_PARAMS,
            f"This cursor does not come from `{self.kind}/list` of this server",
            {"cursor": shown},
        )

    def _check(self, position: bytes) -> bytes:
        from hashlib import blake2b  # only lists of several pages need it

        secret = blake2b(self._scope).digest()
        return blake2b(position, key=secret, digest_size=_CHECK_BYTES).digest()
