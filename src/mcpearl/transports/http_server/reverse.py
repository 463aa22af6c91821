"""Messages from a client that another process waits for.

Messages of a session that several processes serve may land at any of them. A call runs where it lands.
But an answer to a request of the server, progress of it, and the cancellation of a call are for the
process that made the request or runs the call. The ids of the server's requests tell which process that
is; a cancellation goes to all. Such a message is acknowledged once it is sure to arrive.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.stores.shared import REQUEST_BITS, ProcessRelay
from mcpearl.stores.topics import Unsubscribe
from mcpearl.transports.http_server.gate import busy
from mcpearl.transports.http_server.sessions import HttpSession

logger = logging.getLogger("mcpearl.http")

_TOPIC = "messages"
_PROGRESS = "notifications/progress"
_CANCELLED = "notifications/cancelled"
_encode = msgspec.json.Encoder().encode
_MAX_BATCH = 1000  # messages of a batch that are looked at

Passing = Callable[[], Awaitable[None]]


class _About(Struct):
    """What a notification is about."""

    progress_token: int | str | None = msgspec.field(name="progressToken", default=None)
    request_id: int | str | None = msgspec.field(name="requestId", default=None)


class _Passed(Struct, array_like=True):
    """A message on its way to another process."""

    session: str
    message: bytes


class SessionFinder(Protocol):
    """Finds the sessions of this process."""

    def here(self, id: str) -> HttpSession | None:
        """Return a session of this process, of any principal."""
        ...


class Reverse:
    """Passes on what is not for this process, and takes what others pass on.

    Args:
        relay: The way to the other processes.
        sessions: The sessions of this process.
    """

    def __init__(self, relay: ProcessRelay, sessions: SessionFinder) -> None:
        self._relay = relay
        self._sessions = sessions
        self._stop: Unsubscribe = relay.receive(_TOPIC, self._received)

    def passing(
        self, session: HttpSession, message: Envelope | bytes
    ) -> tuple[bool, Passing | None]:
        """Return whether a message is for this process, and what passes it on if it is for others."""
        if isinstance(message, Envelope):
            owner = self._owner(session, message)
            if owner is None:
                return True, None
            if owner == self._relay.number:
                self._pass_beside(session.id, message)
                return True, None
            return owner == 0, partial(self._pass, [(owner, _encode(message))], session.id)
        parts = [
            (owner, part) for owner, part in self._parts(session, message) if owner is not None
        ]
        return True, partial(self._pass, parts, session.id) if parts else None

    def _pass_beside(self, session: str, message: Envelope | bytes) -> None:
        """Hand a message to the other endpoints of this process: one of them may wait for it."""
        others = self._relay.beside(_TOPIC, self._received)
        if others:
            whole = _encode(message) if isinstance(message, Envelope) else message
            passed = msgspec.msgpack.encode(_Passed(session, whole))
            for hear in others:
                hear(passed)

    def _parts(self, session: HttpSession, body: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Yield the messages of a batch, each with the process that it is for."""
        try:
            for part in msgspec.json.decode(body, type=list[Raw])[:_MAX_BATCH]:
                yield self._owner(session, codec.decode(bytes(part))), bytes(part)
        except (msgspec.DecodeError, RecursionError, Malformed):
            return  # what is wrong with it is answered where it landed

    def _owner(self, session: HttpSession, message: Envelope) -> int | None:
        """Return the process a message is for; 0 for all of them, None for the one it landed at.

        The number of this process says that one of its endpoints waits for the message.
        """
        if message.method is UNSET:
            return self._asker(message.id)
        if message.method not in (_PROGRESS, _CANCELLED) or message.params is UNSET:
            return None
        try:
            about = msgspec.json.decode(message.params, type=_About)
        except (msgspec.DecodeError, RecursionError):
            return None
        if message.method == _PROGRESS:
            return self._asker(about.progress_token)
        known = about.request_id is None or session.receiver.runs(about.request_id)
        return None if known else 0

    def _asker(self, id: Any) -> int | None:
        """Return the process that sent a request; None if no process did."""
        number = id >> REQUEST_BITS if type(id) is int and id > 0 else 0
        return number or None

    async def _pass(self, parts: list[tuple[int, bytes]], session: str) -> None:
        """Make sure that messages arrive; refused with 503 when that is not possible."""
        try:
            for owner, message in parts:
                if owner in (0, self._relay.number):
                    self._pass_beside(session, message)
                if owner == self._relay.number:
                    continue
                passed = msgspec.msgpack.encode(_Passed(session, message))
                if owner:
                    await self._relay.pass_to(owner, _TOPIC, passed)
                else:
                    await self._relay.spread(_TOPIC, passed)
        except StoreUnavailable:
            raise busy(f"The message could not be passed on: {TOLD}", RETRY_AFTER) from None
        except ValueError as error:
            raise busy(f"The message could not be passed on: {error}", 5) from None

    def _received(self, passed: bytes) -> None:
        """Take a message that landed at another process, which has checked whose it is."""
        try:
            arrived = msgspec.msgpack.decode(passed, type=_Passed)
        except msgspec.DecodeError as error:
            logger.warning("something that is not a message was passed on: %s", error)
            return
        session = self._sessions.here(arrived.session)
        if session is not None:
            session.receiver.receive(arrived.message, _NoAnswer())

    def close(self) -> None:
        """Take no more messages from other processes."""
        self._stop()


class _NoAnswer:
    """The outlet of a message that was passed on: it has no answer."""

    def send(self, message: bytes) -> None:
        """Drop it."""

    def finish(self, message: bytes, refused: bool = False) -> None:
        """Drop it."""
