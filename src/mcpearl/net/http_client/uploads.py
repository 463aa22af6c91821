"""The bodies of requests on one HTTP/2 connection, sent as fast as the server's windows allow."""

from collections.abc import Callable

from h2.connection import H2Connection
from h2.exceptions import StreamClosedError


class Uploads:
    """The bodies that have not been sent completely, by stream.

    Args:
        frames: h2's state of the connection.
        flush: Writes the frames that h2 has made.
    """

    def __init__(self, frames: H2Connection, flush: Callable[[], None]) -> None:
        self._frames = frames
        self._flush = flush
        self._rest: dict[int, memoryview] = {}
        self.blocked = False
        """Set while the operating system takes no more, because the server does not read."""

    def __len__(self) -> int:
        return len(self._rest)

    def __contains__(self, number: int) -> bool:
        return number in self._rest

    def add(self, number: int, body: bytes) -> None:
        """Add the body of a stream."""
        self._rest[number] = memoryview(body)

    def drop(self, number: int) -> None:
        """Send no more of a body."""
        self._rest.pop(number, None)

    def clear(self) -> None:
        """Send nothing more."""
        self._rest.clear()

    def send(self) -> bool:
        """Send what the server takes now, a frame of each body in turn; return whether any was sent."""
        sent = False
        moved = True
        while moved and self._rest and not self.blocked:
            moved = False
            for number in list(self._rest):
                try:
                    moved |= self._send_part(number)
                except StreamClosedError:  # it has ended, but its event is not handled yet
                    self.drop(number)
            self._flush()
            sent |= moved
        return sent

    def _send_part(self, number: int) -> bool:
        frames = self._frames
        room = min(frames.local_flow_control_window(number), frames.max_outbound_frame_size)
        if room <= 0:
            return False
        body = self._rest[number]
        rest = body[room:]
        frames.send_data(number, body[:room], end_stream=not rest)
        if rest:
            self._rest[number] = rest
        else:
            del self._rest[number]
        return True
