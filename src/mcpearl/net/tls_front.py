"""Accepts TLS connections, with a bound on the handshakes under way.

Until its handshake is done, a connection has no protocol and is not counted anywhere else. At the bound,
further connections wait in the system's queue; to make room for them, the oldest handshake is ended if it
has taken more than a second.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

MAX_HANDSHAKES = 256
"""Handshakes under way at once, on one port."""
_MOMENT = 1.0  # seconds a handshake may take while others wait
_OUT_OF_FILES = 0.5  # seconds to wait when no connection can be accepted


class TlsFront:
    """The accepting side of one TLS port.

    Args:
        listening: The socket, already listening.
        tls: The server's TLS context.
        make: Makes the protocol of a connection.
        timeout: Seconds a handshake may take.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        timeout: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._tls = tls
        self._make = make
        self._timeout = timeout
        self._handshakes: dict[asyncio.Task[None], float] = {}  # with the time each began
        self._accepting = self._loop.create_task(self._accept())

    async def ended(self) -> None:
        """Wait until connections are no longer accepted; raises the error that ended it."""
        try:
            await asyncio.shield(self._accepting)
        except asyncio.CancelledError:
            if not self._accepting.cancelled():
                raise
            raise ConnectionError("connections are no longer accepted") from None

    async def _accept(self) -> None:
        while True:
            await self._until_room()
            try:
                connection, _ = await self._loop.sock_accept(self._listening)
            except OSError:  # the process is out of file descriptors, or the client has left
                await asyncio.sleep(_OUT_OF_FILES)
                continue
            task = self._loop.create_task(self._shake_hands(connection))
            self._handshakes[task] = self._loop.time()
            task.add_done_callback(self._handshakes.pop)

    async def _until_room(self) -> None:
        """Wait while there are too many handshakes; end the oldest if it takes too long."""
        while len(self._handshakes) >= MAX_HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            left = began + _MOMENT - self._loop.time()
            if left <= 0:
                oldest.cancel()
                left = _MOMENT
            await asyncio.wait(self._handshakes, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._tls, ssl_handshake_timeout=self._timeout
            )
        except (OSError, asyncio.CancelledError):  # errors of TLS are `OSError`s
            connection.close()

    def close(self) -> None:
        """Stop accepting connections, and end the handshakes under way."""
        self._accepting.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()
        self._listening.close()
