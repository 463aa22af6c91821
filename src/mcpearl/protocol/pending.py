"""Requests of this side that wait for an answer: their ids, deadlines, progress and outcome.

An entry leaves the table exactly once: resolved, expired, cancelled, or lost with the connection.
Answers without an entry are counted, not raised. The current time is passed in.
"""

from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from msgspec import Struct

from mcpearl.protocol.errors import LimitReached


class PendingRequest(Struct, eq=False):
    """A request waiting for its answer."""

    id: int
    method: str
    waiter: Any
    """The object the caller waits with; this module never looks at it."""
    timeout: float
    deadline: float
    hard_deadline: float
    max_timeout: float

    @property
    def seconds(self) -> float:
        """The time waited when it expires: the timeout, or the maximum if progress extended it."""
        return round(self.max_timeout, 3) if self.hard else self.timeout

    @property
    def hard(self) -> bool:
        """Whether the deadline has reached the maximum that progress cannot extend."""
        return self.deadline >= self.hard_deadline


class Pending:
    """The waiting requests of one connection.

    >>> entry = pending.add("tools/call", waiter, now=0.0, timeout=60.0)
    >>> pending.resolve(entry.id) is entry
    """

    __slots__ = ("_deadlines", "_entries", "_first", "_next", "late", "limit", "unknown")

    def __init__(self, limit: int = 10_000) -> None:
        self.limit = limit
        self._entries: dict[int, PendingRequest] = {}
        self._deadlines: list[tuple[float, int]] = []  # a heap; stale pairs are dropped lazily
        self._first = self._next = 1
        self.late = 0  # answers that arrived after their entry had left
        self.unknown = 0  # answers to requests that were never sent

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def number_from(self, first: int) -> None:
        """Have ids begin at a number, so that those of several processes differ."""
        self._first = self._next = first

    def add(
        self, method: str, waiter: Any, now: float, timeout: float, max_timeout: float | None = None
    ) -> PendingRequest:
        """Add a request with a new id and a deadline. Ids are never reused on a connection."""
        entries = self._entries
        if len(entries) >= self.limit:
            raise LimitReached(
                f"{self.limit} requests are already waiting for answers; "
                "raise `Limits.max_pending` or wait for some of them"
            )
        id = self._next
        self._next = id + 1
        deadline = now + timeout
        hard = deadline if max_timeout is None else now + max_timeout
        if hard < deadline:
            deadline = hard
        entry = PendingRequest(id, method, waiter, timeout, deadline, hard, hard - now)
        entries[id] = entry
        if deadline != inf:
            deadlines = self._deadlines
            heappush(deadlines, (deadline, id))
            if len(deadlines) > 64 + 2 * len(entries):
                self._compact()
        return entry

    def resolve(self, id: object) -> PendingRequest | None:
        """Remove and return the entry of an answer. If there is none, count it and return None."""
        entry = self._entries.pop(id, None) if type(id) is int else None
        if entry is None:
            if type(id) is int and self._first <= id < self._next:
                self.late += 1
            else:
                self.unknown += 1
        return entry

    def get(self, id: object) -> PendingRequest | None:
        """Return the entry with this id without removing it."""
        return self._entries.get(id) if type(id) is int else None

    def discard(self, id: int) -> PendingRequest | None:
        """Remove an entry that this side no longer waits for."""
        return self._entries.pop(id, None)

    def progress(self, token: object, now: float) -> PendingRequest | None:
        """Extend a deadline, up to its maximum, because the peer reported progress."""
        entry = self.get(token)
        if entry is not None and entry.deadline != inf:
            entry.deadline = min(now + entry.timeout, entry.hard_deadline)
        return entry

    def hold(self, id: object) -> None:
        """Stop the clock of an entry whose request has not been sent yet."""
        entry = self.get(id)
        if entry is not None:
            entry.deadline = entry.hard_deadline = inf

    def release(self, id: object, now: float) -> PendingRequest | None:
        """Start the clock of a held entry, from the beginning."""
        entry = self.get(id)
        if entry is None or entry.deadline != inf:
            return None
        entry.hard_deadline = now + entry.max_timeout
        entry.deadline = min(now + entry.timeout, entry.hard_deadline)
        if entry.deadline == inf:
            return None
        heappush(self._deadlines, (entry.deadline, entry.id))
        if len(self._deadlines) > 64 + 2 * len(self._entries):
            self._compact()
        return entry

    def next_deadline(self) -> float | None:
        """Return when `expire` should run next, or None if nothing waits."""
        heap = self._deadlines
        while heap:
            deadline, id = heap[0]
            entry = self._entries.get(id)
            if entry is None:
                heappop(heap)
            elif entry.deadline > deadline:
                heappop(heap)
                if entry.deadline != inf:  # a held entry returns to the heap when it is released
                    heappush(heap, (entry.deadline, id))
            else:
                return deadline
        return None

    def expire(self, now: float, waited_until: float = -inf) -> list[PendingRequest]:
        """Remove and return every entry whose deadline has passed.

        Args:
            now: The time.
            waited_until: When the peer last waited for an answer of this side. Until then no deadline
                but the maximum has run.
        """
        expired: list[PendingRequest] = []
        while True:
            deadline = self.next_deadline()
            if deadline is None or deadline > now:
                return expired
            entry = self._entries[self._deadlines[0][1]]
            later = min(waited_until + entry.timeout, entry.hard_deadline)
            if later > deadline:
                entry.deadline = later
                continue
            heappop(self._deadlines)
            expired.append(self._entries.pop(entry.id))

    def clear(self) -> list[PendingRequest]:
        """Remove and return all entries, because the connection is lost."""
        entries = list(self._entries.values())
        self._entries.clear()
        self._deadlines.clear()
        return entries

    def _compact(self) -> None:
        waiting = self._entries.values()
        self._deadlines = [(e.deadline, e.id) for e in waiting if e.deadline != inf]
        heapify(self._deadlines)
