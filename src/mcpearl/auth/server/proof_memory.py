"""The proofs that were used, as long as they could be used again: of one process, or of several.

To forget one early would let it be used again, so at the bound no more are taken. One key cannot take
all the room. A proof is forgotten when both clocks say so: the wall clock, by which it expires, may be
set forward and back.
"""

import time
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol

from mcpearl.auth.server.verifier import TokenRefused, VerifierUnavailable


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
        # A heap: when each may be forgotten, by the clock that only goes forward and the wall clock.
        self._ends: list[tuple[float, float, bytes, str]] = []

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof of a key until a time, or raise `TokenRefused` when it is known."""
        now, wall = time.monotonic(), time.time()
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
    """Refuse a proof that is known."""
    return TokenRefused("the DPoP proof was used before")


def too_many() -> VerifierUnavailable:
    """Refuse for now: there is no room to remember another one."""
    return VerifierUnavailable("too many DPoP proofs in a short time")
