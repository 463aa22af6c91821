"""Running the command as a process, as people and scripts do."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.peers import prepared_here
from tests.waiting import PATIENCE, wait_until

COMMAND = [sys.executable, "-m", "mcpearl"]
LOADED_COMMAND = prepared_here(Path(__file__).with_name("command.py"))
WEATHER = Path(__file__).with_name("weather.py")


class Done(NamedTuple):
    """What a run of the command wrote, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def environment(home: Path | None = None, **added: str) -> dict[str, str]:
    """Return the environment of a run, without what would change how output looks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCPEARL_", "NO_COLOR"))}
    kept.pop("FORCE_COLOR", None)
    if home is not None:
        kept |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    return {**kept, **added}


def mcpearl(
    *arguments: str | Path,
    cwd: Path | None = None,
    given: str = "",
    home: Path | None = None,
    **env: str,
) -> Done:
    """Run the command to its end, in a process that has its modules loaded.

    With variables of the interpreter's own, it is started as people start it.
    """
    command = COMMAND if any(name.startswith("PYTHON") for name in env) else LOADED_COMMAND
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(home, **env),
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Screen:
    """The command on a terminal, to be typed at. What it wrote is in `text`.

    Args:
        arguments: the command line.
        cwd: the directory it runs in.
        columns: how wide the terminal is.
        program: what is run, if it is not the command.
        env: variables of its environment.
    """

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        columns: int = 100,
        program: list[str] = COMMAND,
        **env: str,
    ) -> None:
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**environment(), "TERM": "xterm-256color", **env},
        )
        os.close(theirs)
        self.raw = ""

    @property
    def text(self) -> str:
        """What was written, without colour."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw).replace("\r\n", "\n")

    def until(self, words: str) -> str:
        """Read until these words were written."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.text:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} was not written, but: {self.text}")
        return self.text

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
        try:
            read = os.read(self._end, 65536) if ready else b""
        except OSError:  # the other end is closed
            read = b""
        self.raw += read.decode(errors="replace")
        return bool(read)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def ended(self) -> int:
        """Read to the end, and return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._end)


class Serving:
    """The command serving in the background, at `url`.

    Args:
        arguments: the command line; a wire at an address is among it.
        cwd: the directory it runs in.
        env: variables of its environment.
    """

    def __init__(self, *arguments: str | Path, cwd: Path | None = None, **env: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(**env),
        )
        self.written: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.written.extend(self.process.stdout)

    def until(self, words: str, times: int = 1) -> str:
        """Wait until these words were written so many times, and return all that was."""

        def found() -> str:
            read_all = not self._reader.is_alive()
            text = "".join(self.written)
            if text.count(words) >= times:
                return text
            assert not read_all, f"{words!r} was not written, but: {text}"
            return ""

        return str(wait_until(found, lambda: f"{words!r} was not written, but: {self.written}"))

    @property
    def url(self) -> str:
        """The address that it says it serves at."""
        found = re.search(r"serves at (\S+?)[;\s]", self.until("serves at "))
        assert found
        return found[1]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
