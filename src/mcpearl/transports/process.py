"""The client's end of stdio: a server started as a child process.

The child gets a clean environment, its own process group and a guard: a small shell that waits on a
pipe and kills the group when this process dies without closing the transport. Closing escalates: it
closes the input, then sends SIGTERM, then SIGKILL. When the child dies, the error has its exit code and
its last output.
"""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.transports.descendants import Strays
from mcpearl.transports.stream import StreamProtocol
from mcpearl.transports.transport import Receiver

logger = logging.getLogger("mcpearl.client")

# Arguments that cannot be secrets; the argument after them names what is run.
_HARMLESS_OPTIONS = frozenset({"-m", "-u", "-y", "--yes", "run", "exec"})
# An assignment, a login or query in an address, or a long word that mixes letters and digits.
_MAYBE_SECRET = re.compile(
    r"=|\?|://[^/]*@|(?<![\w+-])(?=[\w+-]*[0-9])(?=[\w+-]*[A-Za-z])[\w+-]{24,}"
)
SAFE_VARIABLES = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
_LAST_LINES = 20
_LONGEST_LINE = 4096
_LAST_WORDS = 0.1  # seconds to read output that a dying process has already written

# When its standard input closes, the guard ends the group: SIGTERM first, then SIGKILL.
_GUARD = (
    "trap '' TERM INT HUP; read nothing; "
    'kill -TERM -"$1" 2>/dev/null; sleep 2; kill -KILL -"$1" 2>/dev/null'
)


def safe_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables a child may see: the harmless ones of this process, and `more`."""
    kept = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    # Exported shell functions are code, which a child must not inherit unasked.
    clean = {name: value for name, value in kept.items() if not value.startswith("()")}
    return {**clean, **(more or {})}


def command_name(command: Sequence[str]) -> str:
    """Name a command in messages and logs: its program and what that runs, without options.

    Arguments may be secrets, so an argument that could be one is left out.
    """
    program, *arguments = command
    shown = [program]
    for argument in arguments:
        if argument not in _HARMLESS_OPTIONS:
            if not argument.startswith("-") and not _MAYBE_SECRET.search(argument):
                shown.append(argument)
            break
        shown.append(argument)
    return " ".join(shown if len(shown) == len(command) else [*shown, "…"])


class ProcessTransport:
    """A server process.

    >>> transport = ProcessTransport(["python", "server.py"], Limits(), env={"API_KEY": "…"})

    Args:
        command: The program and its arguments.
        limits: Bounds of the connection.
        env: Variables for the process, beside the harmless ones of this process.
        inherit_env: Whether the process sees all variables of this process.
        cwd: The directory the process starts in.
        on_stderr: Called with each line the process writes to stderr; by default they are written to
            stderr of this process.
        grace: Seconds between the steps of closing: closed input, SIGTERM, SIGKILL.
    """

    keeps_alive = False
    medium = "stdio"
    peer_address = None
    request = None
    session_id = None
    written = 0

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits,
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | Path | None = None,
        on_stderr: Callable[[str], None] | None = None,
        grace: float = 2.0,
    ) -> None:
        self.command = list(command)
        self._limits = limits
        self._env = {**os.environ, **(env or {})} if inherit_env else safe_environment(env)
        self._cwd = cwd
        self._on_stderr = on_stderr or _show
        self._grace = grace
        self._child: _ProcessChild | None = None
        unopened = StreamProtocol(limits)
        unopened.finish(None)
        self._use(unopened)

    def _use(self, stream: StreamProtocol) -> None:
        """Send on this stream. Each process has its own, so it gets no message for an earlier one."""
        self.send = stream.send
        self.flush = stream.flush

    def tally(self, count: Callable[[int], None]) -> None:
        """Count nothing: every process has a stream of its own."""

    @property
    def name(self) -> str:
        """What to call the process in messages."""
        return command_name(self.command)

    @property
    def pid(self) -> int | None:
        """The process id, once started."""
        return None if self._child is None else self._child.pid or None

    @property
    def last_words(self) -> str:
        """The last lines that the process wrote to stderr."""
        return "" if self._child is None else self._child.last_words

    async def open(self, receiver: Receiver) -> None:
        """Start the process."""
        stream = StreamProtocol(self._limits)
        stream.receiver = receiver
        self._child = _ProcessChild(self.name, self._start(), stream, self._on_stderr)
        self._use(stream)
        await self._child.open()

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ConnectionLost(
                f"cannot start `{self.name}`: {error.filename} was not found"
            ) from error
        except OSError as error:
            raise ConnectionLost(f"cannot start `{self.name}`: {error}") from error

    def pause(self) -> None:
        """Stop reading."""
        if self._child is not None:
            self._child.read(False)

    def resume(self) -> None:
        """Read again."""
        if self._child is not None:
            self._child.read(True)

    async def close(self) -> None:
        """End the process and everything it started, as far as it can be found."""
        child = self._child
        if child is None:
            return
        self._child = None
        self.flush()
        strays = child.strays()  # now: when it has ended, its children cannot be found any more
        try:
            await self._end(child)
        finally:
            child.close()  # also when cancelled half-way: then without waiting
            strays.kill()

    async def _end(self, child: "_ProcessChild") -> None:
        child.close_input()
        if await child.exited(self._grace):
            return
        child.signal(signal.SIGTERM)
        if await child.exited(self._grace):
            return
        child.signal(signal.SIGKILL)
        await child.exited(self._grace)


class _ProcessChild:
    """A running process: its three pipes, its guard and its end.

    The loop's own subprocesses are not used: on uvloop a child holds a second copy of each pipe and
    of everything else that is inheritable, so that closing its output would go unnoticed.
    """

    def __init__(
        self,
        name: str,
        process: "subprocess.Popen[bytes]",
        stream: StreamProtocol,
        on_stderr: Callable[[str], None],
    ) -> None:
        self.stream = stream
        self.pid = process.pid  # also of its group; 0 once it has ended
        self._name = name
        self._process = process
        self._on_stderr = on_stderr
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._talking = {1, 2}  # the pipes that may still bring output
        self._exit = asyncio.Event()
        self._closing = False
        self._watch: int | None = None  # a descriptor that becomes readable when the process ends
        self._guard: _ChildGuard | None = None

    async def open(self) -> None:
        self._guard = _ChildGuard(self.pid)
        self._watch_exit()
        connecting = self._loop.create_task(self._connect())
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await connecting  # takes an iteration or two; no pipe may be left half-connected
            raise

    async def _connect(self) -> None:
        process, loop = self._process, self._loop
        writer, _ = await loop.connect_write_pipe(lambda: _Pipe(self, 0, _unread), process.stdin)
        self._pipes[0] = writer
        self.stream.outbox.attach(writer)
        self._pipes[2], _ = await loop.connect_read_pipe(
            lambda: _Pipe(self, 2, self._stderr), process.stderr
        )
        self._pipes[1], _ = await loop.connect_read_pipe(
            lambda: _Pipe(self, 1, self.stream.take_bytes), process.stdout
        )

    def _watch_exit(self) -> None:
        try:
            self._watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this system
            threading.Thread(target=self._wait, name="mcpearl-process", daemon=True).start()
        else:
            self._loop.add_reader(self._watch, self._exited)

    def _wait(self) -> None:
        self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._exited)
        except RuntimeError:
            pass  # the loop is gone

    # The pipes

    @property
    def last_words(self) -> str:
        return "\n".join(self._lines)

    def _stderr(self, data: bytes) -> None:
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[:_LONGEST_LINE]
        for line in lines:
            self._stderr_line(line)

    def _stderr_line(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
        self._lines.append(text)
        try:
            self._on_stderr(text)
        except Exception:
            logger.exception("the stderr callback raised")

    def pipe_lost(self, fd: int) -> None:
        self._pipes.pop(fd, None)
        self._talking.discard(fd)
        if fd == 2 and self._partial:
            self._stderr_line(self._partial)
            self._partial = b""
        if self._exit.is_set() and not self._talking:
            self._gone()
        elif fd == 1 or (fd == 0 and not self._closing):
            # It cannot answer any more. Most likely it is exiting, and its exit code says why.
            self._loop.call_later(_LAST_WORDS, self._gone)

    def read(self, on: bool) -> None:
        pipe = self._pipes.get(1)
        if pipe is None or pipe.is_closing():
            return
        reader = cast("asyncio.ReadTransport", pipe)
        if on:
            reader.resume_reading()
        else:
            reader.pause_reading()

    # Its end

    def _exited(self) -> None:
        if self._exit.is_set():
            return
        if self._watch is not None:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None
        # Kill the rest of the group while its number cannot have been reused.
        self.signal(signal.SIGKILL)
        self.pid = 0
        self._process.wait()
        if self._guard is not None:
            self._guard.release()
        self._exit.set()
        if self._talking:
            self._loop.call_later(_LAST_WORDS, self._gone)
        else:
            self._gone()

    def _gone(self) -> None:
        """Report the end of the process."""
        if self.stream.finished:
            return
        code = self._process.returncode
        if self._partial:
            self._lines.append(self._partial.decode("utf-8", "replace"))
            self._partial = b""
        self.stream.finish(
            ConnectionLost(
                f"the server process `{self._name}` {_how_it_ended(code)}",
                maybe_executed=True,
                exit_code=code,
                stderr=self.last_words,
            )
        )

    def strays(self) -> Strays:
        """Return the processes it started that have left its group."""
        return Strays(self.pid)

    def close_input(self) -> None:
        self._closing = True
        pipe = self._pipes.get(0)
        if pipe is not None:
            pipe.close()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process group, unless the process has ended."""
        if self.pid:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    async def exited(self, seconds: float) -> bool:
        """Wait for the process to exit; return False when it takes longer than `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._exit.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Release the process, whatever state it is in."""
        self._closing = True
        if not self._exit.is_set():
            self.signal(signal.SIGKILL)
            try:
                self._process.wait(_LAST_WORDS)
            except subprocess.TimeoutExpired:
                pass  # stuck in the kernel; it is reaped later
            else:
                self._exited()
        files = (self._process.stdin, self._process.stdout, self._process.stderr)
        for fd, file in enumerate(files):
            pipe = self._pipes.get(fd)
            if pipe is not None:
                pipe.close()
            elif file is not None:
                file.close()
        self.stream.finish(None)


class _Pipe(asyncio.BaseProtocol):
    """One pipe of a child, as the loop sees it."""

    def __init__(
        self, child: _ProcessChild, fd: int, data_received: Callable[[bytes], Any]
    ) -> None:
        self.data_received = data_received  # called directly by the loop
        self._child = child
        self._fd = fd

    def eof_received(self) -> None:
        """Let the loop close the pipe."""

    def pause_writing(self) -> None:
        self._child.stream.pause_writing()

    def resume_writing(self) -> None:
        self._child.stream.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.pipe_lost(self._fd)


def _show(line: str) -> None:
    """Write a line of the child's stderr to that of this process, where people look for it."""
    if sys.stderr is not None:  # it is None in a program without a console
        print(line, file=sys.stderr, flush=True)


def _unread(data: bytes) -> None:
    """Ignore what cannot arrive: the pipe is written to."""


class _ChildGuard:
    """A shell that outlives this process just long enough to kill its child."""

    def __init__(self, group: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "mcpearl-guard", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the guard: there is nothing left to kill."""
        assert self._shell.stdin is not None
        self._shell.kill()
        self._shell.wait()
        self._shell.stdin.close()


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its input or output but is still running"
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"exited with code {code}"
