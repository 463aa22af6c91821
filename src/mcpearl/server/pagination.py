"""Pages of a list, and cursors that only the list they came from accepts.

Entries carry a growing number, so a cursor stays right when entries come and go between pages. It
is the same in every worker of the same server.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from hashlib import blake2b
from typing import Generic, TypeVar

from mcpearl.protocol.errors import McpError
from mcpearl.types.jsonrpc import INVALID_PARAMS

T = TypeVar("T")
_CHECK_BYTES = 6


class Listing(Generic[T]):
    """The entries of one kind by key, in the order they were added."""

    def __init__(self, kind: str, scope: str, page_size: int) -> None:
        self.kind = kind
        self.page_size = page_size
        self._secret = f"{scope}/{kind}".encode()
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: str) -> T | None:
        """Find an entry."""
        return self._entries.get(key)

    def add(self, key: str, entry: T) -> None:
        """Add an entry at the end, or replace the one that has its key, in place."""
        if key not in self._entries:
            self._numbers[key] = self._next
            self._next += 1
        self._entries[key] = entry

    def remove(self, key: str) -> bool:
        """Take an entry out; False when there was none."""
        if self._entries.pop(key, None) is None:
            return False
        del self._numbers[key]
        return True

    def values(self) -> list[T]:
        """All entries, in order."""
        return list(self._entries.values())

    def page(self, cursor: str | None) -> tuple[list[T], str | None]:
        """Give one page, and the cursor of the page after it if there is one."""
        entries = list(self._entries.values())
        start = 0
        numbers = list(self._numbers.values())
        if cursor is not None:
            start = bisect_right(numbers, self._open(cursor))
        end = start + self.page_size
        following = self._seal(numbers[end - 1]) if end < len(entries) else None
        return entries[start:end], following

    def _seal(self, number: int) -> str:
        position = str(number).encode()
        return urlsafe_b64encode(self._check(position) + position).rstrip(b"=").decode()

    def _open(self, cursor: str) -> int:
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            check, position = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
            if check == self._check(position):
                return int(position)
        except ValueError:
            pass
        shown = cursor if len(cursor) <= 64 else cursor[:64] + "…"
        raise McpError(
            INVALID_PARAMS,
            f"This cursor does not come from `{self.kind}/list` of this server",
            {"cursor": shown},
        )

    def _check(self, position: bytes) -> bytes:
        return blake2b(position, key=self._secret[:64], digest_size=_CHECK_BYTES).digest()
