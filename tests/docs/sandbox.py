"""A place where the commands of the documentation are run: a folder, a home and a `PATH` of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import environment
from tests.docs.blocks import python_of
from tests.ports import free_port
from tests.waiting import PATIENCE, wait_until

SERVER = python_of("docs/command.md")  # has what the commands of all pages ask for
_SAYS_READY = re.compile(r"serves at|^console: http|watching ", re.MULTILINE)


class Sandbox:
    """Runs commands as a shell would, far from the files and ports of this computer.

    Args:
        folder: Where the commands run; a home is made in it.
        server: The text of `server.py`.
    """

    def __init__(self, folder: Path, server: str = SERVER) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.opened = folder / "opened.txt"
        programs = folder / "programs"
        (self.home / ".cursor").mkdir(parents=True)
        (self.home / ".config" / "fish" / "completions").mkdir(parents=True)
        programs.mkdir()
        arguments = ["-m", "mcpearl", "run", str(folder / "server.py"), "--stdio"]
        entry = {"command": sys.executable, "args": arguments}
        servers = json.dumps({"mcpServers": {"weather": entry}})
        (folder / "server.py").write_text(server)
        (folder / "mcp.json").write_text(servers)
        (folder / ".env").write_text("GREETING=hello\n")
        (self.home / ".cursor" / "mcp.json").write_text(servers)
        self._program(programs / "mcpearl", f'exec "{sys.executable}" -m mcpearl "$@"')
        self._program(programs / "python", f'exec "{sys.executable}" "$@"')
        self._program(programs / "xdg-open", f'echo "$1" >> "{self.opened}"')
        self.environment = environment(
            self.home,
            PATH=os.pathsep.join([str(programs), os.environ["PATH"]]),
            BROWSER=str(programs / "xdg-open"),
        )

    @staticmethod
    def _program(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _start(self, line: str, shell: str, cwd: Path | None) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [shell, "-c", f"exec {line}" if _is_one_program(line) else line],
            cwd=cwd or self.folder,
            env={**self.environment, "MCPEARL_PORT": str(free_port())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, line: str, shell: str = "bash", cwd: Path | None = None) -> str:
        """Run a command to its end, and return what it wrote; fail if it failed."""
        with self._start(line, shell, cwd) as process:
            written, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{line}\nexit code {process.returncode}\n{written}"
        return written

    @contextmanager
    def running(self, line: str, cwd: Path | None = None) -> Iterator[str]:
        """Run a command that goes on, and yield what it wrote until it was ready; stop it after."""
        written: list[str] = []
        with self._start(line, "bash", cwd) as process:
            assert process.stdout is not None
            reading = threading.Thread(target=lambda: written.extend(process.stdout or ()))
            reading.start()
            try:

                def is_ready() -> bool:
                    ended = process.poll() is not None and not reading.is_alive()
                    found = _SAYS_READY.search("".join(written)) is not None
                    assert found or not ended, f"{line}\n{''.join(written)}"
                    return found

                wait_until(is_ready, lambda: f"{line}\n{''.join(written)}")
                yield "".join(written)
                process.send_signal(signal.SIGINT)
                code = process.wait(PATIENCE)
            finally:
                process.kill()
                reading.join(PATIENCE)
        assert code in (0, 130), f"{line}\nexit code {code}\n{''.join(written)}"

    @contextmanager
    def serving(self, file: str = "server.py") -> Iterator[str]:
        """Serve a file over HTTP while a context lasts, and yield its address."""
        line = f"mcpearl run {file} --http --port {free_port()}"
        with self.running(line) as said:
            found = re.search(r"serves at (\S+?)[;\s]", said)
            assert found, said
            yield found[1]


def _is_one_program(line: str) -> bool:
    """Whether a line starts one program, which then gets the signals itself."""
    return not re.search(r"[;&|<>$]|^\w+=", line)
