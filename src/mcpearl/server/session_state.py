"""What handlers keep for a client beyond one call: `ctx.session`."""

from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.stores.state import StateStore

if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal


class SessionState:
    """Values by key, kept for the session of a client, or for its principal.

    They are values with a JSON form, in the server's `state_store`, which bounds them.

    >>> await ctx.session.set("cart", ["tea"])
    >>> cart = await ctx.session.get("cart", [])

    Args:
        store: Keeps the values.
        owner: The session or principal they belong to.
    """

    __slots__ = ("_owner", "_store")

    def __init__(self, store: StateStore, owner: str) -> None:
        self._store = store
        self._owner = owner

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` when there is none.

        Args:
            key: The name of the value.
            default: What to return instead.
        """
        raw = await self._store.get(self._owner, key)
        return default if raw is None else msgspec.json.decode(raw)

    async def set(self, key: str, value: Any) -> None:
        """Keep a value; raises `LimitReached` when there is no room for it.

        Args:
            key: The name of the value.
            value: Anything with a JSON form.
        """
        await self._store.set(self._owner, key, msgspec.json.encode(value))

    async def delete(self, key: str) -> bool:
        """Remove a value; return False when there was none.

        Args:
            key: The name of the value.
        """
        return await self._store.delete(self._owner, key)

    async def keys(self) -> list[str]:
        """Return the keys of all values."""
        return await self._store.keys(self._owner)

    async def clear(self) -> None:
        """Remove every value."""
        await self._store.clear(self._owner)


def session_state(
    store: StateStore, session_id: str | None, principal: "Principal | None"
) -> SessionState:
    """Return the state of a client; raises `LookupError` if it has neither session nor principal."""
    if session_id is not None:
        return SessionState(store, f"session {session_id}")
    if principal is not None:
        owner = msgspec.json.encode(principal.identity).decode()
        return SessionState(store, f"principal {owner}")
    raise LookupError(
        "nothing can be kept for this client: it has no session, as in every request of 2026-07-28, "
        "and no principal; protect the server with `auth=`, or have the client send an id of its own"
    )
