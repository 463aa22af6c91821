"""Rates: how many calls each key may make, with memory that does not grow with the keys.

One number is kept per key: the time at which the rate is unused again (the generic cell rate algorithm).
It is kept in a dictionary or, if several processes share the limit, in a table of fixed size in shared
memory. Only the hash of a key is kept, so that nothing a caller sends, such as the claims of its token,
stays in memory.
"""

from collections.abc import Callable, Hashable
from typing import Literal

from msgspec import Struct

from mcpearl.runtime import clock

By = Literal["principal", "client", "address"]
_WAYS = 8  # possible places of one key in the shared table
_EXACT = 1e-9  # seconds by which rounding may be off
_PATIENCE = 0.1  # seconds to wait while another process counts a call
_MANY = 100_000  # keys that one process remembers; for a while up to twice as many


class RateLimit(Struct, frozen=True):
    """How often something may be called, by each principal, client or address.

    >>> RateLimit(100, per=1, burst=200)
    """

    calls: float
    """Calls allowed in `per` seconds, in the long run."""
    per: float = 1.0
    """Seconds."""
    burst: int | None = None
    """Calls that may come at once after a pause; by default `calls`."""
    by: By = "principal"
    """What has a count of its own: each `principal`, each `client` program, or each `address`. Callers
    that cannot be told apart (no authentication, no address) share one count."""

    def __post_init__(self) -> None:
        if self.calls <= 0 or self.per <= 0:
            raise ValueError("`RateLimit` needs `calls` and `per` above 0")
        if self.burst is not None and self.burst < 1:
            raise ValueError("`RateLimit.burst` is at least 1")
        if self.by not in ("principal", "client", "address"):
            raise ValueError(f"`RateLimit.by` is principal, client or address, not {self.by!r}")

    def __str__(self) -> str:
        return f"{self.calls:g} calls in {self.per:g} s"


class Meter:
    """Counts the calls of every key against one limit.

    Args:
        limit: The limit.
        most: How many keys are remembered; at twice as many, those seen longest ago are forgotten.
    """

    __slots__ = (
        "_earlier",
        "_most",
        "_shared",
        "_tolerance",
        "_used",
        "anonymous",
        "interval",
        "limit",
        "take",
        "times",
    )

    def __init__(self, limit: RateLimit, most: int = _MANY) -> None:
        self.limit = limit
        self.interval = limit.per / limit.calls
        """Seconds a single call uses."""
        burst = max(1, int(limit.calls)) if limit.burst is None else limit.burst
        self._tolerance = self.interval * burst + _EXACT
        self._most = most
        self.times: dict[int, float] = {}
        """When the rate of each recently seen key is unused again, by the hash of the key."""
        self.anonymous = [0.0]
        """The same for callers that cannot be told apart; their key is None."""
        self._earlier: dict[int, float] = {}
        self._shared: SharedTimes | None = None
        self._used: dict[Hashable, int] | None = None  # calls of each key that other machines count
        self.take: Callable[[Hashable], float] = self._taking()
        """Count a call of a key; return 0 if it is allowed, else the seconds until one is allowed."""

    def __len__(self) -> int:
        return len(self.times) + len(self._earlier)

    @property
    def is_shared(self) -> bool:
        """Whether other processes count against the same limit."""
        return self._shared is not None or self._used is not None

    def share(self) -> None:
        """Share the count with processes that are forked from now on. Replaces `take`."""
        self._shared = shared = SharedTimes(self._most)
        interval, tolerance = self.interval, self._tolerance
        self.take = lambda key: shared.take(key, clock.monotonic(), interval, tolerance)

    def spread(self, wake: Callable[[], None]) -> None:
        """Note the calls of each key for `spent`, so that other machines count them. Replaces `take`.

        Args:
            wake: Called on the first call after each `spent`.
        """
        take = self._taking()
        used: dict[Hashable, int] = {}
        self._used = used

        def take_and_note(key: Hashable) -> float:
            wait = take(key)
            if not wait:
                if not used:
                    wake()
                used[key] = used.get(key, 0) + 1
            return wait

        self.take = take_and_note

    @property
    def is_spread(self) -> bool:
        """Whether calls are noted for other machines."""
        return self._used is not None

    def spent(self) -> dict[Hashable, int]:
        """Return how many calls of each key were allowed since this was last called."""
        assert self._used is not None
        found = dict(self._used)
        self._used.clear()
        return found

    def owe(self, key: Hashable, seconds: float) -> None:
        """Note that a key, with its calls on all machines, needs `seconds` until its rate is unused."""
        used = 0 if self._used is None else self._used.get(key, 0)
        free_at = clock.monotonic() + seconds + used * self.interval
        times, mark = self._place(key)
        times[mark] = max(times[mark], free_at)

    def _taking(self) -> Callable[[Hashable], float]:
        """Return `take` as a closure, which is fast: every call goes through it."""
        place, interval, tolerance = self._place, self.interval, self._tolerance

        def take(key: Hashable) -> float:
            (times, mark), now = place(key), clock.monotonic()
            free_at = times[mark]
            if free_at < now:
                free_at = now
            free_at += interval
            wait = free_at - now - tolerance
            if wait > 0:
                return wait
            times[mark] = free_at
            return 0.0

        return take

    def _place(self, key: Hashable) -> tuple[dict[int, float] | list[float], int]:
        """Return where the time of a key is: the container, and the index in it."""
        if key is None:
            return self.anonymous, 0
        times, mark = self.times, hash(key)
        if mark not in times:
            if len(times) >= self._most:
                self._earlier = times.copy()
                times.clear()
            times[mark] = self._earlier.pop(mark, 0.0)
        return times, mark


class SharedTimes:
    """Times by key in memory that forked processes share.

    A key has eight possible places. When they are all taken, it replaces the key that has used the least
    of its rate. One process counts at a time. A process that is killed while it counts keeps the others
    waiting for a moment, once.
    """

    __slots__ = ("_acquire", "_buckets", "_keys", "_release", "_times")

    def __init__(self, most: int) -> None:
        self._buckets = max(1, -(-2 * most // _WAYS))
        size = self._buckets * _WAYS * 8
        # Few servers limit rates.
        import mmap
        from multiprocessing import get_context

        # Memory is allocated by the system as it is used.
        self._keys = memoryview(mmap.mmap(-1, size)).cast("Q")
        self._times = memoryview(mmap.mmap(-1, size)).cast("d")
        turn = get_context("fork").BoundedSemaphore(1)
        self._acquire, self._release = turn.acquire, turn.release

    def take(self, key: Hashable, now: float, interval: float, tolerance: float) -> float:
        """Count a call; return 0 if it is allowed, else the seconds until one is allowed."""
        mark = hash(key) & 0xFFFF_FFFF_FFFF_FFFF or 1  # the same in forked processes; 0 means free
        keys, times = self._keys, self._times
        place = mark % self._buckets * _WAYS
        self._acquire(
            True, _PATIENCE
        )  # if this fails, its holder is gone, and this one takes its turn
        try:
            if keys[place] != mark:
                place = self._place(place, mark)
            free_at = times[place] if keys[place] == mark else now
            free_at = (free_at if free_at > now else now) + interval
            wait = free_at - tolerance - now
            if wait > 0:
                return wait
            keys[place] = mark
            times[place] = free_at
            return 0.0
        finally:
            try:
                self._release()
            except ValueError:  # a process that was held up for long has lost its turn
                pass

    def _place(self, first: int, mark: int) -> int:
        """Return the place of a key among the eight, or the one whose key it replaces."""
        keys = self._keys[first : first + _WAYS].tolist()
        if mark in keys:
            return first + keys.index(mark)
        times = self._times[first : first + _WAYS].tolist()
        return first + times.index(min(times))
