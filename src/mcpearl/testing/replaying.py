"""A recording as a client: it sends a server what was recorded, and compares the answers."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from mcpearl.client.targets import Reachable, ReachOptions, find_target
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.versions import SUPPORTED, VERSIONS
from mcpearl.testing.recording import (
    Departed,
    RecordedMessage,
    difference,
    essence,
    label,
    read_recording,
)
from mcpearl.transports.memory import memory_pair
from mcpearl.transports.tap import about
from mcpearl.transports.transport import Transport
from mcpearl.types.base import RequestId

# Values that a server makes up: a recorded one is replaced by the one of this conversation.
_MADE_UP = ("requestState", "taskId", "nextCursor")


async def replay(
    file: str | Path,
    target: Reachable,
    *,
    ignore: Collection[str] = (),
    timeout: float = 30.0,
) -> None:
    """Send a server what a recorded client sent, and raise `Departed` if an answer differs.

    >>> await replay("session.jsonl", app, ignore=["timestamp"])

    Args:
        file: The recording.
        target: The server: whatever `Client` takes.
        ignore: Names of members whose values do not count, such as times.
        timeout: Seconds for each answer.
    """
    entries = read_recording(file)
    async with _opened(target) as (transport, heard):
        await _Replay(Path(file), entries, transport, heard, frozenset(ignore), timeout).run()


class _Replay:
    """One conversation of a recorded client with a server."""

    def __init__(
        self,
        file: Path,
        entries: list[RecordedMessage],
        transport: Transport,
        heard: "_ReplayReceiver",
        ignored: frozenset[str],
        timeout: float,
    ) -> None:
        self._file = file
        self._entries = entries
        self._transport = transport
        self._heard = heard
        self._ignored = ignored
        self._timeout = timeout
        self._made_up: dict[str, Any] = {}
        self._version = _version(entries)

    async def run(self) -> None:
        for entry in self._entries:
            if entry.direction == "sent":
                self._send(entry)
            else:
                await self._expect(entry)

    def _send(self, entry: RecordedMessage) -> None:
        message = _replaced(entry.message, self._made_up)
        modern = VERSIONS[self._version].modern
        begins = message.get("method") == "initialize"
        description = about(message, None if begins else self._version, modern)
        self._transport.send(msgspec.json.encode(message), description)
        self._transport.flush()

    async def _expect(self, entry: RecordedMessage) -> None:
        """Wait for the server's counterpart of a recorded message, and compare the two."""
        try:
            async with asyncio.timeout(self._timeout):
                actual = await self._heard.next(entry.message)
        except TimeoutError:
            what = f"{label(entry.message)} did not come within {self._timeout:g} s"
            raise Departed(self._file, entry.line, what) from None
        except ConnectionLost as lost:
            what = f"the connection was lost before {label(entry.message)} came: {lost.reason}"
            raise Departed(self._file, entry.line, what) from None
        self._learn(entry.message, actual)
        recorded = _without(essence(entry.message))
        how = difference(recorded, _without(essence(actual)), self._ignored)
        if how is not None:
            raise Departed(self._file, entry.line, f"in {label(actual)}, {how}")

    def _learn(self, recorded: Any, actual: Any) -> None:
        """Note the values that the server made up, to send them in place of the recorded ones."""
        if isinstance(recorded, dict) and isinstance(actual, dict):
            for name, value in recorded.items():
                if name in _MADE_UP and isinstance(value, str) and name in actual:
                    self._made_up[value] = actual[name]
                elif name in actual:
                    self._learn(value, actual[name])


def _version(entries: list[RecordedMessage]) -> str:
    """Return the version of the protocol that a recorded conversation was in."""
    for entry in entries:
        result = entry.message.get("result")
        if isinstance(result, dict) and result.get("protocolVersion") in SUPPORTED:
            return str(result["protocolVersion"])
    return SUPPORTED[0]


def _without(value: Any) -> Any:
    """Return a message without the values that a server makes up."""
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in _MADE_UP}
    return [_without(each) for each in value] if isinstance(value, list) else value


def _replaced(value: Any, made_up: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(each, made_up) for name, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, made_up) for each in value]
    return made_up.get(value, value) if isinstance(value, str) else value


class _ReplayReceiver:
    """Receives the messages of the server."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._lost: ConnectionLost | None = None
        self._news = asyncio.Event()

    async def next(self, like: dict[str, Any]) -> dict[str, Any]:
        """Return the first message that is an answer to the same request, or has the same method."""
        while True:
            for message in self._messages:
                if _is_like(message, like):
                    self._messages.remove(message)
                    return message
            if self._lost is not None:
                raise self._lost
            self._news.clear()
            await self._news.wait()

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        for frame in frames:
            raw = frame if isinstance(frame, bytes) else msgspec.json.encode(frame)
            with suppress(msgspec.DecodeError):
                self._messages.append(msgspec.json.decode(raw))
        self._news.set()

    def ended(self) -> None:
        pass

    def lost(self, reason: Exception | None) -> None:
        self._lost = ConnectionLost(str(reason) if reason is not None else "it was closed")
        self._news.set()

    def writable(self, flowing: bool) -> None:
        pass

    def failed(self, request_id: RequestId, error: Exception) -> None:
        self.lost(error)

    def unsent(self, messages: list[bytes]) -> None:
        pass

    def held(self, request_id: RequestId | None, holding: bool) -> None:
        pass


def _is_like(message: dict[str, Any], like: dict[str, Any]) -> bool:
    if "method" in like:
        return bool(message.get("method") == like["method"])
    return "method" not in message and message.get("id") == like.get("id")


@asynccontextmanager
async def _opened(target: Reachable) -> AsyncIterator[tuple[Transport, _ReplayReceiver]]:
    """Open a transport to a server, without a client on it."""
    found = find_target(target, ReachOptions())
    heard = _ReplayReceiver()
    if found.server is None:
        assert found.transport is not None
        transport = found.transport(Limits())
        await transport.open(heard)
        try:
            yield transport, heard
        finally:
            await transport.close()
        return
    async with found.server.running():
        near, far = memory_pair()
        await found.server.connect(far)
        await near.open(heard)
        try:
            yield near, heard
        finally:
            await near.close()
