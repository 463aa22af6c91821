"""The zygote: a small process that forks isolated processes, waits for their ends, and kills them.

It is forked from the server with everything the application has loaded, runs none of the application's
functions, and has no loop and no threads. It ends when the server ends, in whatever way, and kills all
isolated processes and everything they started. This module is the zygote's side; `nursery` is the
server's.
"""

import faulthandler
import fcntl
import gc
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, NoReturn

from mcpearl.runtime.isolation import family, system
from mcpearl.runtime.isolation.family import Excess
from mcpearl.runtime.isolation.profile import Isolate

RECORD = struct.Struct("<BIIi")
_DESCRIPTORS = 4  # of a process: three in its `Wiring`, and the one it prints to
_APART = 500  # the lowest number of our own descriptors in a process
_PERIOD = 50  # milliseconds between two looks at what the processes have started


class Op(IntEnum):
    """What a record on the control socket says: four of them to the zygote, the others from it."""

    FORK = 1
    """To the zygote: start process `number` of a pool, with the four descriptors that come along."""
    KILL = 2
    """To the zygote: kill process `number`."""
    FORKED = 3
    """Process `number` was started; `value` is its pid."""
    FAILED = 4
    """Process `number` could not be started; `value` is the error number."""
    ENDED = 5
    """Process `number` has ended; `value` is its wait status."""
    WATCH = 6
    """To the zygote: calls run, so look at what the processes start."""
    REST = 7
    """To the zygote: no call runs."""
    EXCEEDED = 8
    """Process `number` exceeds a limit; `value` is an `Excess`."""
    KILLED = 9
    """Process `number` was killed, or had already ended."""


class Wiring(NamedTuple):
    """What connects an isolated process to its server."""

    connection: socket.socket
    """Carries what the server answers to the process, and calls that are too large for the inbox."""
    inbox: int
    """The descriptor that calls are read from; see `inbox`."""
    answers: int
    """The descriptor that the process writes its frames to."""


ChildWork = Callable[[int, Wiring], None]
"""The function that a process runs, with the number of its pool and its connections to the server."""
Profiles = Callable[[int], Isolate]
"""Returns the settings of a pool."""


def fork(work: ChildWork, profiles: Profiles) -> tuple[int, socket.socket]:
    """Fork a zygote from this process. Return its pid and the socket it is controlled by.

    Args:
        work: Run in every process that the zygote forks.
        profiles: The settings of the pools.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    # Until the zygote is set up, it would handle a signal as the server does.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which `nursery` logs
            pid = os.fork()
        if pid == 0:
            _be(theirs, work, profiles)
    except BaseException:
        ours.close()
        theirs.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return pid, ours


def _be(control: socket.socket, work: ChildWork, profiles: Profiles) -> NoReturn:
    code = 1
    try:
        _forget_loop()
        gc.disable()
        gc.freeze()  # collecting garbage of the server could close descriptors in use here
        os.setsid()  # signals from a terminal are for the server
        _silence(control.fileno())
        signal.pthread_sigmask(signal.SIG_SETMASK, _BLOCKED)
        system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
        _Zygote(control, work, profiles).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _forget_loop() -> None:
    """Detach from the event loop of the server, if one was running."""
    signal.set_wakeup_fd(-1)
    if "asyncio" in sys.modules:
        import asyncio

        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)


def _silence(kept: int) -> None:
    """Point the server's sockets, pipes and event descriptors to nowhere.

    They are not closed, so that objects which still hold their numbers do not close something else
    later. Files stay open: the application may log to one.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for each in list(Path("/proc/self/fd").iterdir()):
        number = int(each.name)
        with suppress(OSError):
            mode = os.fstat(number).st_mode
            if number in (kept, nowhere, 1, 2):
                continue
            if number == 0 or not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISDIR(mode)):
                os.dup2(nowhere, number, inheritable=number == 0)
    os.dup2(2, 1)  # what is printed must not be read as a message
    os.close(nowhere)


def _print_to(output: int) -> None:
    """Send everything that is printed to this descriptor."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    faulthandler.enable(file=2)  # says where it crashed


def _apart(descriptor: int) -> int:
    """Move a descriptor away from the numbers that files get.

    If a tool closes a descriptor that is not its own and then opens a file, the file must not get its
    number: answers would be written to the file.
    """
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _APART)
    except OSError:  # so many descriptors are not allowed
        return descriptor
    os.close(descriptor)
    return moved


def _ignore(number: int, frame: object) -> None:
    """Do nothing. Unlike `SIG_IGN`, this is not passed on to programs that are started."""


_FAULTS = {*(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)}
_FAULTS |= {signal.SIGTRAP, signal.SIGSYS}
_BLOCKED = signal.valid_signals() - _FAULTS - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
"""Signals that could end or stop the zygote.

They are not handled: many handlers at once would need more than the signal stack that `faulthandler`
sets up in an application that uses it.
"""
_DROPPED_AT_ONCE = 1000  # most signals that are dropped before the zygote does something else
_OF_THE_SERVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are meant for the server when they are sent to all processes."""


class _Zygote:
    """The loop of a zygote."""

    def __init__(
        self,
        control: socket.socket,
        work: ChildWork,
        profiles: Profiles,
    ) -> None:
        self._control = control
        self._work = work
        self._profiles = profiles
        self._began_with = family.own_memory()
        self._watching = False
        self._calls = False  # whether the server said that calls are running
        self._crowded: set[int] = set()  # pids that were reported as crowded
        self._pools: dict[int, Isolate] = {}  # the settings of the processes, by pid
        self._numbers: dict[int, int] = {}  # of the processes, by pid
        self._pids: dict[int, int] = {}
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._wakes = wake
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Do what the server asks for until it ends."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poller.poll(_PERIOD if self._watching else None):
                    if descriptor == self._wake.fileno():
                        with suppress(BlockingIOError):
                            self._wake.recv(4096)
                    elif not self._take():
                        return
                _drop_signals()
                self._reap()
                if self._watching:
                    self._look()
        finally:
            self._end()

    def _take(self) -> bool:
        """Do what the server asks for; False when the server is gone."""
        try:
            record, descriptors, _, _ = socket.recv_fds(self._control, RECORD.size, _DESCRIPTORS)
        except ConnectionError:
            return False
        if not record:
            return False
        op, number, pool, _ = RECORD.unpack(record)
        if op == Op.FORK:
            self._fork(number, pool, descriptors)
        elif op == Op.KILL:
            if number in self._pids:
                self._kill(self._pids[number])
            self._report(Op.KILLED, number, 0)
        elif op in (Op.WATCH, Op.REST):
            self._calls = op == Op.WATCH
            self._watching = True  # until nothing is found that could grow
        return True

    def _fork(self, number: int, pool: int, descriptors: list[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(Op.FAILED, number, error.errno or 0)
        else:
            if pid == 0:
                self._become(pool, parent, *descriptors)
            self._numbers[pid] = number
            self._pids[number] = pid
            self._pools[pid] = self._profiles(pool)
            self._report(Op.FORKED, number, pid)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become(
        self, pool: int, parent: int, connection: int, inbox: int, answers: int, output: int
    ) -> NoReturn:
        """Run as an isolated process."""
        code = 1
        try:
            os.setsid()
            system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(code)  # the zygote died before that was set
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            signal.set_wakeup_fd(-1)
            for number in _OF_THE_SERVER:
                signal.signal(number, _ignore)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            nowhere = os.open(os.devnull, os.O_RDWR)
            for each in (self._control, self._wake, self._wakes):
                os.dup2(nowhere, each.fileno(), inheritable=False)
            os.close(nowhere)
            _print_to(output)
            gc.enable()
            connection, inbox, answers = map(_apart, (connection, inbox, answers))
            self._work(pool, Wiring(socket.socket(fileno=connection), inbox, answers))
            code = 0
        except SystemExit as end:  # the reason was sent already
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Report processes that have ended, and kill what they left behind."""
        while True:
            try:
                # Its group is killed before it is waited for: until then the number is not reused.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            _kill_group(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            number = self._numbers.pop(found.si_pid, None)
            self._crowded.discard(found.si_pid)
            if number is not None:
                del self._pids[number], self._pools[found.si_pid]
                self._report(Op.ENDED, number, status)
        for pid in _children():
            if pid not in self._numbers:  # it became our child when its parent ended
                family.end(pid)

    def _look(self) -> None:
        """Kill families that exceed a limit."""
        self._watching = self._calls or any(map(family.children, self._numbers))
        for pid, number in self._numbers.items():
            found = family.excess(pid, self._pools[pid], self._began_with)
            if found is None or (found == Excess.CROWDED and pid in self._crowded):
                continue
            self._report(Op.EXCEEDED, number, found)
            if found == Excess.CROWDED:
                self._crowded.add(pid)
            else:
                self._kill(pid)

    def _kill(self, pid: int) -> None:
        family.end(pid)
        _kill_group(pid)

    def _report(self, op: Op, number: int, value: int) -> None:
        with suppress(OSError):  # the server is gone, which the next read shows
            self._control.send(RECORD.pack(op, number, 0, value))

    def _end(self) -> None:
        """Kill everything, and wait until nothing is left."""
        for pid in self._numbers:
            self._kill(pid)
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) is not None:
                _kill_group(found.si_pid)
                os.waitpid(found.si_pid, 0)
                for pid in _children():
                    family.end(pid)


def _drop_signals() -> None:
    """Drop pending blocked signals: they count against a limit of the user."""
    for _ in range(_DROPPED_AT_ONCE):
        if signal.sigtimedwait(_BLOCKED, 0) is None:
            return


def _kill_group(pid: int) -> None:
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Return the children of this process, which has one thread."""
    try:
        return [int(each) for each in _CHILDREN.read_text().split()]
    except OSError:
        return []


_CHILDREN = Path("/proc/thread-self/children")


def other_threads() -> list[str]:
    """Return the names of the threads that a fork of this process would leave behind."""
    current = threading.current_thread()
    return [each.name for each in threading.enumerate() if each is not current]
