"""How long to wait before an event stream that ended is opened again.

The server may name a time (`retry`), within bounds. A stream that ended in silence soon after it was
opened counts as a failed attempt, so that a server that ends every stream at once is asked less and
less often.
"""

import asyncio
import math

from mcpearl.runtime.backoff import Backoff, Retries, doubling

_MAX_DELAY = 30.0  # seconds, unless the server asks for more
_SETTLED = 2.0  # seconds a stream has to be open, even in silence, for the delays to start over
_MAX_ASKED = 60.0  # seconds that a server may ask for at most
_LEAST_ASKED = 0.1  # share of the first delay that a server may ask for at least


def resume_delays(first: float) -> Backoff:
    """Return the delays before a stream is opened again, from `first` seconds on."""
    return Backoff(delays=doubling(first, _MAX_DELAY), settled_after=_SETTLED)


class Resumption:
    """The attempts to keep one stream going.

    Args:
        backoff: The delays, as `resume_delays` makes them.
    """

    __slots__ = ("_heard", "_least", "_loop", "_opened_at", "_retries")

    def __init__(self, backoff: Backoff) -> None:
        self._loop = asyncio.get_running_loop()
        self._retries = Retries(backoff)
        self._least = backoff.nominal(0) * _LEAST_ASKED
        self._opened_at = math.inf  # while the stream is not open
        self._heard = False

    def opened(self) -> None:
        """Note that the stream is open."""
        self._opened_at = self._loop.time()

    def heard(self) -> None:
        """Note that the stream carried an event."""
        self._heard = True

    def next_delay(self, asked: int | None) -> float:
        """Return the seconds to wait before the stream is opened again.

        Args:
            asked: Milliseconds that the server named, if it did.
        """
        heard, lasted = self._heard, self._loop.time() - self._opened_at
        self._heard, self._opened_at = False, math.inf
        self._retries.worked_for(math.inf if heard else lasted)
        delay = self._retries.next_delay()
        if asked is None:
            return delay
        wanted = max(self._least, min(asked / 1000, _MAX_ASKED))
        return wanted if heard else max(wanted, delay)
