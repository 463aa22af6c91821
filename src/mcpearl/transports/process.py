"""The client's end of stdio: a server started as a child process.

The child gets a clean environment, its own process group and a guard: a tiny shell that waits on a
pipe and ends the group when this process dies without having said goodbye. Closing goes from closed
input over SIGTERM to SIGKILL. When the child dies, the error says how, with its last words.
"""

import asyncio
import logging
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol
from mcpearl.transports.transport import Receiver

logger = logging.getLogger("mcpearl.client.stderr")

# Options after which the next argument is what is run.
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
_LAST_WORDS = 0.1  # seconds to wait for output a dying process has already written

# Cut off, it ends the group: politely, then not. Its standard input never says anything.
_GUARD = (
    "trap '' TERM INT HUP; read nothing; "
    'kill -TERM -"$1" 2>/dev/null; sleep 2; kill -KILL -"$1" 2>/dev/null'
)


def safe_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the variables a child may see: the harmless ones of this process, and `more`."""
    kept = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    # Exported shell functions are code; nobody asked for them.
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

    >>> transport = ProcessTransport(["python", "server.py"], env={"API_KEY": "…"})
    """

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
        self._on_stderr = on_stderr or (lambda line: logger.info("%s: %s", self.name, line))
        self._grace = grace
        self._child: _Child | None = None

    @property
    def name(self) -> str:
        """What to call the process in messages."""
        return command_name(self.command)

    @property
    def pid(self) -> int | None:
        """The process id, once started."""
        return None if self._child is None else self._child.pid or None

    async def open(self, receiver: Receiver) -> None:
        """Start the process."""
        stream = StreamProtocol(receiver, self._limits)
        self._child = _Child(self.name, self._start(), stream, self._on_stderr)
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

    def send(self, message: bytes) -> None:
        """Take one message for the server."""
        if self._child is not None:
            self._child.stream.send(message)

    def flush(self) -> None:
        """Write what was taken."""
        if self._child is not None:
            self._child.stream.outbox.flush()

    def pause(self) -> None:
        """Stop reading."""
        if self._child is not None:
            self._child.read(False)

    def resume(self) -> None:
        """Read again."""
        if self._child is not None:
            self._child.read(True)

    async def close(self) -> None:
        """End the process and everything it started in its group."""
        child = self._child
        if child is None:
            return
        self._child = None
        child.stream.outbox.flush()
        try:
            await self._end(child)
        finally:
            child.close()  # also reached when this is cancelled half-way: then without waiting

    async def _end(self, child: "_Child") -> None:
        child.close_input()
        if await child.exited(self._grace):
            return
        child.signal(signal.SIGTERM)
        if await child.exited(self._grace):
            return
        child.signal(signal.SIGKILL)
        await child.exited(self._grace)


class _Child:
    """A running process: its three pipes, its guard and its end.

    The loop's own subprocesses are not used: on uvloop a child holds a second copy of each pipe and
    of whatever else is inheritable, so that closing its output could not be seen.
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
        self._talking = {1, 2}  # the pipes that may still bring something
        self._exit = asyncio.Event()
        self._closing = False
        self._watch: int | None = None  # a descriptor that is readable when the process has ended
        self._guard: _Guard | None = None

    async def open(self) -> None:
        self._guard = _Guard(self.pid)
        self._watch_exit()
        connecting = self._loop.create_task(self._connect())
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await connecting  # a turn of the loop or two; a pipe is the loop's wholly or not at all
            raise

    async def _connect(self) -> None:
        process, loop = self._process, self._loop
        writer, _ = await loop.connect_write_pipe(lambda: _Pipe(self, 0), process.stdin)
        self._pipes[0] = writer
        self.stream.outbox.attach(writer)
        self._pipes[2], _ = await loop.connect_read_pipe(lambda: _Pipe(self, 2), process.stderr)
        self._pipes[1], _ = await loop.connect_read_pipe(lambda: _Pipe(self, 1), process.stdout)

    def _watch_exit(self) -> None:
        try:
            self._watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not this system
            threading.Thread(target=self._wait, name="mcpearl-process", daemon=True).start()
        else:
            self._loop.add_reader(self._watch, self._exited)

    def _wait(self) -> None:
        self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._exited)
        except RuntimeError:
            pass  # the loop is gone

    # What the pipes say

    def data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.stream.data_received(data)
        else:
            self._stderr(data)

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
            # It cannot answer any more. Most likely it is ending: its exit code says more.
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
        # What is left of the group goes too, as long as its number cannot belong to others.
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
        """Report the end to whoever waits for answers."""
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
                stderr="\n".join(self._lines),
            )
        )

    def close_input(self) -> None:
        self._closing = True
        pipe = self._pipes.get(0)
        if pipe is not None:
            pipe.close()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and what it started in its group; nobody, once it has ended."""
        if self.pid:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    async def exited(self, seconds: float) -> bool:
        """Wait for the end of the process; False when it takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._exit.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Let go of the process, whatever state it is in."""
        self._closing = True
        if not self._exit.is_set():
            self.signal(signal.SIGKILL)
            try:
                self._process.wait(_LAST_WORDS)
            except subprocess.TimeoutExpired:
                pass  # stuck in the system; it is reaped when it gets out
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


class _Pipe(asyncio.Protocol):
    """One pipe of a child, as the loop sees it."""

    def __init__(self, child: _Child, fd: int) -> None:
        self._child = child
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._child.data_received(self._fd, data)

    def pause_writing(self) -> None:
        self._child.stream.pause_writing()

    def resume_writing(self) -> None:
        self._child.stream.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.pipe_lost(self._fd)


class _Guard:
    """A shell that outlives this process for a moment, only to end what this process started."""

    def __init__(self, group: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "mcpearl-guard", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End it: there is nothing left to guard."""
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
