"""The proofs that were used, as long as they could be used again: of one process, or of several.

To forget one early would let it be used again, so at the bound no more are taken. No one key can take
all the room.
"""

from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol

from mcpearl.auth.server.verifier import TokenRefused, VerifierUnavailable
from mcpearl.runtime import clock


class ProofMemory(Protocol):
    """Remembers proofs."""

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof of a key until a time, or raise `TokenRefused` when it is known."""
        ...


class OwnProofs:
    """The memory of one process."""

    def __init__(self, max_remembered: int) -> None:
        self._max = max_remembered
        self._used: set[bytes] = set()
        self._counts: dict[str, int] = {}  # by key
        self._ends: list[tuple[float, bytes, str]] = []  # a heap: when each may be forgotten

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof of a key until a time, or raise `TokenRefused` when it is known."""
        self._forget(clock.now())
        proof = blake2b(f"{thumbprint} {id}".encode(), digest_size=16).digest()
        if proof in self._used:
            raise used_before()
        count = self._counts.get(thumbprint, 0)
        if len(self._used) >= self._max or count >= self._max // 4:
            raise too_many()
        self._used.add(proof)
        self._counts[thumbprint] = count + 1
        heappush(self._ends, (until, proof, thumbprint))

    def _forget(self, now: float) -> None:
        while self._ends and self._ends[0][0] < now:
            _, proof, thumbprint = heappop(self._ends)
            self._used.discard(proof)
            self._counts[thumbprint] -= 1
            if not self._counts[thumbprint]:
                del self._counts[thumbprint]


def used_before() -> TokenRefused:
    """Refuse a proof that is known."""
    return TokenRefused("the DPoP proof was used before")


def too_many() -> VerifierUnavailable:
    """Refuse for now: there is no room to remember another one."""
    return VerifierUnavailable("too many DPoP proofs in a short time")
