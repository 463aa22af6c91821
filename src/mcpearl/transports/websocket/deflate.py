"""Compression of WebSocket messages, with a bound on how much a message may grow when it is unpacked.

Deflate makes repetitive data up to a thousand times smaller, so a few bytes could make their reader
work through megabytes. A message that would shrink by more than the bound is sent uncompressed, so that
a peer with the same bound accepts it.
"""

from collections.abc import Sequence
from typing import Any

from websockets.exceptions import PayloadTooBig
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import CTRL_OPCODES, Frame, Opcode
from websockets.typing import ExtensionName, ExtensionParameter

DEFLATE_FROM = 8192  # bytes from which a message is worth compressing
MAX_RATIO = 50
FREE = 64 * 1024  # bytes a message may unpack to, whatever its ratio
_SETTINGS: dict[str, Any] = {
    # Each message is compressed by itself, so that a silent connection holds no dictionary.
    "server_no_context_takeover": True,
    "client_no_context_takeover": True,
    "compress_settings": {"level": 3},
}


class InflatesTooMuch(PayloadTooBig):
    """A compressed message that unpacks to much more than was sent."""

    def __str__(self) -> str:
        return f"a compressed message unpacks to more than {MAX_RATIO} times its size"


class BoundedDeflate(Extension):
    """The extension permessage-deflate, bounded."""

    name = ExtensionName("permessage-deflate")

    def __init__(self, deflate: PerMessageDeflate) -> None:
        self._deflate = deflate
        self._came = 0  # compressed bytes of the message so far
        self._grown = 0  # unpacked bytes of the message so far

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Unpack a frame. Raises `PayloadTooBig` if the message unpacks to too much."""
        if frame.opcode in CTRL_OPCODES:
            return frame
        if frame.opcode is not Opcode.CONT:
            self._came = self._grown = 0
        self._came += len(frame.data)
        # For zlib, 0 means no bound.
        room = max(1, max(FREE, MAX_RATIO * self._came) - self._grown)
        bound = room if max_size is None else max(1, min(room, max_size))
        try:
            unpacked = self._deflate.decode(frame, max_size=bound)
        except PayloadTooBig:
            if max_size is None or room < max_size:
                raise InflatesTooMuch(None, room) from None
            raise
        self._grown += len(unpacked.data)
        return unpacked

    def encode(self, frame: Frame) -> Frame:
        """Pack a frame, unless a peer with the same bound would refuse it."""
        packed = self._deflate.encode(frame)
        size = len(frame.data)
        return frame if size > FREE and size > MAX_RATIO * len(packed.data) else packed


class ServerDeflate(ServerPerMessageDeflateFactory):
    """Negotiates the extension for a server."""

    def __init__(self) -> None:
        super().__init__(**_SETTINGS)

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], Any]:
        """Accept an offer."""
        agreed, deflate = super().process_request_params(params, accepted_extensions)
        return agreed, BoundedDeflate(deflate)


class ClientDeflate(ClientPerMessageDeflateFactory):
    """Negotiates the extension for a client."""

    def __init__(self) -> None:
        super().__init__(**_SETTINGS)

    def process_response_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> Any:
        """Take what the server agreed to."""
        return BoundedDeflate(super().process_response_params(params, accepted_extensions))
