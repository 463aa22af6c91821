"""The server's side of the zygote: forks it, asks it for processes, watches it, and replaces it."""

import asyncio
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mcpearl.runtime.isolation import zygote
from mcpearl.runtime.isolation.family import Excess
from mcpearl.runtime.isolation.zygote import RECORD, ChildWork, Op, Profiles
from mcpearl.runtime.liveness import Keepalive, Watch

logger = logging.getLogger("mcpearl.isolation")

_PATIENCE = 5.0  # seconds a zygote has to end before it is killed
_RESTING = 1.0  # seconds after which the zygote is told that no call runs
_LOOKING = 5.0  # seconds between two looks at a zygote that owes an answer, and for its last answer
_SILENT = 60.0  # seconds without an answer after which the zygote is asked a last time


class ZygoteEnded(RuntimeError):
    """The process that isolated processes are forked from has ended."""


class Forked(Protocol):
    """A process that the zygote was asked for, and reports about."""

    pid: int

    @property
    def busy(self) -> bool:
        """Whether it has a call."""
        ...

    def look(self) -> None:
        """Look at what its call has used so far."""
        ...

    def exceeds(self, excess: Excess) -> None:
        """Note that the process exceeds a limit; it is being killed, unless this is `CROWDED`."""
        ...

    def could_not_start(self, reason: str) -> None:
        """Note that the system did not let the process start."""
        ...

    def has_ended(self, status: int | None) -> None:
        """Note the wait status that the process ended with; None when it cannot be known."""
        ...


class Nursery:
    """Owns a zygote. A service: a restart forks another one from this process.

    Args:
        work: The function that the processes run; see `zygote.ChildWork`.
        profiles: Returns the settings of a pool.
    """

    def __init__(self, work: ChildWork, profiles: Profiles) -> None:
        self._work = work
        self._profiles = profiles
        self.watching = False
        """Whether the zygote looks at what the processes start; see `watch`."""
        self._timer: asyncio.TimerHandle | None = None
        self._made: tuple[int, socket.socket] | None = None
        self._pid = 0
        self._control: socket.socket | None = None
        self._status: asyncio.Future[int] | None = None  # its wait status
        self._processes: dict[int, Forked] = {}
        self._last = 0
        self._owed = 0  # requests that the zygote has not answered
        self.heard_at = 0.0
        """When the zygote last answered, or was asked after a pause, in the loop's time."""
        self._silence: Watch | None = None  # while it owes an answer

    def fork(self) -> None:
        """Fork the zygote now, before there are loops and threads; `start` will use it."""
        if others := zygote.other_threads():
            logger.info(
                "isolated tools are forked from a process with threads (%s); what these hold at the "
                "moment stays held in the copies. `app.run()` forks before threads are started",
                ", ".join(others[:5]),
            )
        self._made = zygote.fork(self._work, self._profiles)

    def discard(self) -> None:
        """End a zygote that was forked but not started."""
        if self._made is not None:
            (pid, control), self._made = self._made, None
            control.close()
            os.waitpid(pid, 0)

    @property
    def pid(self) -> int:
        """The process id of the zygote; 0 while there is none."""
        return self._pid

    # Service

    async def start(self) -> None:
        """Fork the zygote, unless that was done already, and listen to it."""
        if self._made is None:
            self.fork()
        assert self._made is not None
        (self._pid, control), self._made = self._made, None
        control.setblocking(False)
        self._control = control
        loop = asyncio.get_running_loop()
        self._status = loop.create_future()
        watch = os.pidfd_open(self._pid)  # readable once the zygote has ended
        loop.add_reader(control, self._heard)
        loop.add_reader(watch, self._has_ended, watch, self._pid, self._status)

    async def ended(self) -> None:
        """Wait until the zygote ends."""
        assert self._status is not None
        raise ZygoteEnded(f"the zygote {how(await asyncio.shield(self._status))}")

    async def stop(self) -> None:
        """End the zygote, and with it every process it has started."""
        control, self._control = self._control, None
        pid, status = self._pid, self._status
        assert control is not None
        assert status is not None
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        self._forget_watch()
        self._expect_nothing()
        try:
            await asyncio.wait([status], timeout=_PATIENCE)
        finally:  # also if this is cancelled: `start` may be called before this zygote has ended
            if not status.done():
                os.kill(pid, signal.SIGKILL)
            self._pid = 0
            self._lose_all()
        await asyncio.wait([status])

    # What the zygote says

    def _heard(self) -> None:
        control = self._control
        while control is not None:
            try:
                record = control.recv(RECORD.size)
            except BlockingIOError:
                return
            except ConnectionError:
                record = b""
            if len(record) != RECORD.size:
                asyncio.get_running_loop().remove_reader(control)  # its end is seen as well
                return
            self._take(*RECORD.unpack(record))

    def _take(self, op: int, number: int, _: int, value: int) -> None:
        if op in _ANSWERS:
            self._has_answered()
        if op == Op.KILLED:
            return
        if op == Op.FORKED:
            if number in self._processes:
                self._processes[number].pid = value
            return
        if op == Op.EXCEEDED:
            if number in self._processes:
                self._processes[number].exceeds(Excess(value))
            return
        process = self._processes.pop(number, None)
        if process is None:
            return
        if op == Op.FAILED:
            process.could_not_start(os.strerror(value))
        else:
            process.has_ended(value)

    def _expect_answer(self) -> None:
        self._owed += 1
        if self._silence is None:
            times = Keepalive(interval=_LOOKING, patience=_LOOKING)
            self._silence = Watch(asyncio.get_running_loop(), self, times)

    def _has_answered(self) -> None:
        self._owed -= 1
        self.heard_at = asyncio.get_running_loop().time()
        if not self._owed:
            self._expect_nothing()

    # Its silence, while it owes an answer; see `liveness`

    attentive = True

    def ping(self, patience: float) -> bool:
        """Ask the zygote a last time if it is stopped, or has been silent for `_SILENT` seconds."""
        silent = asyncio.get_running_loop().time() - self.heard_at
        if silent < _SILENT and not _is_stopped(self._pid):
            return False
        with suppress(OSError):  # it may have no room for a question
            assert self._control is not None
            self._control.send(RECORD.pack(Op.KILL, 0, 0, 0))  # kills nothing, but is answered
            self._owed += 1
        return True

    def silent(self, patience: float) -> None:
        """Kill the zygote, which does not answer."""
        logger.error("the zygote of isolated tools does not answer, and is killed")
        self._kill_zygote()

    def _has_ended(self, watch: int, pid: int, ended: "asyncio.Future[int]") -> None:
        asyncio.get_running_loop().remove_reader(watch)
        os.close(watch)
        _, status = os.waitpid(pid, 0)
        ended.set_result(status)
        if pid == self._pid:  # it was not stopped
            self._pid = 0
            self._forget_watch()
            self._expect_nothing()
            self._lose_all()

    def _expect_nothing(self) -> None:
        self._owed = 0
        if self._silence is not None:
            self._silence.stop()
            self._silence = None

    def _lose_all(self) -> None:
        lost, self._processes = self._processes, {}
        for process in lost.values():
            process.has_ended(None)

    # What it is asked for

    def ask(self, process: Forked, pool: int, descriptors: list[int]) -> int:
        """Have a process forked; return its number, which reports about it carry.

        Args:
            process: Gets the reports.
            pool: The pool that the process is for.
            descriptors: Its connection to the server, its inbox, the pipe for its answers, and the pipe
                for what it prints.

        Raises:
            ZygoteEnded: There is no zygote at the moment.
        """
        self._last = number = (self._last + 1) % 2**32
        record = RECORD.pack(Op.FORK, number, pool, 0)
        try:
            if self._control is None:
                raise BrokenPipeError
            socket.send_fds(self._control, [record], descriptors)
        except OSError as error:
            raise ZygoteEnded(f"there is no zygote to fork from ({error})") from None
        self._processes[number] = process
        self._expect_answer()
        return number

    def watch(self) -> None:
        """Have the zygote watch what the processes start, from now on until no call runs."""
        self.watching = True
        self._tell(Op.WATCH)
        self._timer = asyncio.get_running_loop().call_later(_RESTING, self._look)

    def _look(self) -> None:
        busy = [each for each in self._processes.values() if each.busy]
        for each in busy:
            each.look()
        if busy:
            self._timer = asyncio.get_running_loop().call_later(_RESTING, self._look)
        else:
            self._forget_watch()
            self._tell(Op.REST)

    def _forget_watch(self) -> None:
        self.watching = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, op: Op) -> None:
        with suppress(OSError):  # it has ended, or does not listen, which is seen elsewhere
            if self._control is not None:
                self._control.send(RECORD.pack(op, 0, 0, 0))

    def kill(self, number: int) -> None:
        """Kill a process and everything it has started."""
        if self._control is None or number not in self._processes:
            return
        try:
            self._control.send(RECORD.pack(Op.KILL, number, 0, 0))
            self._expect_answer()
        except BlockingIOError:  # the zygote does not listen: it is killed with all its processes
            self._kill_zygote()
        except OSError:
            pass  # it has ended, and with it the process

    def _kill_zygote(self) -> None:
        if self._pid:  # 0 would be all processes of the server's group
            os.kill(self._pid, signal.SIGKILL)


_ANSWERS = (Op.FORKED, Op.FAILED, Op.KILLED)


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in "Tt"


def how(status: int) -> str:
    """Say how a process ended."""
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
