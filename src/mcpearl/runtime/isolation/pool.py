"""A pool of isolated processes with the same settings, and the calls that wait for one of them.

A process runs one call at a time, so its end costs one call; further calls may be in its inbox, and go to
another process when it is stuck or ends. Processes are started as they are needed, and replaced when they
end or have served enough calls. The first is started with the server, so that settings which the system
does not support are an error there.
"""

import asyncio
import logging
import signal
from collections.abc import Hashable

from mcpearl.runtime import clock
from mcpearl.runtime.arguments import Unusable
from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.runtime.isolation.family import Excess
from mcpearl.runtime.isolation.nursery import Nursery, ZygoteEnded
from mcpearl.runtime.isolation.process import Job, Process, ProcessEnded
from mcpearl.runtime.isolation.profile import Isolate
from mcpearl.runtime.tree import Node, State
from mcpearl.runtime.turns import Turns

logger = logging.getLogger("mcpearl.isolation")

_READY = 60.0  # seconds a process has to become ready, its lifespan included
_DEEPEST = 16  # most calls that a process may have, running or in its inbox
_QUICK = 0.01  # most seconds of work in an inbox
_PAUSES = Backoff(delays=(0.0, *doubling(0.1, 5.0)), jitter=0.0)


class PoolFull(Exception):
    """Too many calls are waiting already."""


class ProcessPool:
    """Runs calls in isolated processes. A service, in the tree below the zygote.

    Args:
        name: For the tree and for messages.
        number: The number by which its processes know it.
        profile: Its settings.
        nursery: Forks the processes.
        longest: Bytes an answer may have.
    """

    def __init__(
        self, name: str, number: int, profile: Isolate, nursery: Nursery, longest: int
    ) -> None:
        self.name = name
        self.profile = profile
        self._number = number
        self._nursery = nursery
        self._longest = longest
        self._size = profile.size
        self.loop = asyncio.get_running_loop()
        """The loop it is used on."""
        self._processes: set[Process] = set()
        self._starting = 0  # of them not ready yet
        self._able = 0  # of them that are not ending
        self._idle: list[Process] = []
        self._waiting: Turns[Job] = Turns()
        self._average = _QUICK  # seconds of a call, the latest ones counting most
        self._depth = 1  # calls of a process: one in hand, the others in its inbox
        self._most = self._size + profile.queue
        self._calls = 0  # how many wait or run
        self._drained: asyncio.Future[None] | None = None
        self._up = False
        self._first: asyncio.Future[None] | None = None  # whether the first process came up
        self._all_gone: asyncio.Future[None] | None = None
        self._retries = Retries(_PAUSES)
        self._timer: asyncio.TimerHandle | None = None
        self._ended = 0  # processes that ended unexpectedly
        self._last_error: str | None = None

    # Calls

    def submit(self, job: Job) -> None:
        """Have a call run by the next process that is free; `job.answer` gets its outcome.

        It ends with `PoolFull` when too many calls wait already. While that is so, each peer has an
        equal share of what waits: a call of one with less takes the place of the last of the one with
        most. `finished` has to follow, or `abandon`, which kills the process of a call that has begun.
        """
        if self._calls >= self._most:
            last = self._waiting.make_room(job.share)
            (job if last is None else last).fail(
                PoolFull(
                    f"{self.name} has {self._size} processes at work and {self.profile.queue} calls "
                    "waiting already"
                )
            )
            if last is None:
                self._calls += 1
                return
        self._calls += 1
        if not self._nursery.watching:
            self._nursery.watch()
        if self._waiting.count:  # so no process has room
            self._waiting.add(job, job.share)
        elif self._idle:
            if self._hand(self._idle.pop(), job):
                return
            self._waiting.add(job, job.share)
        else:
            process = self._least_busy()
            if process is None or not self._hand(process, job):
                self._waiting.add(job, job.share)
        if self._able < self._size:
            self._want_more()

    def finished(self) -> None:
        """Note that a call has been answered."""
        self._calls -= 1
        if self._drained is not None and not self._calls:
            self._drained.set_result(None)
            self._drained = None

    async def drained(self) -> None:
        """Wait until no call waits or runs."""
        if self._calls:
            if self._drained is None:
                self._drained = self.loop.create_future()
            await self._drained

    def abandon(self, job: Job) -> None:
        """Forget a call, or end it with its process."""
        self.finished()
        process = job.process
        if process is not None and process.job is not job:
            self.take_again(process.take_back())  # unless it was begun meanwhile
            process = job.process
        if process is None:
            self._waiting.remove(job, job.share)
            self._feed()
        elif job in process.jobs.values():
            if job.talk is not None and job.talk.suspended:
                process.unwind()
            else:
                process.kill("its call was cancelled")

    @property
    def waiting(self) -> int:
        """How many calls wait for a process, in an inbox or here."""
        return self._waiting.count + sum(max(0, _load(each) - 1) for each in self._processes)

    def take_again(self, jobs: list[Job]) -> None:
        """Put calls that no process has begun back in front of the others."""
        for job in reversed(jobs):
            if not job.answer.done():
                self._waiting.put_first(job)

    def _feed(self) -> None:
        """Hand calls that wait to processes, idle ones first; start more where that is not enough."""
        while self._waiting.count:
            process = self._idle.pop() if self._idle else self._least_busy()
            if process is None or not (self._fill(process) or process.retiring):
                break
        if self._able < self._size:
            self._want_more()

    def _fill(self, process: Process) -> bool:
        """Hand a process the next call; False when it does not fit."""
        job = self._waiting.take(self._in_hand())
        assert job is not None
        if self._hand(process, job):
            return True
        self._waiting.put_first(job)
        return False

    def _in_hand(self) -> dict[Hashable, int] | None:
        """Return how many processes each peer has; None while calls are short, and turns are enough."""
        if self._depth > 1 or self._waiting.peers < 2:
            return None
        found: dict[Hashable, int] = {}
        for process in self._processes:
            for job in process.jobs.values():
                found[job.share] = found.get(job.share, 0) + 1
        return found

    def _hand(self, process: Process, job: Job) -> bool:
        """Hand a call to a process; False when it does not fit."""
        if process.begin(job):
            return True
        if not process.jobs:  # its inbox was empty
            process.kill("wrote to its own inbox")
        return False

    def _least_busy(self) -> Process | None:
        return min(filter(self._has_room, self._processes), key=_load, default=None)

    def _has_room(self, process: Process) -> bool:
        reuse = self.profile.reuse
        return (
            process.ready
            and not process.retiring
            and len(process.jobs) < self._depth
            and (reuse is None or process.served + len(process.jobs) < reuse)
        )

    def explain(self, ended: ProcessEnded) -> str:
        """Return how the process of a call ended, and which limit was the reason."""
        if ended.code == -signal.SIGXCPU and self.profile.cpu is not None:
            return self._too_slow()
        if ended.excess is not None:
            return self._too_much(ended.excess)
        return f"its process {ended}"

    def _too_slow(self) -> str:
        return f"it used more than {self.profile.cpu:g} s of processor time"

    def _too_much(self, excess: Excess) -> str:
        profile = self.profile
        if excess == Excess.MEMORY:
            return f"it and what it started exceeded its memory of {profile.memory_text}"
        if excess == Excess.OWN_CPU:
            return self._too_slow()
        if excess == Excess.CPU:
            return f"what it started used more than {profile.cpu:g} s of processor time"
        return f"it started more than {profile.descendants} processes"

    # Processes

    def is_ready(self, process: Process) -> None:
        """Have a process take its first call."""
        self._starting -= 1
        self._retries = Retries(_PAUSES)
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        if not process.retiring:
            self._employ(process)

    def is_free(self, process: Process) -> None:
        """Have a process take its next call: now if one may wait, else after the answer is passed on."""
        if process.jobs or self._calls > 1:
            self._go_on(process)
        else:
            self.loop.call_soon(self._go_on, process)

    def _go_on(self, process: Process) -> None:
        """Hand a process its next call, or have it end when it has served enough."""
        if process.over:
            return
        reuse = self.profile.reuse
        self._note_time(process)
        if process.jobs:
            while self._waiting.count and self._has_room(process) and self._fill(process):
                pass
        elif process.retiring or not self._up or (reuse is not None and process.served >= reuse):
            process.retire()
            self._feed()
        else:
            self._employ(process)

    def _note_time(self, process: Process) -> None:
        """Queue more calls per process the shorter they are, so that none waits long for another peer."""
        now = clock.monotonic()
        self._average += (now - process.since - self._average) / 8
        process.since = now
        quick = self._average < _QUICK / _DEEPEST
        self._depth = _DEEPEST if quick else max(1, int(_QUICK / self._average))

    def _employ(self, process: Process) -> None:
        """Hand a process without a call the one that has waited longest."""
        if not self._waiting.count and self._calls > 1:
            self._steal()
        self._idle.append(process)
        if self._waiting.count:
            self._feed()

    def _steal(self) -> None:
        """Take a call from the inbox of the process that has most."""
        busiest, most = None, 1
        for each in self._processes:
            if len(each.jobs) > most:
                busiest, most = each, len(each.jobs)
        if busiest is not None:
            self.take_again(busiest.take_back(1))

    def is_leaving(self, process: Process) -> None:
        """Hand no more calls to a process."""
        self._able -= 1
        if process in self._idle:
            self._idle.remove(process)

    def has_ended(self, process: Process, error: ProcessEnded) -> None:
        """Replace a process that has ended."""
        self._processes.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        if not process.retiring:
            self._able -= 1
            self._ended += 1
            self._last_error = str(error)
        if not process.ready:
            self._starting -= 1
            self._not_ready(error)
        elif self._up:
            self._feed()
        if not self._processes and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _not_ready(self, error: ProcessEnded) -> None:
        """Note that a process did not become ready: a waiting call, if any, fails with it.

        None fails when the zygote ended: then the processes say nothing about the calls.
        """
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
            return
        if not self._up:
            return
        logger.error("%s: a new process %s\n%s", self.name, error, error.said)
        job = self._waiting.take() if self._nursery.pid else None
        if job is not None:
            job.fail(error)
        if self._timer is None:
            delay = self._retries.next_delay()
            self._timer = self.loop.call_later(delay, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._feed()

    def _want_more(self) -> None:
        """Start processes for calls that wait, as many as there may be."""
        while (
            self._up
            and self._timer is None
            and self.waiting > self._starting
            and self._able < self._size
        ):
            try:
                self._start_one()
            except (ZygoteEnded, OSError) as error:
                # Without a zygote the supervisor is about to start everything again.
                logger.warning("%s: no process can be started now: %s", self.name, error)
                delay = self._retries.next_delay() or 0.1
                self._timer = self.loop.call_later(delay, self._try_again)

    def _start_one(self) -> None:
        process = Process(self, self._nursery, self._number, self._longest, self.profile.cpu)
        process.expect_ready(_READY)
        self._processes.add(process)
        self._starting += 1
        self._able += 1

    # Service

    async def start(self) -> None:
        """Start the first process, and wait until it is ready.

        Raises:
            Unusable: It cannot take calls; the message says why.
        """
        self._up = True
        self._first = self.loop.create_future()
        self._all_gone = None
        try:
            self._start_one()
            await self._first
        except ProcessEnded as error:
            await self.stop()
            said = f"\n{error.said}" if error.said else ""
            raise Unusable(f"{self.name}: a process {error}{said}") from None
        except BaseException:
            await self.stop()
            raise
        self._feed()

    async def ended(self) -> None:
        """Wait: a pool does not end by itself."""
        await self.loop.create_future()

    async def stop(self) -> None:
        """End the processes: those without a call by themselves, the others at once."""
        self._up = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle.clear()
        for process in tuple(self._processes):
            if not process.jobs and process.ready:
                process.retire()
            else:
                process.kill("the server stopped")
        if self._processes:
            self._all_gone = self.loop.create_future()
            await self._all_gone

    def tree(self) -> Node:
        """Return the pool and its processes, as they are now."""
        return Node(
            name=self.name,
            state="running" if self._up else "ended",
            restarts=self._ended,
            last_error=self._last_error,
            children=tuple(_node(each) for each in self._processes),
        )


def _load(process: Process) -> int:
    return len(process.jobs)


def _node(process: Process) -> Node:
    state: State = "stopping" if process.retiring else "running" if process.ready else "starting"
    doing = " (busy)" if process.jobs else ""
    return Node(
        name=f"process {process.pid}{doing}",
        state=state,
        uptime=clock.monotonic() - process.began,
        fleeting=True,
    )
