"""Measurements of many calls, in memory that does not grow with their number."""

import math
from collections import Counter
from typing import Any

_STEPS = 64  # buckets for each doubling: percentiles are exact to about 1 %
_LOWEST = 1e-6
_MOST_BUCKETS = 64 * 32
_KINDS = 20  # of errors that are told apart


class Latencies:
    """How long calls took, in buckets that grow with the time."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self.buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a call."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self.buckets[_bucket(seconds)] += 1

    def merge(self, other: "Latencies") -> None:
        """Add the calls that another object has counted."""
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)
        self.buckets.update(other.buckets)

    def percentile(self, percent: float) -> float:
        """Return the time within which this percentage of the calls ended."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(_upper(bucket), self.longest)
        return self.longest

    @property
    def mean(self) -> float:
        """The mean time."""
        return self.total / self.count if self.count else 0.0


def _bucket(seconds: float) -> int:
    if seconds <= _LOWEST:
        return 0
    return min(_MOST_BUCKETS, int(math.log2(seconds / _LOWEST) * _STEPS))


def _upper(bucket: int) -> float:
    return float(_LOWEST * 2 ** ((bucket + 1) / _STEPS))


class Moment:
    """What happened in one interval of time."""

    def __init__(self, at: float, length: float) -> None:
        self.at = at
        self.length = length
        self.latencies = Latencies()
        self.errors = 0

    @property
    def rate(self) -> float:
        """Calls per second that were answered."""
        return self.latencies.count / self.length

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the interval."""
        return {
            "at": round(self.at, 3),
            "rate": round(self.rate, 1),
            "p50_ms": round(self.latencies.percentile(50) * 1000, 3),
            "p99_ms": round(self.latencies.percentile(99) * 1000, 3),
            "errors": self.errors,
        }


class Measures:
    """All that is measured in one run.

    Args:
        duration: seconds that the run takes.
    """

    def __init__(self, duration: float) -> None:
        self.duration = duration
        self.length = max(0.25, duration / 120)
        count = math.ceil(duration / self.length)
        self.moments = [Moment(n * self.length, self.length) for n in range(count)]
        self.errors: Counter[str] = Counter()
        self.busy = 0.0
        """The share of a processor that the load itself took."""

    def done(self, at: float, seconds: float) -> None:
        """Count a call that was answered.

        Args:
            at: when, in seconds from the beginning.
            seconds: how long it took.
        """
        self._moment(at).latencies.add(seconds)

    def failed(self, at: float, reason: str) -> None:
        """Count a call that failed."""
        self._moment(at).errors += 1
        known = reason if reason in self.errors or len(self.errors) < _KINDS else "other errors"
        self.errors[known] += 1

    def end(self, at: float) -> None:
        """End the run earlier than planned, `at` seconds after its beginning."""
        self.duration = at
        self.moments = [moment for moment in self.moments if moment.at < at] or self.moments[:1]
        last = self.moments[-1]
        last.length = max(0.001, at - last.at)

    def _moment(self, at: float) -> Moment:
        return self.moments[min(len(self.moments) - 1, max(0, int(at / self.length)))]

    def latencies(self) -> Latencies:
        """Return the latencies of all calls."""
        found = Latencies()
        for moment in self.moments:
            found.merge(moment.latencies)
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the run."""
        every = self.latencies()
        shares = {f"p{each:g}": every.percentile(each) for each in (50, 90, 95, 99, 99.9)}
        shown = {**shares, "max": every.longest, "mean": every.mean}
        return {
            "seconds": round(self.duration, 3),
            "calls": every.count,
            "rate": round(every.count / self.duration, 1),
            "errors": sum(self.errors.values()),
            "error_kinds": dict(self.errors.most_common()),
            "latency_ms": {name: round(value * 1000, 3) for name, value in shown.items()},
            "load_processor_share": round(self.busy, 2),
            "intervals": [moment.as_json() for moment in self.moments],
        }
