"""Messages on a byte stream: when they are written, and what becomes of those that are not."""

import asyncio
import os
import socket
from collections.abc import Sequence

import pytest

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.limits import Limits
from mcpearl.transports.stream import StreamProtocol
from mcpearl.transports.transport import ClientReceiver


class Answering(ClientReceiver):
    """Answers each message with two, and keeps what it is told."""

    def __init__(self, stream: StreamProtocol) -> None:
        self.stream = stream
        self.left: list[bytes] = []
        self.losses: list[Exception | None] = []

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        for frame in frames:
            assert isinstance(frame, bytes)
            self.stream.send(frame + b"1")
            self.stream.send(frame + b"2")

    def ended(self) -> None: ...

    def writable(self, flowing: bool) -> None: ...

    def failed(self, request_id: int | str, error: Exception) -> None: ...

    def held(self, request_id: int | str | None, holding: bool) -> None: ...

    def unsent(self, messages: list[bytes]) -> None:
        self.left += messages

    def lost(self, reason: Exception | None) -> None:
        self.losses.append(reason)


class Writes(asyncio.WriteTransport):
    """The loop's side of a stream, which keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def a_stream() -> tuple[StreamProtocol, Answering, Writes]:
    stream, writer = StreamProtocol(Limits()), Writes()
    stream.receiver = receiver = Answering(stream)
    stream.outbox.attach(writer)
    return stream, receiver, writer


async def test_what_one_read_leads_to_leaves_in_one_write() -> None:
    stream, _, writer = a_stream()
    assert stream.take_bytes(b"a\nb\n") == 2
    assert writer.writes == [b"a1\na2\nb1\nb2\n"]
    await asyncio.sleep(0)
    assert len(writer.writes) == 1


async def test_what_is_sent_in_one_iteration_leaves_at_its_end() -> None:
    stream, _, writer = a_stream()
    stream.send(b"a")
    stream.send(b"b")
    assert not writer.writes
    await asyncio.sleep(0)
    assert writer.writes == [b"a\nb\n"]
    stream.send(b"c")
    stream.flush()
    stream.send(b"d")
    await asyncio.sleep(0)
    assert writer.writes[1:] == [b"c\n", b"d\n"]


async def test_what_never_left_is_reported_before_the_end() -> None:
    stream, receiver, writer = a_stream()
    stream.send(b"a")
    stream.connection_lost(None)
    assert receiver.left == [b"a"]
    assert receiver.losses == [None]
    stream.send(b"b")
    stream.connection_lost(OSError())
    await asyncio.sleep(0)
    assert not writer.writes
    assert receiver.losses == [None]


async def test_a_peer_that_reads_nothing_is_dropped_at_the_bound() -> None:
    near, far = socket.socketpair()
    stream = StreamProtocol(Limits(max_outgoing=100_000))
    stream.receiver = receiver = Answering(stream)
    with far:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: stream, sock=near)
        stream.outbox.attach(transport)
        for _ in range(1000):
            if stream.finished:
                break
            stream.send(os.urandom(10_000))
            await asyncio.sleep(0)
        (reason,) = receiver.losses
        assert isinstance(reason, LimitReached)
        transport.abort()


@pytest.mark.parametrize("data", [b"", b"half a mess"])
async def test_part_of_a_message_is_a_sign_of_life(data: bytes) -> None:
    seen: list[int] = []

    class Counting(Answering):
        def received(self, frames: Sequence[Frame | Envelope]) -> None:
            seen.append(len(frames))

    stream = StreamProtocol(Limits())
    stream.receiver = Counting(stream)
    assert stream.take_bytes(data) == 0
    assert seen == [0]
