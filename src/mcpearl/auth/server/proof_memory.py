"""Remembers used DPoP proofs for as long as they could be used again.

Forgetting a proof early would allow a replay, so at the limit further proofs are refused, and a single
key may take at most a quarter of the space. A proof is forgotten once it has expired by the wall clock
and by the monotonic clock, since the wall clock may be set forward or back. `shared_proofs` does the same
for several workers.
"""

from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol

from mcpearl.auth.server.verifier import TokenRefused, VerifierUnavailable
from mcpearl.runtime import clock


class ProofMemory(Protocol):
    """Remembers used proofs."""

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof until a time. Raises `TokenRefused` if it was used before."""
        ...


class OwnProofs:
    """The proofs used in one process."""

    def __init__(self, max_remembered: int) -> None:
        self._max = max_remembered
        self._used: set[bytes] = set()
        self._counts: dict[str, int] = {}  # by key
        # A heap: when each may be forgotten, by the monotonic clock and by the wall clock.
        self._ends: list[tuple[float, float, bytes, str]] = []

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof until a time. Raises `TokenRefused` if it was used before."""
        now, wall = clock.monotonic(), clock.now()
        self._forget(now, wall)
        proof = blake2b(f"{thumbprint} {id}".encode(), digest_size=16).digest()
        if proof in self._used:
            raise used_before()
        count = self._counts.get(thumbprint, 0)
        if len(self._used) >= self._max or count >= self._max // 4:
            raise too_many()
        self._used.add(proof)
        self._counts[thumbprint] = count + 1
        heappush(self._ends, (now + max(0.0, until - wall), until, proof, thumbprint))

    def _forget(self, now: float, wall: float) -> None:
        while self._ends and self._ends[0][0] < now:
            _, until, proof, thumbprint = heappop(self._ends)
            if until >= wall:  # the wall clock was set back
                heappush(self._ends, (now + until - wall, until, proof, thumbprint))
                continue
            self._used.discard(proof)
            self._counts[thumbprint] -= 1
            if not self._counts[thumbprint]:
                del self._counts[thumbprint]


def used_before() -> TokenRefused:
    """Return the error for a proof that was used before."""
    return TokenRefused("the DPoP proof was used before")


def too_many() -> VerifierUnavailable:
    """Return the error for when there is no space to remember another proof."""
    return VerifierUnavailable("too many DPoP proofs in a short time")
