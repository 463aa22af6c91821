"""Servers written by hand, to answer a client in ways no honest server would."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcpearl import Client
from mcpearl.client.handshake import legacy_servers
from mcpearl.protocol.framing import Frame
from mcpearl.transports.memory import MemoryTransport, memory_pair

Message = dict[str, Any]
EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": EVERYTHING,
    "ttlMs": 0,
    "cacheScope": "private",
}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": EVERYTHING,
    "serverInfo": {"name": "by hand", "version": "1"},
}


class Peer:
    """A server in memory that answers with functions by method and keeps what it was sent.

    A function gets the message; what it returns is the result, an `Error` is the error, and None is
    no answer at all.
    """

    def __init__(self, **answers: Callable[[Message], Any]) -> None:
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.received: list[Message] = []
        self.lost = False
        self._wire: MemoryTransport | None = None

    def __setitem__(self, method: str, answer: Callable[[Message], Any]) -> None:
        self.answers[method] = answer

    async def target(self) -> MemoryTransport:
        """Give the transport a client connects with."""
        near, far = memory_pair()
        self._wire = far
        await far.open(_Ear(self))
        return near

    def heard(self, message: Message) -> None:
        self.received.append(message)
        answer = self.answers.get(message.get("method", ""))
        if answer is None or "id" not in message:
            return
        result = answer(message)
        if isinstance(result, Error):
            self.send(id=message["id"], error=result.body)
        elif result is not None:
            self.send(id=message["id"], result=result)

    def send(self, **members: Any) -> None:
        self.send_raw(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def send_raw(self, message: bytes) -> None:
        assert self._wire is not None
        self._wire.send(message)

    def asked(self, method: str) -> list[Message]:
        """Everything the client sent with this method."""
        return [message for message in self.received if message.get("method") == method]

    def answered(self, id: Any) -> Message:
        """The client's one answer to a request of this server."""
        (answer,) = [m for m in self.received if "method" not in m and m.get("id") == id]
        return answer

    async def close(self) -> None:
        assert self._wire is not None
        await self._wire.close()


class Error:
    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        self.body = {"code": code, "message": message, "data": data}


class _Ear:
    """The `Receiver` of a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def received(self, frames: list[Frame]) -> None:
        for frame in frames:
            assert isinstance(frame, bytes)
            self._peer.heard(json.loads(frame))

    def ended(self) -> None:
        pass

    def lost(self, reason: Exception | None) -> None:
        self._peer.lost = True

    def writable(self, flowing: bool) -> None:
        pass


def modern_peer(**answers: Callable[[Message], Any]) -> Peer:
    """A peer that answers `server/discover`."""
    return Peer(server_discover=lambda _: DISCOVERED, **answers)


def legacy_peer(**answers: Callable[[Message], Any]) -> Peer:
    """A peer that answers `initialize` and knows no `server/discover`."""
    return Peer(
        server_discover=lambda _: Error(-32601, "Method not found"),
        initialize=lambda _: INITIALIZED,
        **answers,
    )


async def client_of(peer: Peer, **options: Any) -> Client:
    return Client(await peer.target(), **options)


# A server of its own process, in a few lines: `messages()` gives what the client sends and keeps it
# in a log, `answer` and `send` write, `welcome` does the handshake of the version it is asked in.
_PRELUDE = """
import json, os, signal, subprocess, sys, time
LOG = {log!r}
DISCOVERED = json.loads({discovered!r})
INITIALIZED = json.loads({initialized!r})

def send(**members):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **members}}) + "\\n")
    sys.stdout.flush()

def answer(message, result):
    send(id=message["id"], result=result)

def note(text):
    with open(LOG, "a") as log:
        log.write(text + "\\n")

def messages():
    while line := sys.stdin.readline():
        note(line.strip())
        yield json.loads(line)

def welcome(modern=True):
    for message in messages():
        if message.get("method") == "server/discover":
            if modern:
                answer(message, DISCOVERED)
                return
            send(id=message["id"], error={{"code": -32601, "message": "Method not found"}})
        elif message.get("method") == "initialize":
            answer(message, INITIALIZED)
        elif message.get("method") == "notifications/initialized":
            return
"""


class Script:
    """A server script in a file, and the log of what it was sent."""

    def __init__(self, folder: Path, body: str, name: str = "server") -> None:
        self.path = folder / f"{name}.py"
        self.log = folder / f"{name}.log"
        prelude = _PRELUDE.format(
            log=str(self.log),
            discovered=json.dumps(DISCOVERED),
            initialized=json.dumps(INITIALIZED),
        )
        self.path.write_text(prelude + textwrap.dedent(body))
        legacy_servers.clear()

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def received(self) -> list[Message]:
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def methods(self) -> list[str]:
        return [message.get("method", "") for message in self.received()]
