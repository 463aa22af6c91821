"""The calls that wait for an isolated process; peers take turns."""

from collections import OrderedDict
from collections.abc import Hashable

from mcpearl.runtime.isolation.process import Job


class Turns:
    """A queue in which peers take turns, however many calls of one peer are waiting."""

    def __init__(self) -> None:
        self._again: OrderedDict[Job, None] = OrderedDict()  # calls that had their turn already
        self._by_peer: OrderedDict[Hashable, OrderedDict[Job, None]] = OrderedDict()
        self.count = 0
        """How many calls wait."""

    def add(self, job: Job) -> None:
        """Queue a call until its peer has its turn."""
        jobs = self._by_peer.get(job.share)
        if jobs is None:
            jobs = self._by_peer[job.share] = OrderedDict()
        jobs[job] = None
        self.count += 1

    def put_first(self, job: Job) -> None:
        """Queue a call in front of all others."""
        self._again[job] = None
        self._again.move_to_end(job, last=False)
        self.count += 1

    def take(self) -> Job | None:
        """Return the call whose turn it is, and forget it; None when none waits."""
        if not self.count:
            return None
        self.count -= 1
        if self._again:
            return self._again.popitem(last=False)[0]
        peer, jobs = self._by_peer.popitem(last=False)
        job, _ = jobs.popitem(last=False)
        if jobs:
            self._by_peer[peer] = jobs
        return job

    def remove(self, job: Job) -> None:
        """Forget a call, if it waits."""
        if job in self._again:
            del self._again[job]
            self.count -= 1
            return
        jobs = self._by_peer.get(job.share)
        if jobs is not None and job in jobs:
            del jobs[job]
            self.count -= 1
            if not jobs:
                del self._by_peer[job.share]
