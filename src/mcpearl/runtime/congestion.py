"""Detects whether an event loop keeps up with its work, and lets peers take turns while it does not.

Work that cannot be done at once waits in lines, one for each peer, and the peers take turns. The work is
done in short slices; in between, the loop reads on, so that it is known how long something has waited. A
line that has not been empty once within `limit` seconds means too much load, not a burst. From then on,
work in it that waited longer than a quarter of `limit` is begun with `refusing` set, so that it is
refused. Work that waited longer than `limit` is always begun that way. (This is controlled delay, per
peer.)

Work that does not wait in a line, because it comes from a single stream, is judged by how long the
current turn of the loop has taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from mcpearl.runtime import clock

_TARGET = 1 / 4  # of the limit: how long work may wait under lasting load
_SLICE = 1 / 20  # of the limit: how long the loop works before it reads on
_REFUSALS = 8  # most refusals in the turn of one peer, in addition to one piece of work
_ALONE = 32  # the same if no other peer waits

Begin = Callable[[Any], None]


class _WaitingLine:
    """The waiting work of one peer, the oldest first."""

    __slots__ = ("began", "key", "waiting")

    def __init__(self, key: Hashable, now: float) -> None:
        self.key = key
        self.began = now  # it has not been empty since
        self.waiting: deque[tuple[float, Begin, Any, bool]] = deque()


class Congestion:
    """Watches a loop between `start` and `stop`.

    Args:
        limit: Seconds that work may wait.
        also: Called in each turn; returns whether something else, such as a pool, is behind.
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
        """When the current turn of the loop began, approximately."""
        self._lines: dict[Hashable, _WaitingLine] = {}
        self._rotation: deque[_WaitingLine] = deque()  # the lines in the order of their turns
        self._unfinished: list[Callable[[], None]] = []  # called at the end of a slice
        self.crowded = False
        """Whether new work has to wait in a line."""
        self.refusing = False
        """Whether the work that is being begun has waited too long."""
        # The current turn of the loop, for work without a line
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer should run
        self._asked = False  # whether `is_behind` was called since it last ran
        self._kept_up = -inf  # when the loop was last on time
        self.fine_until = -inf
        """Before this time the loop is not behind, unless `refusing` is set."""
        self._behind_at = inf  # after this time it is

    def start(self) -> None:
        """Start to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self.now = clock.monotonic
        self._kept_up = self.now()

    def stop(self) -> None:
        """Stop watching. Waiting work is refused; later work is begun at once."""
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
        """Whether work that is begun now is to be refused."""
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
            self._timer = None  # so that an idle loop is not woken
            self.fine_until = -inf

    def _turn(self, now: float) -> None:
        """Note that a new turn of the loop begins."""
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
        """Call `begin(work)` when it is the turn of the peer and of this work.

        Args:
            key: The peer.
            begin: Begins the work; it must not raise.
            work: The argument of `begin`.
            since: When the work began to wait, by `now`; by default the current time.
            more: Whether the peer has more work to come that is not in the line yet.
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
        """Call a function once, at the end of the current slice of work."""
        self._unfinished.append(finish)

    def _serve(self) -> None:
        """Let the peers take turns for one slice of time."""
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
        """Begin one piece of work of a line, and before it refuse some that waited too long."""
        waiting = line.waiting
        limit = self._limit if self._loop is not None else inf
        lasting = now - line.began > limit
        most = _REFUSALS if self._rotation else _ALONE
        try:
            for refusals in range(most + 1):
                # Take the oldest; or the newest, if more have waited too long than can be refused now.
                take = waiting.popleft if refusals < most else waiting.pop
                since, begin, work, more = take()
                waited = now - since
                # The last one is not refused because of the load: nothing else would be left to do.
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
