"""What a fuzz target is, and the ways its bytes are cut."""

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    """One reader of what strangers send."""

    name: str
    check: Callable[[bytes], None]
    """Takes an input; raises anything when a promise is broken."""
    words: tuple[bytes, ...] = ()
    """What inputs are made of: put in by mutations."""
    read: Callable[[bytes], object] | None = None
    """Reads an input once, to measure how the time grows with the size; None where `check` serves."""

    def corpus(self) -> list[bytes]:
        """Return the committed inputs, in the order of their names."""
        return [file.read_bytes() for file in sorted((CORPUS / self.name).iterdir())]


class Broken(AssertionError):
    """A promise that does not hold."""


def require(condition: object, promise: str) -> None:
    """Raise `Broken` unless the condition holds. Unlike `assert`, also in an instrumented module."""
    if not condition:
        raise Broken(promise)


def cuts(data: bytes, *, is_slow: bool = False) -> Iterator[list[bytes]]:
    """Yield the bytes whole, one by one, and in two random ways that depend on them alone.

    Args:
        data: The bytes.
        is_slow: Whether feeding is slow. Then only some inputs are cut into single bytes.
    """
    chance = random.Random(hashlib.sha256(data).digest())
    yield [data]
    if not is_slow or len(data) < 100 or chance.randrange(8) == 0:
        yield [data[i : i + 1] for i in range(len(data))]
    for longest in (64 if is_slow else 4, max(8, len(data) // 2)):
        parts = []
        start = 0
        while start < len(data):
            end = start + chance.randint(1, longest)
            parts.append(data[start:end])
            start = end
        yield parts
