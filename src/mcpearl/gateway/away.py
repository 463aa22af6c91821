"""Parked calls in other processes of the same gateway.

A retry may reach another worker than the one that has its call. Its answers go to that worker on the
bus, and the outcome comes back. A bus carries short messages and may lose some. So messages are cut into
pieces, each is sent again until it is acknowledged, and a piece that arrives twice counts once.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from mcpearl.protocol.errors import McpearlError, McpError, brief
from mcpearl.runtime import clock
from mcpearl.stores.bus import Bus
from mcpearl.stores.topics import Unsubscribe
from mcpearl.types.base import encode
from mcpearl.types.input_required import InputRequest
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

logger = logging.getLogger("mcpearl.gateway")
_PIECE = 48_000  # bytes of a message's body on the bus
_MAX_SIZE = 16 << 20  # bytes of one message
_MAX_ARRIVING = 256  # messages of which some pieces have not arrived
_MAX_TAKEN = 4096  # messages that are remembered, so that none is handled twice
_PATIENCE, _TRIES = 1.0, 10  # seconds for an acknowledgement, and how often a piece is sent


class _Piece(Struct, array_like=True):
    """A part of a message."""

    ticket: str
    sender: str
    """The process that gets the answer."""
    kind: str
    """Requests: `go_on`, `stop`. Answers: `result`, `asked`, `error`. Acknowledgement: `taken`."""
    number: int
    count: int
    body: bytes


class _GoOn(Struct, array_like=True):
    call: str
    answers: dict[str, dict[str, Any]]


class _AwayFailure(Struct, array_like=True):
    code: int
    message: str
    data: Any = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Piece).decode


class Away:
    """Continues calls that are parked in other processes, and calls parked here for other processes.

    Args:
        upstream: The upstream, with the calls that are parked in this process.
        bus: Connects the processes.
    """

    def __init__(self, upstream: "Upstream", bus: Bus) -> None:
        self._upstream = upstream
        self._bus = bus
        self._waiting: dict[str, asyncio.Future[tuple[str, bytes]]] = {}
        self._arriving: dict[str, list[bytes | None]] = {}
        self._working: dict[str, asyncio.Task[None]] = {}  # for other processes, by ticket
        self._taken: dict[str, None] = {}  # messages that arrived whole
        self._unacknowledged: dict[str, asyncio.Future[None]] = {}
        self._leave: Unsubscribe = bus.subscribe(self._topic(upstream.home), self._hear)

    def _topic(self, home: str) -> str:
        return f"gateway/{self._upstream.name}/{home}"

    async def close(self) -> None:
        """Leave the bus, and cancel the work for other processes."""
        self._leave()
        work = list(self._working.values())
        for task in work:
            task.cancel()
        if work:
            await asyncio.wait(work)

    # Asking another process

    async def go_on(
        self, call: str, home: str, answers: dict[str, dict[str, Any]]
    ) -> Raw | dict[str, InputRequest]:
        """Have another process continue a call; return its outcome, as `ParkedCall.outcome` does."""
        ticket = clock.token(12)
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            await self._send(home, ticket, "go_on", _encode(_GoOn(call, answers)))
            async with asyncio.timeout(self._upstream.settings.max_timeout):
                kind, body = await future
        except TimeoutError:
            raise McpError(INTERNAL_ERROR, "the process that has the call did not answer") from None
        except asyncio.CancelledError:
            self._publish(home, ticket, "stop", 0, 1, b"")
            raise
        finally:
            del self._waiting[ticket]
        if kind == "result":
            return Raw(body)
        if kind == "asked":
            return msgspec.json.decode(body, type=dict[str, InputRequest])
        failure = msgspec.msgpack.decode(body, type=_AwayFailure)
        raise McpError(failure.code, failure.message, failure.data)

    # The bus

    async def _send(self, home: str, ticket: str, kind: str, body: bytes) -> None:
        """Send a message piece by piece; raise `TimeoutError` if a piece is not acknowledged."""
        if len(body) > _MAX_SIZE:
            kind = "error"
            body = _encode(_AwayFailure(INTERNAL_ERROR, "too large to pass between processes"))
        count = max(1, -(-len(body) // _PIECE))
        for number in range(count):
            part = body[number * _PIECE : (number + 1) * _PIECE]
            await self._deliver(home, ticket, kind, number, count, part)

    async def _deliver(
        self, home: str, ticket: str, kind: str, number: int, count: int, part: bytes
    ) -> None:
        key = f"{ticket}/{kind}/{number}"
        for _ in range(_TRIES):
            taken = self._unacknowledged[key] = asyncio.get_running_loop().create_future()
            try:
                self._publish(home, ticket, kind, number, count, part)
                async with asyncio.timeout(_PATIENCE):
                    await taken
                return
            except TimeoutError:
                continue
            finally:
                del self._unacknowledged[key]
        raise TimeoutError

    def _publish(
        self, home: str, ticket: str, kind: str, number: int, count: int, part: bytes
    ) -> None:
        piece = _Piece(ticket, self._upstream.home, kind, number, count, part)
        self._bus.publish(self._topic(home), _encode(piece))

    def _hear(self, message: bytes) -> None:
        try:
            piece = _decode(message)
        except msgspec.DecodeError as error:
            logger.warning("a message on the bus cannot be read: %s", error)
            return
        if piece.kind == "taken":
            taken = self._unacknowledged.get(piece.body.decode())
            if taken is not None and not taken.done():
                taken.set_result(None)
            return
        key = f"{piece.ticket}/{piece.kind}"
        if piece.kind != "stop":
            acknowledged = f"{key}/{piece.number}".encode()
            self._publish(piece.sender, piece.ticket, "taken", 0, 1, acknowledged)
        body = None if key in self._taken else self._whole(piece, key)
        if body is None:
            return
        while len(self._taken) >= _MAX_TAKEN:
            self._taken.pop(next(iter(self._taken)))
        self._taken[key] = None
        if piece.kind == "stop":
            task = self._working.get(piece.ticket)
            if task is not None:
                task.cancel()
        elif piece.kind == "go_on":
            work = self._work(piece, body)
            self._working[piece.ticket] = asyncio.get_running_loop().create_task(work)
        else:
            future = self._waiting.get(piece.ticket)
            if future is not None and not future.done():
                future.set_result((piece.kind, body))

    def _whole(self, piece: _Piece, key: str) -> bytes | None:
        """Collect the pieces of a message; return the message when it is complete, None before."""
        if piece.count == 1:
            return piece.body
        if piece.count > _MAX_SIZE // _PIECE + 1 or not 0 <= piece.number < piece.count:
            return None
        parts = self._arriving.get(key)
        if parts is None:
            if len(self._arriving) >= _MAX_ARRIVING:
                self._arriving.pop(next(iter(self._arriving)))
            parts = self._arriving[key] = [None] * piece.count
        parts[piece.number] = piece.body
        if any(part is None for part in parts):
            return None
        del self._arriving[key]
        return b"".join(part for part in parts if part is not None)

    # Working for another process

    async def _work(self, piece: _Piece, body: bytes) -> None:
        try:
            kind, made = await self._outcome(msgspec.msgpack.decode(body, type=_GoOn))
        except McpError as error:
            kind, made = "error", _encode(_AwayFailure(error.code, error.message, error.data))
        except (McpearlError, msgspec.MsgspecError) as error:
            kind, made = "error", _encode(_AwayFailure(INTERNAL_ERROR, brief(str(error))))
        try:
            await self._send(piece.sender, piece.ticket, kind, made)
        except TimeoutError:
            logger.warning("the process that asked for a parked call is gone")
        finally:
            self._working.pop(piece.ticket, None)

    async def _outcome(self, wanted: _GoOn) -> tuple[str, bytes]:
        parked = self._upstream.parked.find(wanted.call)
        if parked is None:
            raise McpError(INVALID_PARAMS, "the call this state belongs to is over; start it again")
        parked.take(wanted.answers)
        outcome = await parked.outcome(None)
        if isinstance(outcome, Raw):
            return "result", bytes(outcome)
        parked.expire_in(self._upstream.state_ttl)
        return "asked", encode(outcome)
