"""Clock and randomness: the one source of the time of day, monotonic time and random bytes.

Callers write `clock.now()`, with the module's name, so that they see a replaced source and pay for
no more than a call of `time.time`. Timers use the time of the event loop, `loop.time()`.
The layers below this one take the time, or a source of random bytes, as an argument.
"""

import os
import time
from binascii import b2a_base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


if TYPE_CHECKING:

    class Source(Protocol):
        """A clock and a source of random bytes."""

        def now(self) -> float:
            """Return the time of day, in seconds since 1970."""
            ...

        def monotonic(self) -> float:
            """Return a time in seconds that is never set back; only differences are meaningful."""
            ...

        def random_bytes(self, count: int) -> bytes:
            """Return bytes that an attacker cannot predict."""
            ...
else:
    Source = Any  # making a protocol takes time at each start


class SystemSource:
    """The clock and the random bytes of the operating system."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    random_bytes = staticmethod(os.urandom)


now: Callable[[], float]
monotonic: Callable[[], float]
random_bytes: Callable[[int], bytes]


def use(source: Source) -> None:
    """Take time and random bytes from `source` from now on, in the whole process. For tests."""
    global now, monotonic, random_bytes
    now, monotonic, random_bytes = source.now, source.monotonic, source.random_bytes


def token(count: int) -> str:
    """Return `count` random bytes as text that is safe in a URL, and as a word of a command.

    It does not begin with a dash, because commands take such a word for an option.
    """
    encoded = b2a_base64(random_bytes(count), newline=False)
    text = encoded.translate(_URL_SAFE, b"=").decode("ascii")
    return f"A{text[1:]}" if text.startswith("-") else text


def uniform(low: float, high: float) -> float:
    """Return a random number between `low` and `high`."""
    return low + (high - low) * int.from_bytes(random_bytes(6), "big") / (1 << 48)


use(SystemSource)
