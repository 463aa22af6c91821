"""The client's end of stdio: a server started as a child process.

The child gets a clean environment, its own process group and a guard: a tiny shell that waits on a
pipe and ends the group when this process dies without having said goodbye. Closing goes from closed
input over SIGTERM to SIGKILL. When the child dies, the error says how, with its last words.
"""

import asyncio
import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol
from mcpearl.transports.transport import Receiver

logger = logging.getLogger("mcpearl.client.stderr")

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

# Told "done" it just ends; cut off, it ends the group: politely, then not.
_GUARD = (
    "trap '' TERM INT HUP; read word && exit 0; "
    'kill -TERM -"$1" 2>/dev/null; sleep 2; kill -KILL -"$1" 2>/dev/null'
)


def safe_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the variables a child may see: the harmless ones of this process, and `more`."""
    kept = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    # Exported shell functions are code; nobody asked for them.
    clean = {name: value for name, value in kept.items() if not value.startswith("()")}
    return {**clean, **(more or {})}


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
        self._process: _ChildProtocol | None = None
        self._guard: _Guard | None = None

    @property
    def name(self) -> str:
        """What to call the process in messages."""
        return " ".join(self.command)

    @property
    def pid(self) -> int | None:
        """The process id, once started."""
        return None if self._process is None else self._process.pid

    async def open(self, receiver: Receiver) -> None:
        """Start the process."""
        loop = asyncio.get_running_loop()
        stream = StreamProtocol(receiver, self._limits)
        child = _ChildProtocol(self.name, stream, self._on_stderr)
        try:
            await loop.subprocess_exec(
                lambda: child,
                *self.command,
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
        self._process = child
        self._guard = _Guard(child.pid)

    def send(self, message: bytes) -> None:
        """Take one message for the server."""
        if self._process is not None:
            self._process.stream.send(message)

    def flush(self) -> None:
        """Write what was taken."""
        if self._process is not None:
            self._process.stream.outbox.flush()

    def pause(self) -> None:
        """Stop reading."""
        if self._process is not None:
            self._process.read(False)

    def resume(self) -> None:
        """Read again."""
        if self._process is not None:
            self._process.read(True)

    async def close(self) -> None:
        """End the process and everything it started in its group."""
        child = self._process
        if child is None:
            return
        self._process = None
        child.stream.outbox.flush()
        try:
            await self._end(child)
        finally:
            # Also reached when this is cancelled half-way: then without waiting.
            _signal_group(child.pid, signal.SIGKILL)
            if self._guard is not None:
                self._guard.release()
            child.stream.finish(None)

    async def _end(self, child: "_ChildProtocol") -> None:
        child.close_input()
        if await child.exited(self._grace):
            return
        _signal_group(child.pid, signal.SIGTERM)
        if await child.exited(self._grace):
            return
        _signal_group(child.pid, signal.SIGKILL)
        await child.exited(self._grace)


class _ChildProtocol(asyncio.SubprocessProtocol):
    """The loop's side of the process: its three pipes and its end."""

    def __init__(self, name: str, stream: StreamProtocol, on_stderr: Callable[[str], None]) -> None:
        self._name = name
        self.stream = stream
        self._on_stderr = on_stderr
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._exit = asyncio.Event()
        self._open_pipes = {1, 2}
        self.pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Loops other than asyncio's have transports of their own classes, with these methods.
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        writer = self._transport.get_pipe_transport(0)
        self.stream.outbox.attach(cast("asyncio.WriteTransport", writer))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.stream.data_received(data)
        else:
            self._stderr(data)

    def pause_writing(self) -> None:
        self.stream.pause_writing()

    def resume_writing(self) -> None:
        self.stream.resume_writing()

    def _stderr(self, data: bytes) -> None:
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[-_LONGEST_LINE:]
        for line in lines:
            text = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
            self._lines.append(text)
            try:
                self._on_stderr(text)
            except Exception:
                logger.exception("the stderr callback raised")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if self._exit.is_set() and not self._open_pipes:
            self._gone()
        elif fd == 1:
            # It cannot answer any more. Most likely it is ending: its exit code says more.
            self._loop.call_later(_LAST_WORDS, self._gone)

    def process_exited(self) -> None:
        self._exit.set()
        if self._open_pipes:
            self._loop.call_later(_LAST_WORDS, self._gone)
        else:
            self._gone()

    def _gone(self) -> None:
        """Report the end to whoever waits for answers."""
        if self.stream.finished:
            return
        code = self._transport.get_returncode() if self._transport is not None else None
        if self._partial:
            self._lines.append(self._partial.decode("utf-8", "replace"))
        self.stream.finish(
            ConnectionLost(
                f"the server process `{self._name}` {_how_it_ended(code)}",
                maybe_executed=True,
                exit_code=code,
                stderr="\n".join(self._lines),
            )
        )

    def read(self, on: bool) -> None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(1)
        if pipe is None or pipe.is_closing():
            return
        reader = cast("asyncio.ReadTransport", pipe)
        if on:
            reader.resume_reading()
        else:
            reader.pause_reading()

    def close_input(self) -> None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is not None:
            pipe.close()

    async def exited(self, seconds: float) -> bool:
        """Wait for the end of the process; False when it takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._exit.wait()
        except TimeoutError:
            return False
        return True


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
        """Say that all is well."""
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(b"done\n")
            self._shell.stdin.close()
        except OSError:
            pass
        try:
            self._shell.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.wait()


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its output but is still running"
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"exited with code {code}"


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass
