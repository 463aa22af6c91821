"""A server process and its pipes, held by hand: raw bytes in, lines out."""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("trap_server.py")
HANGS = 30.0  # seconds after which a test that waits gives up


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return kept | {"MCPEARL_LOG_LEVEL": "WARNING"}  # stderr is for what goes wrong


class StdioServer:
    """`trap_server.py` as a child process.

    >>> with StdioServer() as server:
    ...     server.initialize()
    ...     server.call("add", a=1, b=2)
    """

    def __init__(
        self,
        *arguments: str,
        reads: bool = True,
        stdin: Any = subprocess.PIPE,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None at the end of output
        self.stderr = b""
        self._ids = itertools.count(1)
        self._kept: list[dict[str, Any]] = []
        self._threads = [threading.Thread(target=self._read_errors, daemon=True)]
        if reads:
            self._threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "StdioServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(HANGS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 65536):
            self.stderr += data

    # Sending

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, *messages: Any) -> None:
        """Write messages, one per line, at once."""
        self.raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def request(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Send a request and give its id."""
        id = next(self._ids) if id is None else id
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else message | {"params": params})
        return id

    def start(self, tool: str, **arguments: Any) -> Any:
        """Call a tool without waiting; give the id of the call."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    # Receiving

    def next(self) -> dict[str, Any] | None:
        """The next message; None at the end of output."""
        return self._kept.pop(0) if self._kept else self.lines.get(timeout=HANGS)

    def answer_to(self, id: Any) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept for `next`."""
        kept: list[dict[str, Any]] = []
        while True:
            message = self.next()
            assert message is not None, f"the output ended; stderr: {self.stderr.decode()}"
            if message.get("id") == id and "method" not in message:
                self._kept = kept + self._kept
                return message
            kept.append(message)

    def ask(self, method: str, params: Any = None, id: Any = None) -> dict[str, Any]:
        return self.answer_to(self.request(method, params, id))

    def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        answer = self.ask(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": capabilities,
                "clientInfo": {"name": "driver", "version": "1"},
            },
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, wait, and give the whole answer."""
        return self.answer_to(self.start(tool, **arguments))

    def is_well(self) -> None:
        """A ping and a call succeed."""
        assert self.ask("ping")["result"] == {}
        assert self.call("add", a=1, b=2)["result"]["content"] == [{"type": "text", "text": "3"}]

    # Watching

    def has_said(self, text: bytes) -> bool:
        """Wait until a text came out on stderr, and return True."""
        return bool(wait_until(lambda: text in self.stderr, lambda: bytes(self.stderr)))

    def rss(self) -> int:
        """Resident memory of the process, in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def wait(self) -> int:
        """Wait for the process to end by itself."""
        return self.process.wait(HANGS)
