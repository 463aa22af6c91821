"""Contents of tasks at rest: sealed with the server's keys, and bound to their task."""

from mcpearl.protocol.seal import KeyRing, Unsealable
from mcpearl.runtime import clock
from mcpearl.stores.errors import Unreadable


class Vault:
    """Seals what a store keeps of a task.

    Args:
        keys: Keys of 32 bytes each; the first one seals, all of them open.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = KeyRing(keys, clock.random_bytes)

    def seal(self, id: str, data: bytes) -> bytes:
        """Return contents of a task as they are stored."""
        return self._keys.encrypt(data, id.encode())

    def open(self, id: str, data: bytes) -> bytes:
        """Return contents of a task. Raises `Unreadable` if no key opens them."""
        try:
            return self._keys.decrypt(data, id.encode())
        except Unsealable as error:
            raise Unreadable(
                f"task {id} cannot be read: it {error}; give the server the `state_keys` it had"
            ) from None
