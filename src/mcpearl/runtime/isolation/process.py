"""The server's handle on one isolated process: its connection, its output, its calls."""

import asyncio
import os
import signal
import socket
from collections.abc import Hashable
from contextlib import ExitStack, suppress
from math import ceil
from typing import Protocol

from msgspec import Struct

from mcpearl.runtime import clock
from mcpearl.runtime.isolation.family import Excess, processor_time
from mcpearl.runtime.isolation.frames import FINAL, FROM_PROCESS, FrameReader, Garbled, Kind, frame
from mcpearl.runtime.isolation.inbox import LARGEST_CALL, Inbox
from mcpearl.runtime.isolation.nursery import Nursery, how
from mcpearl.runtime.isolation.output import ProcessOutput

_CHUNK = 64 * 1024
_LEAVING = 5.0  # seconds a process has to end by itself once it is not needed
_CLOSING = 0.1  # seconds a process has to end after it has closed its connection
_MOST_TAKEN_BACK = 64  # most messages; an inbox has room for fewer
_LAST_NUMBER = 2**32 - 1  # of a call; after it numbers start again
_UNREAD = 64 * 1024 * 1024  # bytes of answers that a process may leave unread
_UNWINDING = 1.0  # seconds a call has to end after it was told to


class Talk(Protocol):
    """Handles what a running call asks and reports."""

    @property
    def suspended(self) -> bool:
        """Whether the call was told to end, and its process may be used again once it has."""
        ...

    def take(self, kind: int, payload: bytes) -> None:
        """Take a frame of the call. With the last one, it has to call `Job.end`."""
        ...


class Job(Struct, eq=False):
    """One call for a process."""

    payload: bytes
    answer: "asyncio.Future[tuple[int, bytes]]"
    talk: Talk | None = None
    share: Hashable = None
    """The peer it is for; None when peers cannot be told apart."""
    process: "Process | None" = None
    """The process that runs it or has it in its inbox."""

    def end(self, kind: int, payload: bytes) -> None:
        """Set the outcome of the call."""
        if not self.answer.done():
            self.answer.set_result((kind, payload))

    def fail(self, error: Exception) -> None:
        """End the call with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)


_NO_CALL: tuple[int, Job | None] = 0, None


class ProcessEnded(Exception):
    """An isolated process ended before it had answered.

    Args:
        reason: How it ended, as the rest of a sentence about the process.
        said: The last lines it printed.
        code: Its exit code; below 0 a signal. None if that is not known.
        excess: The limit that it exceeded, together with what it had started.
    """

    def __init__(
        self, reason: str, said: str = "", code: int | None = None, excess: Excess | None = None
    ) -> None:
        super().__init__(reason)
        self.said = said
        self.code = code
        self.excess = excess


class Owner(Protocol):
    """What a process reports to: its pool."""

    def is_ready(self, process: "Process") -> None:
        """Note that it waits for its first call."""
        ...

    def is_free(self, process: "Process") -> None:
        """Note that it has ended a call and could take another."""
        ...

    def take_again(self, jobs: list[Job]) -> None:
        """Take calls back that a process has not begun."""
        ...

    def is_leaving(self, process: "Process") -> None:
        """Note that it gets no more calls."""
        ...

    def has_ended(self, process: "Process", error: ProcessEnded) -> None:
        """Note that it has ended."""
        ...


class Process:
    """One isolated process.

    Args:
        owner: Its pool.
        nursery: Forks and kills it.
        pool: The number of its pool.
        longest: Bytes that a message from it may have.
        cpu: Seconds of processor time that a call may use.
    """

    def __init__(
        self, owner: Owner, nursery: Nursery, pool: int, longest: int, cpu: float | None = None
    ) -> None:
        self._owner = owner
        self._nursery = nursery
        self._loop = asyncio.get_running_loop()
        self.pid = 0
        self.jobs: dict[int, Job] = {}  # the call that runs, and those in the inbox
        self.served = 0
        self.since = 0.0  # when the call that runs began
        self.ready = False
        self.retiring = False  # it gets no more calls
        self.began = clock.monotonic()
        self.over = False
        self._closed = False  # what connects it to the server
        self._killed = False  # the zygote was asked to
        self._fault: str | None = None  # why it was killed
        self._excess: Excess | None = None  # or which limit it exceeded
        self._cpu = cpu
        self._seen = 0, 0.0  # the call that ran at the last look, and the time used before it
        self._unusable: str | None = None  # why it cannot take calls
        self._outgoing = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._mark = clock.random_bytes(4)
        self._framer = FrameReader(self._mark, longest, FROM_PROCESS)
        self._last = 0
        with ExitStack() as theirs, ExitStack() as ours:
            self._socket, connection = socket.socketpair()
            theirs.callback(connection.close)
            ours.callback(self._socket.close)
            self._inbox = Inbox()
            theirs.callback(self._inbox.handed_over)
            ours.callback(self._inbox.close)
            self._answers, answers = os.pipe()
            theirs.callback(os.close, answers)
            ours.callback(os.close, self._answers)
            self._output = ProcessOutput(self._loop)
            theirs.callback(self._output.handed_over)
            ours.callback(self._output.close)
            descriptors = [connection.fileno(), self._inbox.reader, answers, self._output.writer]
            self._socket.send(self._mark)
            self._number = nursery.ask(self, pool, descriptors)
            ours.pop_all()
        self._socket.setblocking(False)
        os.set_blocking(self._answers, False)
        self._loop.add_reader(self._answers, self._readable)

    # Calls

    @property
    def job(self) -> Job | None:
        """The call that runs, as far as the server knows: the first that was not answered."""
        return next(iter(self.jobs.values()), None)

    def begin(self, job: Job) -> bool:
        """Hand it a call, to run after those it has; False when there is no room for the call."""
        number = self._last = self._last % _LAST_NUMBER + 1
        payload = job.payload
        if len(payload) <= LARGEST_CALL:
            if not self._inbox.put(number, payload):
                return False
        elif self.jobs:
            return False  # what is sent over the connection cannot be taken back
        else:
            if not self._inbox.announce(number):
                return False
            self._send(frame(self._mark, Kind.CALL, payload))
        if not self.jobs:
            if self._output.kept:
                self._output.forget()
            self.since = clock.monotonic()
        self.jobs[number] = job
        job.process = self
        return True

    def take_back(self, most: int | None = None) -> list[Job]:
        """Take back calls that were not begun, the first ones first; none once it has ended."""
        found: list[Job] = []
        if self._closed:
            return found  # the descriptor may be another file by now
        for _ in range(_MOST_TAKEN_BACK):  # a process could write to its inbox endlessly
            number = self._inbox.take_back() if most is None or len(found) < most else None
            if number is None:
                break
            job = self.jobs.pop(number, None)
            if job is not None:
                job.process = None
                found.append(job)
        return found

    def reply(self, payload: bytes) -> None:
        """Answer a question of the call. A process that keeps asking but reads no answers is killed."""
        if self.over:
            return
        if len(self._outgoing) > _UNREAD:
            self.kill("does not read the answers to what it asks")
            return
        self._send(frame(self._mark, Kind.REPLY, payload))

    def unwind(self) -> None:
        """Give a call that was told to end some time to do so; kill the process if it does not."""
        if self.jobs:
            first = next(iter(self.jobs))
            self.jobs[first] = Job(b"", self._loop.create_future())  # nothing waits for its answer
            self._at_most(_UNWINDING)

    def _at_most(self, seconds: float, reason: str = "did not end") -> None:
        """Kill it if nothing happens within this time."""
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.kill, reason)

    def _send(self, data: bytes) -> None:
        if not self._outgoing:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # it has ended, which is seen when its connection is read
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._socket, self._writable)
        self._outgoing += data

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outgoing)
        del self._outgoing[:sent]
        if not self._outgoing:
            self._loop.remove_writer(self._socket)

    # What it writes

    def pause(self) -> None:
        """Stop reading what it writes, so that it has to wait."""
        if self._reading and not self.over:
            self._reading = False
            self._loop.remove_reader(self._answers)

    def resume(self) -> None:
        """Continue reading what it writes."""
        if not self._reading and not self.over:
            self._reading = True
            self._loop.add_reader(self._answers, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._answers, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.pause()
            self._at_most(_CLOSING, "closed its connection to the server")
            return
        try:
            frames = self._framer.feed(data)
        except Garbled as garbled:
            self.pause()
            self.kill(str(garbled))
            return
        for kind, payload in frames:
            self._take(kind, payload)

    def _take(self, kind: int, payload: bytes) -> None:
        number, job = next(iter(self.jobs.items()), _NO_CALL)
        if job is not None and kind in FINAL:
            self._finish(number, job, kind, payload)
        elif job is not None and self.ready:
            if job.talk is not None:
                job.talk.take(kind, payload)
        elif kind == Kind.READY and not self.ready:
            self.ready = True
            self._stop_timer()
            self._owner.is_ready(self)
        elif kind == Kind.UNUSABLE and not self.ready:
            self._unusable = payload.decode(errors="replace")
        else:
            self.kill("wrote a message out of turn")

    def _finish(self, number: int, job: Job, kind: int, payload: bytes) -> None:
        if self._timer is not None:
            self._stop_timer()
        del self.jobs[number]
        if self.jobs and self._output.kept:
            self._output.forget()
        self.served += 1
        if kind == Kind.LAST:
            self._leave()
        if job.talk is None:
            job.end(kind, payload)
        else:
            job.talk.take(kind, payload)
        if not self.over:
            self._owner.is_free(self)

    # Its end

    def expect_ready(self, seconds: float) -> None:
        """Kill it if it does not take calls within this time."""
        self._at_most(seconds, f"was not ready within {seconds:g} s")

    def _leave(self) -> None:
        if not self.retiring:
            self.retiring = True
            self._owner.is_leaving(self)

    def retire(self) -> None:
        """Have it end by itself; kill it if it does not."""
        self._leave()
        self._inbox.close_for_more()
        self._at_most(_LEAVING)

    def kill(self, reason: str) -> None:
        """End it at once, with everything that it has started; calls it has not begun go elsewhere."""
        if self.over or self._killed:
            return  # the zygote has room for a few hundred questions
        self._killed = True
        self._leave()
        self._owner.take_again(self.take_back())
        if self._fault is None:
            self._fault = reason
        self._nursery.kill(self._number)

    @property
    def busy(self) -> bool:
        """Whether it has a call."""
        return bool(self.jobs)

    def look(self) -> None:
        """Kill the process if its call used too much processor time and ignored SIGXCPU."""
        if self._cpu is None or not self.jobs or not self.pid:
            return
        call, used = next(iter(self.jobs)), processor_time(self.pid, alone=True)
        if call != self._seen[0]:
            self._seen = call, used
        elif used - self._seen[1] > ceil(self._cpu) + 1:  # limits are in whole seconds
            self.exceeds(Excess.OWN_CPU)
            self._nursery.kill(self._number)

    def exceeds(self, excess: Excess) -> None:
        """Hand it no more calls, or note why the zygote has killed it."""
        self._leave()
        if excess != Excess.CROWDED:
            self._excess = excess
            self._fault = self._fault or "had too much, together with what it had started"
            self._owner.take_again(self.take_back())
        elif not self.jobs:
            self.retire()

    def could_not_start(self, reason: str) -> None:
        """Note that the system did not let it start, for want of processes or memory."""
        self._unusable = f"could not be started: {reason}"
        self.has_ended(None)

    def has_ended(self, status: int | None) -> None:
        """Note the wait status it ended with; fail its calls, and tell the pool."""
        self.over = True
        self._stop_timer()
        self._take_rest()
        self._loop.remove_reader(self._answers)
        os.close(self._answers)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        again = self.take_back()
        self._inbox.close()
        self._closed = True
        code = None if status is None else os.waitstatus_to_exitcode(status)
        error = ProcessEnded(self._reason(status), self._output.close(), code, self._excess)
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            job.fail(error)
        self._owner.take_again(again)
        self._owner.has_ended(self, error)

    def _take_rest(self) -> None:
        """Read what it wrote before it ended."""
        with suppress(OSError, Garbled):
            while data := os.read(self._answers, _CHUNK):
                for kind, payload in self._framer.feed(data):
                    self._take(kind, payload)

    def _reason(self, status: int | None) -> str:
        if self._unusable is not None:
            return self._unusable
        if status is None:
            return "was lost with the process that it was forked from"
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            return how(status)
        return self._fault or (
            "was ended by SIGKILL, which the server did not send; the system does so when it has no "
            "memory left"
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
