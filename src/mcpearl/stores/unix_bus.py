"""The bus between the workers of one machine: a datagram per message over Unix sockets.

A datagram is the topic, a line feed and the message; an empty one says that messages were lost. That
happens when a worker does not empty its socket: the sender then drops its messages for that worker, and
sends the empty datagram as soon as there is room again.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from mcpearl.stores.topics import MAX_MESSAGE, Hear, Topics, Unsubscribe, check_message

logger = logging.getLogger("mcpearl.stores")

_RETRY = 0.1  # seconds until a worker whose socket was full is tried again
_LOST = b""


class UnixBus:
    """A `Bus` whose members each have a socket at a path all of them know."""

    def __init__(self, number: int, paths: list[Path]) -> None:
        """Prepare to join.

        Args:
            number: Which of the paths is this member's own.
            paths: The sockets of all members.
        """
        others = list(paths)
        self._own = others.pop(number)
        self._others = [str(path) for path in others]
        self._behind: set[str] = set()  # members that have to be told of a loss
        self._retry: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None
        self._failed: asyncio.Future[None] | None = None  # from start to close
        self._topics = Topics()

    def publish(self, topic: str, message: bytes) -> None:
        """Send a message to every other member that is there."""
        check_message(topic, message)
        if self._socket is None:
            return
        datagram = topic.encode() + b"\n" + message
        for path in self._others:
            if path not in self._behind and not self._send(datagram, path):
                logger.warning("the worker at %s does not keep up; it will be resynchronized", path)
                self._behind.add(path)
                self._schedule_retry()

    def _send(self, datagram: bytes, path: str) -> bool:
        """Send one datagram; False when the receiver has no room for it."""
        assert self._socket is not None
        try:
            self._socket.sendto(datagram, path)
        except (FileNotFoundError, ConnectionRefusedError):
            pass  # it is being replaced; the next worker in its place starts without subscribers
        except BlockingIOError:
            return False
        except OSError as error:
            logger.warning("the worker at %s was not reached: %s", path, error)
            return False
        return True

    def _schedule_retry(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_RETRY, self._resynchronize)

    def _resynchronize(self) -> None:
        self._retry = None
        self._behind = {path for path in self._behind if not self._send(_LOST, path)}
        if self._behind:
            self._schedule_retry()

    def subscribe(
        self, topic: str, hear: Hear, missed: Callable[[], None] | None = None
    ) -> Unsubscribe:
        """Subscribe to a topic; see `Bus.subscribe`."""
        return self._topics.subscribe(topic, hear, missed)

    async def start(self) -> None:
        """Open this member's socket; one that a predecessor left behind is replaced."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            self._own.unlink(missing_ok=True)
            opened.bind(str(self._own))
            asyncio.get_running_loop().add_reader(opened, self._receive)
        except BaseException:
            opened.close()
            raise
        self._socket = opened
        self._failed = asyncio.get_running_loop().create_future()

    async def ended(self) -> None:
        """Wait until the socket fails, and raise its error."""
        assert self._failed is not None
        await asyncio.shield(self._failed)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            while self._socket is not None:  # a subscriber may close the bus
                datagram = self._socket.recv(MAX_MESSAGE + 1)
                if datagram == _LOST:
                    self._topics.missed()
                else:
                    topic, _, message = datagram.partition(b"\n")
                    self._topics.deliver(topic.decode(errors="replace"), message)
        except BlockingIOError:
            pass
        except OSError as error:
            asyncio.get_running_loop().remove_reader(self._socket)
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(error)

    async def close(self) -> None:
        """Close the socket and remove it."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            if self._failed is not None:
                self._failed.cancel()
            self._own.unlink(missing_ok=True)
