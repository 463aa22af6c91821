"""h2 as this client uses it: its settings, two corrections, and the head of a request."""

from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack.struct import HeaderTuple, NeverIndexedHeaderTuple
from hyperframe.frame import Frame

from mcpearl.net.http_client.exchange import MAX_HEAD, Header

STREAM_WINDOW = 256 * 1024  # unread bytes of a body at which the server waits
_OF_CONNECTIONS = frozenset(
    {"connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"}
)
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})

# `request_head` checks and normalizes the headers of requests.
_UNCHECKED = H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)


class _Incoming(FrameBuffer):
    """h2's buffer, except that a frame over the limit is refused before all of it has arrived."""

    def __next__(self) -> Frame:
        if len(self._data) >= 3:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


class ClientFrames(H2Connection):
    """h2's connection, but open streams survive a GOAWAY, and events survive a violation after them."""

    def __init__(self) -> None:
        super().__init__(_UNCHECKED)
        self.incoming_buffer = _Incoming()
        self.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD,
            },
        )

        self.seen: list[Any] = []
        """The events of the bytes received last, including those before a violation."""
        self.frames = 0
        """How many frames were in those bytes."""

    def receive_data(self, data: Any) -> list[Any]:
        """Take bytes; return their events."""
        self.seen = []
        self.frames = 0
        return super().receive_data(data)

    def _receive_frame(self, frame: Any) -> Any:
        self.frames += 1
        events = super()._receive_frame(frame)
        self.seen += events
        return events

    def _receive_goaway_frame(self, frame: Any) -> Any:
        state = self.state_machine.state
        result = super()._receive_goaway_frame(frame)
        self.state_machine.state = state
        return result

    def clear_outbound_data_buffer(self) -> None:
        """Do nothing: streams continue after a GOAWAY, so what is to be sent is kept."""


def request_head(
    method: str, target: str, authority: str, headers: list[Header], length: int
) -> list[HeaderTuple]:
    """Return the head of a request; a line break or NUL in any part raises `ValueError`."""
    pairs = [(":method", method), (":scheme", "https"), (":authority", authority)]
    pairs.append((":path", target))
    for name, value in headers:
        lower = name.lower()
        if not lower or lower[0] == ":" or any(each in lower for each in " \r\n\0"):
            raise ValueError(f"not a header name: {name!r:.64}")
        if lower not in _OF_CONNECTIONS:
            pairs.append((lower, value.strip()))
    if length:
        pairs.append(("content-length", str(length)))
    if any(each in value for _, value in pairs for each in "\r\n\0"):
        raise ValueError("a line break or NUL in a header")
    return [
        (NeverIndexedHeaderTuple if name in _SECRET else HeaderTuple)(
            name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        )
        for name, value in pairs
    ]


def error_name(code: ErrorCodes | int | None) -> str:
    """Return the name of an HTTP/2 error code."""
    return code.name if isinstance(code, ErrorCodes) else f"error {code}"
