"""A recording as a server: it gives a client the answers that were recorded."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from mcpearl.client.targets import Target
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.limits import Limits
from mcpearl.testing.recording import (
    Departed,
    RecordedMessage,
    difference,
    essence,
    label,
    read_recording,
    same,
)
from mcpearl.transports.transport import Outgoing, Receiver, Transport

_numbers = count(1)


class Playback:
    """A recording that stands in for the server. Every client gets the conversation from its beginning.

    What the client sends is compared with what it sent then; messages that it sent at once may come in
    any order. When it says something else, the connection ends, and the error names the line.

    >>> recorded = Playback("session.jsonl")
    >>> async with Client(recorded.target) as client:
    ...     await client.call_tool("add", {"a": 1, "b": 2})
    >>> recorded.check()                      # all of it was said

    Args:
        file: The recording.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = Path(file)
        self.departed: Departed | None = None
        """How the client departed from the recording, if it did."""
        self._entries = read_recording(self.file)
        self._transport: PlaybackTransport | None = None

    @property
    def target(self) -> Target:
        """The target to pass to `Client`."""
        return Target(
            f"recording:{self.file.name}", f"recording:{next(_numbers)}", transport=self._open
        )

    def _open(self, limits: Limits) -> "PlaybackTransport":
        self._transport = PlaybackTransport(self)
        return self._transport

    def depart(self, line: int, what: str) -> Departed:
        """Note that the client departed from the recording.

        Args:
            line: The line of the recording.
            what: The difference.
        """
        self.departed = Departed(self.file, line, what)
        return self.departed

    @property
    def entries(self) -> list[RecordedMessage]:
        """The messages of the recording."""
        return self._entries

    def check(self) -> None:
        """Raise `Departed` if the client said something else, or did not say everything."""
        if self.departed is not None:
            raise self.departed
        left = self.entries if self._transport is None else self._transport.left
        for entry in left:
            if entry.direction == "sent" and "method" in entry.message:
                raise Departed(self.file, entry.line, f"{label(entry.message)} was not sent")


def playback(file: str | Path) -> Target:
    """Return a recording as a target for `Client`; see `Playback`.

    >>> async with Client(playback("session.jsonl")) as client: ...

    Args:
        file: The recording.
    """
    return Playback(file).target


class PlaybackTransport(Transport):
    """The transport of a client that talks to a recording.

    Args:
        recording: The recording.
    """

    medium = "memory"
    keeps_alive = True

    def __init__(self, recording: Playback) -> None:
        self._recording = recording
        self.left = list(recording.entries)
        self._receiver: Receiver | None = None
        self._over = False
        self._ids: dict[Any, Any] = {}  # of the client's requests: recorded and actual

    async def open(self, receiver: Receiver) -> None:
        """Begin to play back."""
        self._receiver = receiver
        self._play()

    def send(self, message: bytes, about: Outgoing | None = None) -> None:
        """Compare a message of the client with the recording, and answer as it was answered."""
        if self._over:
            return
        sent: dict[str, Any] = msgspec.json.decode(message)
        expected = self._window()
        for entry in expected:
            if same(essence(entry.message), essence(sent)):
                self.left.remove(entry)
                self._match(entry.message, sent)
                asyncio.get_running_loop().call_soon(self._play)
                return
        if sent.get("method") == "notifications/cancelled":
            return  # whether a call is given up in time is a matter of luck
        self._depart(expected, sent)

    def _window(self) -> list[RecordedMessage]:
        """Return the messages of which the client has to send one now."""
        window = []
        for entry in self.left:
            if entry.direction == "received":
                break
            window.append(entry)
        return window

    def _match(self, recorded: dict[str, Any], sent: dict[str, Any]) -> None:
        if "method" not in recorded:
            return
        if "id" in recorded:
            self._ids[recorded["id"]] = sent.get("id")
        was, is_now = _token(recorded), _token(sent)
        if was is not None:
            self._ids[was] = is_now

    def _play(self) -> None:
        """Deliver what the server said before the client said more."""
        while self.left and self.left[0].direction == "received" and not self._over:
            entry = self.left.pop(0)
            assert self._receiver is not None
            self._receiver.received([msgspec.json.encode(self._readdressed(entry.message))])

    def _readdressed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a recorded message with the ids of this conversation."""
        if "method" not in message:
            return {**message, "id": self._ids.get(message.get("id"), message.get("id"))}
        if message.get("id") is not None:
            return message
        changed: dict[str, Any] = _with_ids(message, self._ids)
        return changed

    def _depart(self, expected: list[RecordedMessage], sent: dict[str, Any]) -> None:
        if not expected:
            last = self._recording.entries[-1].line if self._recording.entries else 1
            found = self._recording.depart(
                last, f"{label(sent)} was sent, and the recording has ended"
            )
        else:
            entry = expected[0]
            how = difference(essence(entry.message), essence(sent))
            if label(entry.message) != label(sent):
                how = f"{label(sent)} was sent, and {label(entry.message)} was recorded"
            found = self._recording.depart(entry.line, f"in {label(sent)}, {how}")
        self._over = True
        loop = asyncio.get_running_loop()
        assert self._receiver is not None
        lost = ConnectionLost(f"departed from the recording: {found}")
        loop.call_soon(self._receiver.lost, lost)

    def flush(self) -> None:
        """Do nothing: messages are looked at as they are sent."""

    def pause(self) -> None:
        """Do nothing: what is left is in the file."""

    def resume(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """End the conversation."""
        if not self._over:
            self._over = True
            if self._receiver is not None:
                self._receiver.lost(None)


def _token(message: dict[str, Any]) -> Any:
    """Return the progress token of a request."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


_ADDRESSES = ("progressToken", "requestId", "io.modelcontextprotocol/subscriptionId")


def _with_ids(value: Any, ids: dict[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {
            name: ids.get(each, each)
            if name in _ADDRESSES and isinstance(each, str | int)
            else _with_ids(each, ids)
            for name, each in value.items()
        }
    return [_with_ids(each, ids) for each in value] if isinstance(value, list) else value
