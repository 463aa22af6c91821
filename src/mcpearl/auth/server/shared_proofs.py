"""Remembers used DPoP proofs for several workers, in shared memory.

The table is made before the workers are forked and survives the death of any of them. It has a fixed
number of buckets. A keyed hash decides the bucket of a proof, so an attacker cannot fill a chosen one.
A worker locks the bucket it uses; the lock is released if its process dies.
"""

import fcntl
import mmap
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from mcpearl.auth.server.proof_memory import too_many, used_before
from mcpearl.auth.server.verifier import VerifierUnavailable
from mcpearl.runtime import clock

# The proof, its key, and when it may be forgotten: by the wall clock, and by the monotonic clock, which
# all processes of a machine share.
_SLOT = struct.Struct("=16s8sdd")
_BUCKET = 64  # slots that are looked through for each proof
_ROOM = 2  # slots for each proof to be remembered: buckets do not fill evenly
_OF_ONE_KEY = _BUCKET // 4
_TRIES = 250  # attempts to lock a bucket, which is usually locked for microseconds
_PAUSE = 0.001  # seconds between attempts


class SharedProofs:
    """The proofs used in all processes forked from the one that made this object."""

    def __init__(self, max_remembered: int) -> None:
        self._buckets = max(1, -(-_ROOM * max_remembered // _BUCKET))
        self._size = _BUCKET * _SLOT.size  # bytes of a bucket
        self._table = mmap.mmap(-1, self._buckets * self._size)  # memory is allocated as it is used
        self._locks = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the table)
        self._secret = clock.random_bytes(32)

    def note(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof until a time. Raises `TokenRefused` if it was used before."""
        proof = blake2b(f"{thumbprint} {id}".encode(), digest_size=16, key=self._secret).digest()
        key = blake2b(thumbprint.encode(), digest_size=8, key=self._secret).digest()
        bucket = int.from_bytes(proof[:8], "big") % self._buckets
        with self._locked(bucket):
            self._put(bucket * self._size, proof, key, until)

    def _put(self, start: int, proof: bytes, key: bytes, until: float) -> None:
        wall, now = clock.now(), clock.monotonic()
        free, of_key = -1, 0
        slots = _SLOT.iter_unpack(self._table[start : start + self._size])
        for number, (known, owner, end, end_by_age) in enumerate(slots):
            if end < wall and end_by_age < now:
                free = number if free < 0 else free
            elif known == proof:
                raise used_before()
            else:
                of_key += owner == key
        if free < 0 or of_key >= _OF_ONE_KEY:
            raise too_many()
        by_age = now + max(0.0, until - wall)
        _SLOT.pack_into(self._table, start + free * _SLOT.size, proof, key, until, by_age)

    @contextmanager
    def _locked(self, bucket: int) -> Iterator[None]:
        """Lock a bucket. Gives up after a while, so that a stopped worker does not block all."""
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
            except (BlockingIOError, PermissionError):
                time.sleep(_PAUSE)
            else:
                break
        else:
            raise VerifierUnavailable("the memory of DPoP proofs is locked by another worker")
        try:
            yield
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, bucket)
