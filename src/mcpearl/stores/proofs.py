"""Used DPoP proofs, shared by all processes that accept the same tokens."""

from typing import Protocol


class ProofStore(Protocol):
    """Remembers used proofs across machines."""

    async def note(self, thumbprint: str, id: str, seconds: float) -> bool:
        """Remember a proof; return False if it was used before.

        Args:
            thumbprint: The thumbprint of the key that signed the proof.
            id: The id of the proof.
            seconds: How long to remember it: for as long as it could be used again.

        Raises:
            StoreUnavailable: The proof could not be stored, and must not be accepted.
        """
        ...
