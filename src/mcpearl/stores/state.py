"""State that handlers keep for a session or a principal, beyond one call.

A store keeps small JSON values by owner and key. It is bounded: the bytes of one owner are limited, a
store in memory also limits their total, and state that was not used for a long time is dropped.
"""

from typing import Protocol


class StateStore(Protocol):
    """Keeps values by owner and key. Any method may raise `StoreUnavailable`."""

    async def get(self, owner: str, key: str) -> bytes | None:
        """Return a value, or None when there is none.

        Args:
            owner: The session or principal.
            key: The name of the value.
        """
        ...

    async def set(self, owner: str, key: str, value: bytes) -> None:
        """Keep a value; raises `LimitReached` when the owner has no room for it.

        Args:
            owner: The session or principal.
            key: The name of the value.
            value: The value, as JSON.
        """
        ...

    async def delete(self, owner: str, key: str) -> bool:
        """Remove a value; return False when there was none.

        Args:
            owner: The session or principal.
            key: The name of the value.
        """
        ...

    async def keys(self, owner: str) -> list[str]:
        """Return the keys of an owner's values.

        Args:
            owner: The session or principal.
        """
        ...

    async def clear(self, owner: str) -> None:
        """Remove all values of an owner.

        Args:
            owner: The session or principal.
        """
        ...
