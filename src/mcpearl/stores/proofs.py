"""Used DPoP proofs, for all processes that accept the same tokens."""

from typing import Protocol


class ProofStore(Protocol):
    """Remembers used proofs beyond one machine."""

    async def note(self, thumbprint: str, id: str, seconds: float) -> bool:
        """Remember a proof; return False if it was used before.

        Args:
            thumbprint: The key it was made with.
            id: Its own id.
            seconds: For how long it could be used again.

        Raises:
            StoreUnavailable: It could not be stored; the proof must not be accepted.
        """
        ...
