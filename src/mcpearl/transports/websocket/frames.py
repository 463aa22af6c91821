"""What both sides of WebSocket share: one JSON-RPC message per text frame, on a stream socket.

The protocol itself is the `websockets` library's, without its I/O. This module has pings, closing, and
what happens to frames that are not messages. The handshakes are in `handshake` and `server`.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.framing import Frame as Message
from mcpearl.protocol.framing import FrameError
from mcpearl.runtime.liveness import Keepalive, Watch
from mcpearl.transports.socket import SocketTransport
from mcpearl.transports.websocket.deflate import DEFLATE_FROM

logger = logging.getLogger("mcpearl.websocket")

SUBPROTOCOL = Subprotocol("mcp")
_ORDERLY = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD)
_MAX_REASON = 120  # bytes; what fits into a close frame

Core = ClientProtocol | ServerProtocol


class Beat(Struct, frozen=True):
    """How a silent peer is asked for a sign of life."""

    interval: float | None = 30.0
    """Seconds of silence after which it is pinged; None for never."""
    timeout: float = 10.0
    """Seconds it then has to send anything."""


class MessageFramer:
    """The framing of an open WebSocket: text frames are messages."""

    core: Core  # a client sets it after its handshake

    def __init__(self, core: Core | None = None) -> None:
        if core is not None:
            self.core = core
        self._is_client = core is None
        self._begun: list[bytes] = []  # the parts so far of a message in several frames
        self._begun_size = 0
        self._is_text = False  # whether that message is text
        self.was_control = False  # whether the last read had only control frames, such as pings

    @property
    def held(self) -> int:
        """Bytes of the message that has not arrived whole."""
        return len(self.core.reader.buffer) + self._begun_size

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes as they were read; return the messages they complete."""
        self.core.receive_data(data)
        return self.messages(self.core.events_received())

    def messages(self, events: Sequence[Any]) -> list[Message]:
        """Return the messages for the application in these events."""
        found: list[Message] = []
        self.was_control = bool(events)
        for event in events:
            opcode = event.opcode
            if opcode is Opcode.TEXT and event.fin:
                found.append(bytes(event.data))
            elif opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._continue(event, found)
                self.was_control = False
        if found:
            self.was_control = False
        return found

    def _continue(self, frame: Frame, found: list[Message]) -> None:
        if frame.opcode is not Opcode.CONT:
            self._begun = []
            self._begun_size = 0
            self._is_text = frame.opcode is Opcode.TEXT
        if frame.data:
            self._begun.append(bytes(frame.data))
            self._begun_size += len(frame.data)
        if frame.fin:
            whole, self._begun = b"".join(self._begun), []
            self._begun_size = 0
            wrong = FrameError("a binary frame is not a message; send each one as a text frame")
            found.append(whole if self._is_text else wrong)

    def frame(self, message: bytes) -> bytes:
        """Return the bytes that carry `message`."""
        core = self.core
        if core.state is not State.OPEN:
            return b""
        extensions = core.extensions if len(message) >= DEFLATE_FROM else ()
        return Frame(Opcode.TEXT, message).serialize(mask=self._is_client, extensions=extensions)


class WebSocketStream(SocketTransport):
    """What both sides share: reading, closing, and the beat."""

    keeps_alive = True
    medium = "websocket"

    core: Core
    framer: MessageFramer
    beat: Beat
    _watch: Watch | None = None  # notices when the peer is silent
    _reading = True
    heard_at = 0.0  # when anything was last read, even a pong

    def take_bytes(self, data: bytes) -> int:
        """Take what was read: part of the handshake, or messages."""
        self.heard_at = self._now()
        core = self.core
        if core.state is State.CONNECTING:
            if not self.finished:
                self.shake_hands(data)
            return 0
        if core.state is State.CLOSED:
            return 0
        messages = self.framer.feed(data)
        if not self.framer.was_control:
            self.spoke_at = self.heard_at
        if not messages or self._unfinished is not None:
            self.count_unfinished()
        self.take(messages)
        return len(messages)

    def shake_hands(self, data: bytes) -> None:
        """Continue a server's handshake; a client's is over before the transport has the socket."""
        raise NotImplementedError

    def take(self, messages: list[Message]) -> None:
        """Pass messages on, answer control frames, and end if the WebSocket was closed."""
        if self.core.writes:
            self.write_own()
        if messages and not self.finished:
            self.has_spoken = True
            self.receiver.received(messages)
        if self.core.state is not State.OPEN:
            self.part()

    def write_own(self) -> None:
        """Write the frames that the protocol itself has made."""
        data = b"".join(self.core.data_to_send())
        if data and not self.wire.is_closing():
            self.wire.write(data)
            if self.paused:
                self.outbox.check_bound()

    def part(self) -> None:
        """End, because a close frame came or the peer violated the protocol."""
        raise NotImplementedError

    def end_reason(self) -> Exception | None:
        """Return why the connection ends; None if the peer closed it in an orderly way."""
        core = self.core
        if core.parser_exc is not None:
            return ConnectionLost(f"the peer broke the rules of WebSocket: {core.parser_exc}")
        if core.close_rcvd is None or core.close_rcvd.code in _ORDERLY:
            return None
        return ConnectionLost(f"the peer closed the connection: {core.close_rcvd}")

    def send_close(self, code: CloseCode, reason: str = "") -> None:
        """Send what was taken, then a close frame."""
        self.outbox.flush()
        if self.core.state is State.OPEN:
            short = reason.encode()[:_MAX_REASON].decode(errors="ignore")
            self.core.send_close(code, short)
            self.write_own()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the beat."""
        if self._watch is not None:
            self._watch.stop()
        super().connection_lost(exc)

    # The beat

    def pause(self) -> None:
        """Stop reading. Meanwhile, silence of the peer does not count."""
        self._reading = False
        super().pause()

    def resume(self) -> None:
        """Read again."""
        self._reading = True
        self.heard_at = self._now()
        super().resume()

    def begin_beat(self) -> None:
        """Begin to watch for silence of the peer."""
        self.heard_at = self._now()
        interval = self.beat.interval
        if interval is not None:
            times = Keepalive(interval=interval, patience=self.beat.timeout)
            self._watch = Watch(asyncio.get_running_loop(), self, times)

    @property
    def attentive(self) -> bool:
        """Whether the connection is being read, so that silence of the peer counts."""
        return self._reading

    def ping(self, patience: float) -> bool:
        """Send a ping; return False when the connection is closing."""
        if self.finished:
            return False
        self.core.send_ping(b"mcp")
        self.write_own()
        return True

    def silent(self, patience: float) -> None:
        """End the connection: the peer is taken for dead."""
        self.finish(ConnectionLost(f"the peer did not answer a ping within {patience:g} s"))
        self.wire.abort()
