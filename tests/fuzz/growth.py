"""Whether the time an input takes grows faster than its size.

A part of an input is repeated until the input has a size, and sixteen times that size. Work in
proportion to the size then takes sixteen times as long, quadratic work 256 times. Only a wide margin is
taken for proof, and only where the work is long enough to be measured at all.
"""

import random
import time
from collections.abc import Callable

from tests.fuzz.target import Broken, Target

SHORT = 4 * 1024
FACTOR = 16
ALLOWED = 80
_WORTH = 0.1  # seconds of processor time; less than this harms no one


def check_growth(target: Target, data: bytes, chance: random.Random) -> None:
    """Raise `Broken` if the target takes much longer for an input than its size explains."""
    if not data:
        return
    start = chance.randrange(len(data))
    part = data[start : start + chance.choice((1, 2, 3, 8, 64))]
    before, after = data[:start], data[start + len(part) :]
    read = target.read or target.check
    for _ in range(5):
        long = _seconds(read, before + part * (FACTOR * SHORT // len(part)) + after)
        if long < _WORTH:
            return
        short = _seconds(read, before + part * (SHORT // len(part)) + after)
        if long <= ALLOWED * max(short, _WORTH / FACTOR):
            return
    raise Broken(
        f"takes {long / short:.0f} times as long for {FACTOR} times as much: {part!r} repeated "
        f"after {before[-40:]!r}"
    )


def _seconds(read: Callable[[bytes], object], data: bytes) -> float:
    begun = time.process_time()
    read(data)
    return time.process_time() - begun
