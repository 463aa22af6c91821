"""Rates: how many calls each key may make, with memory that does not grow with the keys.

One number is kept per key: the time at which the rate is unused again (the generic cell rate algorithm).
It is kept in a dictionary or, if several processes share the limit, in a table of fixed size in shared
memory. Only the hash of a key is kept, so that nothing a caller sends, such as the claims of its token,
stays in memory.
"""

import os
from collections.abc import Callable, Hashable
from typing import Literal

from msgspec import Struct

from mcpearl.runtime import clock

By = Literal["principal", "client", "address"]
_WAYS = 8  # possible places of one key in the shared table
_EXACT = 1e-9  # seconds by which rounding may be off
_PATIENCE = 0.1  # seconds to wait while another process counts a call
_GIVEN_UP = 60.0  # seconds after which a process that is stopped while it counts loses its turn
_MOST_LATER = (
    10_000  # keys whose calls wait to be written meanwhile; those of others are not counted
)
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
    of its rate. One process counts at a time. If it is killed meanwhile, another takes over its turn.
    While it is stopped, the others count by themselves, and add their calls when it goes on: what it
    writes then undoes nothing.
    """

    __slots__ = (
        "_acquire",
        "_buckets",
        "_heirs",
        "_holder",
        "_keys",
        "_later",
        "_release",
        "_stuck_since",
        "_times",
    )

    def __init__(self, most: int) -> None:
        self._buckets = max(1, -(-2 * most // _WAYS))
        size = self._buckets * _WAYS * 8
        # Few servers limit rates.
        import mmap
        import tempfile
        from multiprocessing import get_context

        # Memory is allocated by the system as it is used.
        self._keys = memoryview(mmap.mmap(-1, size)).cast("Q")
        self._times = memoryview(mmap.mmap(-1, size)).cast("d")
        turn = get_context("fork").BoundedSemaphore(1)
        self._acquire, self._release = turn.acquire, turn.release
        self._holder = memoryview(mmap.mmap(-1, 8)).cast("Q")  # the process that counts; 0 for none
        self._heirs = tempfile.TemporaryFile()  # noqa: SIM115 (locked by the process that takes over)
        self._later: dict[int, int] = {}  # calls that are not in the table yet, by key
        self._stuck_since: float | None = None  # when this process first waited in vain

    def take(self, key: Hashable, now: float, interval: float, tolerance: float) -> float:
        """Count a call; return 0 if it is allowed, else the seconds until one is allowed."""
        mark = hash(key) & 0xFFFF_FFFF_FFFF_FFFF or 1  # the same in forked processes; 0 means free
        keys, times = self._keys, self._times
        patience = _PATIENCE if self._stuck_since is None else 0.0
        if not self._acquire(True, patience) and not self._takes_over():
            return self._take_later(mark, now, interval, tolerance)
        self._holder[0] = os.getpid()
        try:
            if self._stuck_since is not None:
                self._add_later(now, interval)
            place = mark % self._buckets * _WAYS
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
            self._holder[0] = 0
            try:
                self._release()
            except ValueError:  # a process that was given up has lost its turn
                pass

    def _place(self, first: int, mark: int) -> int:
        """Return the place of a key among the eight, or the one whose key it replaces."""
        keys = self._keys[first : first + _WAYS].tolist()
        if mark in keys:
            return first + keys.index(mark)
        times = self._times[first : first + _WAYS].tolist()
        return first + times.index(min(times))

    # While a process does not end its turn

    def _takes_over(self) -> bool:
        """Take over the turn of a process that is gone; return False if it may go on."""
        import fcntl

        now = clock.monotonic()
        if self._stuck_since is None:
            self._stuck_since = now
        holder = self._holder[0]
        if _is_alive(holder) and now - self._stuck_since < _GIVEN_UP:
            return False
        try:
            fcntl.lockf(self._heirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False  # another process takes over
        try:
            if self._holder[0] != holder:
                return False
            self._holder[0] = os.getpid()
            return True
        finally:
            fcntl.lockf(self._heirs, fcntl.LOCK_UN)

    def _take_later(self, mark: int, now: float, interval: float, tolerance: float) -> float:
        """Count a call without writing it to the table."""
        place = self._place(mark % self._buckets * _WAYS, mark)
        before, count = self._times[place], self._later.get(mark, 0)
        free_at = before if self._keys[place] == mark and before > now else now
        wait = free_at + (count + 1) * interval - tolerance - now
        if wait > 0:
            return wait
        if count or len(self._later) < _MOST_LATER:
            self._later[mark] = count + 1
        return 0.0

    def _add_later(self, now: float, interval: float) -> None:
        """Write the calls that could not be written before."""
        for mark, count in self._later.items():
            place = self._place(mark % self._buckets * _WAYS, mark)
            before = self._times[place]
            free_at = before if self._keys[place] == mark and before > now else now
            self._keys[place] = mark
            self._times[place] = free_at + count * interval
        self._later.clear()
        self._stuck_since = None


def _is_alive(process: int) -> bool:
    """Whether a process may go on; also if it is not known which one it is."""
    if not process:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
