"""Processor time that the host of a virtual machine takes for others while something is measured.

Some hosts take a third of the processors from a machine that has been busy for seconds, and nothing from
one that has rested. So a measure of which the host took too much is repeated after a rest. How often, and
how long all rests of a part take together, is bounded; what stayed disturbed is noted with its figure.
Where the system does not count this time, nothing is repeated.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.progress import say

T = TypeVar("T")
MOST_TAKEN = 0.05  # of the time that processors were wanted
TRIES = 3
REST_SECONDS = 30.0
ALL_RESTS = 600.0  # seconds of all rests in one part
_COUNTS = Path("/proc/stat")
_IDLE, _WAITING, _STOLEN, _GUESTS = (
    3,
    4,
    7,
    8,
)  # places in a line; guests are counted as users already


class ProcessorTime(NamedTuple):
    """What all processors together have done, in ticks since the machine started."""

    wanted: int
    """With something to run, whether it ran or the host had taken the processor."""
    taken: int
    """Of that, taken by the host."""


def processor_time(counts: str) -> ProcessorTime | None:
    """Read the text of `/proc/stat`; None if it does not say what the host took."""
    words = counts.partition("\n")[0].split()
    ticks = [int(word) for word in words[1:] if word.isdigit()]
    if words[:1] != ["cpu"] or len(ticks) <= _STOLEN:
        return None
    return ProcessorTime(sum(ticks[:_GUESTS]) - ticks[_IDLE] - ticks[_WAITING], ticks[_STOLEN])


def share_taken(before: ProcessorTime | None, after: ProcessorTime | None) -> float:
    """Return the share of the wanted time between two readings that the host took."""
    if before is None or after is None or after.wanted <= before.wanted:
        return 0.0
    return max(after.taken - before.taken, 0) / (after.wanted - before.wanted)


def _now() -> ProcessorTime | None:
    return processor_time(_COUNTS.read_text()) if _COUNTS.exists() else None


class HostWatch:
    """Watches what the host takes, and has a limited time to wait for it to stop.

    Args:
        rests: Seconds of all rests together.
        now: Reads the processor time.
        sleep: Rests for some seconds.
    """

    def __init__(
        self,
        rests: float,
        now: Callable[[], ProcessorTime | None] = _now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.left = rests  # set anew for each part
        self._now = now
        self._sleep = sleep

    def undisturbed(self, what: str, measure: Callable[[], T]) -> tuple[T, float]:
        """Measure, and measure again after a rest if the host took too much.

        Args:
            what: What is measured, for the progress.
            measure: Does it.

        Returns:
            The outcome of the try of which the host took least, and the share that it took.
        """
        found: tuple[T, float] | None = None
        for number in range(1, TRIES + 1):
            before = self._now()
            outcome = measure()
            taken = share_taken(before, self._now())
            if found is None or taken < found[1]:
                found = outcome, taken
            if taken <= MOST_TAKEN or number == TRIES or self.left < REST_SECONDS:
                break
            say(f"{what}: the host took {taken:.0%} of the processors; again in {REST_SECONDS:g} s")
            self.left -= REST_SECONDS
            self._sleep(REST_SECONDS)
        assert found is not None
        return found


host = HostWatch(ALL_RESTS)
"""That of this run."""
