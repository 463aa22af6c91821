"""Makes new inputs from known ones. With the same chance it makes the same inputs."""

import random
from collections.abc import Sequence

MAX_SIZE = 8 * 1024
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_COMMON = (b"\r\n", b"\n", b"\0", b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"%", b"\xff")
_NUMBERS = (b"0", b"-1", b"1e999", b"9" * 25, b"2147483648", b"1.5", b"\xef\xbc\x91")


class Mutator:
    """Mutates inputs.

    Args:
        chance: Where all decisions come from.
        words: Put into inputs, beside bytes that are common in text.
    """

    def __init__(self, chance: random.Random, words: Sequence[bytes]) -> None:
        self._chance = chance
        self._words = (*words, *words, *_COMMON, *_NUMBERS)

    def mutate(self, inputs: Sequence[bytes]) -> bytes:
        """Return a new input made of one or two of these."""
        data = bytearray(self._chance.choice(inputs))
        for _ in range(self._chance.choice((1, 1, 2, 3, 5, 8))):
            self._change(data, inputs)
        return bytes(data[:MAX_SIZE])

    def _change(self, data: bytearray, inputs: Sequence[bytes]) -> None:
        chance = self._chance
        at = chance.randint(0, len(data))
        size = chance.choice((1, 1, 2, 4, 8, 32, 128))
        match chance.randrange(8):
            case 0:
                data[at:at] = chance.choice(self._words)
            case 1:
                data[at : at + size] = chance.choice(self._words)
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size] * chance.choice((1, 2, 16))
            case 4:
                data[at : at + 1] = bytes([chance.choice((*_EDGES, chance.randrange(256)))])
            case 5 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 6:
                other = chance.choice(inputs)
                start = chance.randint(0, len(other))
                data[at:] = other[start:]
            case _:
                start = chance.randint(0, len(data))
                data[at:at] = data[start : start + size]
