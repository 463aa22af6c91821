"""Whether an event loop keeps up with what comes, and whose turn it is while it does not.

What cannot be handled at once waits in lines, one for each peer, and the peers take turns. Between short
slices of that work the loop reads on, so that the time something waits is known. A line that was never
empty for `limit` seconds is not a burst but too much load: from then on only what waited less than a
quarter of that is taken from it, and the rest is begun with `refusing` set, for it to be refused. What
waited longer than `limit` is begun so in any case. (This is the rule of controlled delay, per peer.)

Work that is begun without a line, because it comes from a single stream, is judged by how long the
current turn of the loop has taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from mcpearl.runtime import clock

_TARGET = 1 / 4  # of the limit: how long something may wait under lasting load
_SLICE = 1 / 20  # of the limit: how long the loop works before it reads on
_REFUSALS = 8  # that fit into the turn of one peer, beside what it is served
_ALONE = 32  # that do if no other peer waits

Begin = Callable[[Any], None]


class _WaitingLine:
    """What one peer waits for, the oldest first."""

    __slots__ = ("began", "key", "waiting")

    def __init__(self, key: Hashable, now: float) -> None:
        self.key = key
        self.began = now  # it has not been empty since
        self.waiting: deque[tuple[float, Begin, Any, bool]] = deque()


class Congestion:
    """Watches a loop between `start` and `stop`.

    Args:
        limit: Seconds something may wait.
        also: Called now and then; returns whether something else is behind, such as a pool.
    """

    __slots__ = (
        "_also",
        "_asked",
        "_behind_at",
        "_due",
        "_kept_up",
        "_limit",
        "_lines",
        "_loop",
        "_rotation",
        "_slice",
        "_target",
        "_timer",
        "_unfinished",
        "crowded",
        "fine_until",
        "now",
        "refusing",
        "turn",
    )

    def __init__(self, limit: float, also: Callable[[], bool] = lambda: False) -> None:
        if limit <= 0:
            raise ValueError("a call needs some time to wait for its turn")
        self._limit = limit
        self._target = limit * _TARGET
        self._slice = limit * _SLICE
        self._also = also
        self._loop: asyncio.AbstractEventLoop | None = None
        self.now = clock.monotonic
        """The clock that waiting is measured by."""
        self.turn = -inf
        """When the loop last came round, about."""
        self._lines: dict[Hashable, _WaitingLine] = {}
        self._rotation: deque[_WaitingLine] = deque()  # of the lines, in the order of their turns
        self._unfinished: list[Callable[[], None]] = []  # called at the end of a slice
        self.crowded = False
        """Whether new work has to wait in a line."""
        self.refusing = False
        """Whether what is begun at this moment has waited too long."""
        # The current turn of the loop, for work without a line
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer should run
        self._asked = False  # whether something asked since it last ran
        self._kept_up = -inf  # when the loop was last on time
        self.fine_until = -inf
        """Before this time there is nothing to look at, unless something is being refused."""
        self._behind_at = inf

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self.now = clock.monotonic
        self._kept_up = self.now()

    def stop(self) -> None:
        """Watch no more. What still waits is refused; what comes later is begun at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.fine_until = -inf
        limit, self._limit = self._limit, -inf
        while self._rotation:
            self._serve()
        self._limit = limit
        self._loop = None

    # Whether the loop keeps up

    def is_behind(self) -> bool:
        """Whether what is begun now is to be refused."""
        self._asked = True
        return self.refusing or self._look(self.now())

    def _look(self, now: float) -> bool:
        loop = self._loop
        if loop is None or now < self.fine_until:
            return False
        if self._timer is None:
            self._kept_up = now  # it was idle
            self._turn(now)
            self._wait(loop, now)
        elif not self.crowded and self.fine_until > -inf:
            self.crowded = True
            loop.call_soon(self._serve)
        return now > self._behind_at

    def _wait(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self._due = now + self._slice
        self._timer = loop.call_later(self._slice, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.now()
        if now - self._due < self._target / 2:
            self._kept_up = now
        if self._asked:
            self._asked = False
            self._turn(now)
            self._wait(loop, now)
        else:
            self._timer = None  # an idle loop is not woken
            self.fine_until = -inf

    def _turn(self, now: float) -> None:
        """Note that the loop comes round."""
        self.turn = now
        if self._also():
            self._behind_at = self.fine_until = -inf
            return
        lasting = now - self._kept_up > self._limit
        self.fine_until = now + 2 * self._slice
        self._behind_at = now + self._slice + (self._target if lasting else self._limit)

    # Lines

    def put(
        self,
        key: Hashable,
        begin: Begin,
        work: Any,
        since: float | None = None,
        *,
        more: bool = False,
    ) -> None:
        """Have `begin(work)` called when it is its turn.

        Args:
            key: The peer it is for.
            begin: Begins it; it raises nothing.
            work: Its argument.
            since: When it began to wait, by `now`; by default now.
            more: Whether the peer has more to do behind it that is not in the line.
        """
        now = self.now()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _WaitingLine(key, now)
            self._rotation.append(line)
        line.waiting.append((now if since is None else since, begin, work, more))
        if not self.crowded:
            self.crowded = True
            if self._loop is None:
                self._serve()
            else:
                self._loop.call_soon(self._serve)

    def at_end(self, finish: Callable[[], None]) -> None:
        """Have a function called once, after the slice of work that is being done."""
        self._unfinished.append(finish)

    def _serve(self) -> None:
        """Let the peers take turns for as long as a slice of time."""
        rotation, read = self._rotation, self.now
        now = read()
        self._turn(now)
        end = now + self._slice
        try:
            while rotation and now < end:
                self._give_turn(rotation.popleft(), now)
                now = read()
        finally:
            self.refusing = False
            unfinished, self._unfinished = self._unfinished, []
            for finish in unfinished:
                finish()
            self.crowded = bool(rotation)
            if rotation and self._loop is not None:
                self._loop.call_soon(self._serve)

    def _give_turn(self, line: _WaitingLine, now: float) -> None:
        """Begin what waits in a line: one thing, and some before it that waited too long."""
        waiting = line.waiting
        limit = self._limit if self._loop is not None else inf
        lasting = now - line.began > limit
        most = _REFUSALS if self._rotation else _ALONE
        try:
            for refusals in range(most + 1):
                # The oldest, or the newest if there are more old ones than can be refused in time.
                take = waiting.popleft if refusals < most else waiting.pop
                since, begin, work, more = take()
                waited = now - since
                # The last is not refused for the load alone: there would be nothing left to do.
                self.refusing = waited > limit or (
                    lasting and waited > self._target and (more or len(waiting) > 0)
                )
                begin(work)
                if not (self.refusing and waiting):
                    break
        finally:
            if waiting:
                self._rotation.append(line)
            else:
                del self._lines[line.key]
