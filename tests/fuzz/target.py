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


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes whole, one by one, and in two random ways that depend on them alone."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    chance = random.Random(hashlib.sha256(data).digest())
    for longest in (4, max(8, len(data) // 2)):
        parts = []
        start = 0
        while start < len(data):
            end = start + chance.randint(1, longest)
            parts.append(data[start:end])
            start = end
        yield parts
