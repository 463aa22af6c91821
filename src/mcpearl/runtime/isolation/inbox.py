"""The inbox of an isolated process: calls that wait for it in a pipe, one message each.

It is a pipe that keeps messages whole, which costs half of what a socket does. The process takes a call
when it is free, so it never waits for the server between two calls. The server can read the pipe as
well: it takes a call back when the process is stuck with another call or has ended. The kernel decides
which of the two gets a call.
"""

import os
import select
import struct

_NUMBER = struct.Struct("<I")
LARGEST = select.PIPE_BUF
"""Bytes that a message may have: a write of up to this size is never split."""
LARGEST_CALL = LARGEST - _NUMBER.size
"""Bytes of a call that fits; a larger one goes over the connection."""
_NO_MORE = 0  # in place of a call's number: no call follows


class Inbox:
    """The server's side of an inbox."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        # Opened anew: the process waits when it reads, the server does not.
        try:
            self._again = os.open(f"/proc/self/fd/{self.reader}", os.O_RDONLY | os.O_NONBLOCK)
        except BaseException:
            os.close(self.reader)
            os.close(self._writer)
            raise

    def handed_over(self) -> None:
        """Close the end that the process has now."""
        os.close(self.reader)

    def put(self, number: int, payload: bytes) -> bool:
        """Put a call in; return False when there is no room at the moment.

        Args:
            number: The number of the call, above 0.
            payload: The call, at most `LARGEST_CALL` bytes.
        """
        try:
            os.write(self._writer, _NUMBER.pack(number) + payload)
        except BlockingIOError:
            return False
        return True

    def announce(self, number: int) -> bool:
        """Announce a call that comes over the connection; return False when there is no room."""
        return self.put(number, b"")

    def take_back(self) -> int | None:
        """Return the number of the first call that was not taken; None when all were."""
        try:
            message = os.read(self._again, LARGEST)
        except BlockingIOError:
            return None
        # A process can write to its own inbox; what it writes is not a call.
        return _NUMBER.unpack_from(message)[0] if len(message) >= _NUMBER.size else None

    def close_for_more(self) -> None:
        """Tell the process that no more calls follow those in the inbox."""
        if self._writer >= 0:
            self.put(_NO_MORE, b"")
            os.close(self._writer)
            self._writer = -1

    def close(self) -> None:
        """Close the server's ends."""
        os.close(self._again)
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


def is_end(message: bytes) -> bool:
    """Whether a message says that no more calls follow."""
    return len(message) < _NUMBER.size or _NUMBER.unpack_from(message)[0] == _NO_MORE


def payload_of(message: bytes) -> bytes | None:
    """Return the call in a message; None for a call that comes over the connection."""
    return message[_NUMBER.size :] or None
