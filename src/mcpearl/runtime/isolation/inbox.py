"""The inbox of an isolated process: calls that wait for it in the kernel, in whole messages.

The process takes one when it is free, so it never waits for the server between two calls. The server
keeps the reading end as well: a call that was not taken can be taken back, when the process is stuck
with another call or has ended. Which of both has a call, the kernel decides.
"""

import socket
import struct

_NUMBER = struct.Struct("<I")
_INLINE = 16 * 1024  # bytes of a call that fits; a larger one is sent over the connection
LARGEST = _INLINE + _NUMBER.size


class Inbox:
    """The server's side of an inbox."""

    def __init__(self) -> None:
        self._writer, self.reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writer.setblocking(False)

    def put(self, number: int, payload: bytes) -> bool:
        """Put a call in; return False when there is no room at the moment."""
        try:
            self._writer.send(_NUMBER.pack(number) + payload)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the process has ended, which is seen elsewhere
        return True

    def announce(self, number: int) -> None:
        """Say that a call comes over the connection."""
        self.put(number, b"")

    def take_back(self) -> int | None:
        """Return the number of the first call that was not taken; None when all were."""
        try:
            # Not `setblocking`: the process has the same descriptor.
            message = self.reader.recv(LARGEST, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return None
        return _NUMBER.unpack_from(message)[0] if message else None

    def close_for_more(self) -> None:
        """Tell the process that no calls follow those that are there."""
        self._writer.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends."""
        self._writer.close()
        self.reader.close()


def fits(payload: bytes) -> bool:
    """Whether a call fits into the inbox."""
    return len(payload) <= _INLINE


def payload_of(message: bytes) -> bytes | None:
    """Return the call in a message; None for one that comes over the connection."""
    return message[_NUMBER.size :] or None
