"""The process that serves, as its parent starts it and as it sees itself."""

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

_LOADED, _GO = b"L", b"G"
_PATIENCE = 15.0  # seconds that a child has to stop after it was asked to


class ServingProcess:
    """A serving process.

    Args:
        arguments: the command line after `mcpearl run`.
        sockets: listening sockets for it to serve on.
        on_stdio: whether its standard input and output are pipes to the parent.
    """

    def __init__(
        self, arguments: list[str], sockets: list[socket.socket], *, on_stdio: bool = False
    ) -> None:
        self._arguments = arguments
        self._sockets = sockets
        self._on_stdio = on_stdio
        self._process: asyncio.subprocess.Process | None = None
        self._failed = False  # it could not load its file, and ends by itself
        # To the child: loaded, go. It stays open: its end tells the child that the parent has gone.
        self._line: socket.socket | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process, once it is started."""
        assert self._process is not None
        return self._process

    async def load(self) -> bool:
        """Start the process; return whether it has loaded the server and waits to serve it."""
        ours, theirs = socket.socketpair()
        numbers = [theirs.fileno(), *(each.fileno() for each in self._sockets)]
        pipe = asyncio.subprocess.PIPE if self._on_stdio else asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mcpearl", "run", *self._arguments),
            *("--held-by", ",".join(map(str, numbers))),
            stdin=pipe,
            stdout=pipe if self._on_stdio else None,
            pass_fds=numbers,
            limit=64 * 1024 * 1024,
            # Compiled files are told apart by whole seconds; an edit can be faster.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C is for the parent, which stops its child
        )
        theirs.close()
        ours.setblocking(False)
        self._line = ours
        loaded = False
        with suppress(OSError):
            loaded = await asyncio.get_running_loop().sock_recv(ours, 1) == _LOADED
        self._failed = not loaded
        return loaded

    def go(self) -> None:
        """Let the process serve."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(_GO)

    async def stop(self) -> None:
        """Ask the process to stop, and kill it if it does not."""
        if self._process is None:
            return
        if not self._failed:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        if self._line is not None:
            self._line.close()
            self._line = None


def wait_to_serve(numbers: str) -> None:
    """In the child: take the sockets, say that the server is loaded, and wait until it may serve it.

    Args:
        numbers: the descriptors that the parent passed: the line to it, and sockets.
    """
    from mcpearl.net.systemd import inherited

    line, *sockets = (int(each) for each in numbers.split(","))
    for number in (line, *sockets):
        os.set_inheritable(number, False)
    inherited.adopt([socket.socket(fileno=number) for number in sockets])
    parent = socket.socket(fileno=line)
    parent.sendall(_LOADED)
    if parent.recv(1) != _GO:
        raise SystemExit(0)  # the parent has gone, or does not want it any more
    threading.Thread(target=_end_with, args=(parent,), name="mcpearl-parent", daemon=True).start()


def _end_with(parent: socket.socket) -> None:
    """Stop this process when its parent has gone, however it went."""
    with suppress(OSError):
        parent.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def folder_of(file: str) -> Path:
    """Return the directory whose changes matter to a file or module."""
    from mcpearl.cli.loading import split_name

    path = Path(split_name(file)[0])
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()
