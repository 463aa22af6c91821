"""Used DPoP proofs in Redis: a proof that was used at one machine is refused by all."""

from hashlib import blake2b
from math import ceil

from mcpearl.stores.redis_link import RedisLink


class RedisProofStore:
    """A `ProofStore` for a whole deployment.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    async def note(self, thumbprint: str, id: str, seconds: float) -> bool:
        """Remember a proof until it has expired."""
        proof = blake2b(f"{thumbprint} {id}".encode(), digest_size=16).hexdigest()
        lasting = max(1, ceil(seconds * 1000))
        key = self._link.key_of(proof, "proof")
        return await self._link.send("SET", key, 1, "NX", "PX", lasting) is not None
