"""Limits how many requests of a client are taken on at once.

Reading pauses while enough calls are running or the client does not read its answers, and resumes when
there is room. Messages that were read before the pause wait here. A few calls are free; more are charged
to the client's account, in steps that double. Calls for which there is no room are refused.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Event
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.runtime.budget import Account, NoRoom
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.server.large_calls import LargeCalls
    from mcpearl.transports.transport import Transport

LARGE = 4096
"""Bytes from which a message is weighed; smaller ones are covered by what each call is charged."""
FREE = 4
"""Calls of a connection that are not charged."""
CALL = 8 * 1024
"""Bytes a call in hand is charged: its task, its context, its message if that is small."""
_LOOK_AGAIN = 1.0  # seconds after which it is checked whether fewer calls are in hand
STALL = 5.0  # seconds without any call ending after which a full connection reads on


class Intake:
    """Pauses and resumes the reading of one connection.

    Args:
        transport: Is paused and resumed.
        end: Knows the calls in flight and the requests that wait for the client.
        limit: Calls in hand at which reading pauses.
        idle: Returns how many of the calls in flight do no work, such as subscriptions.
        receive: Takes the messages that were held.
        account: The client's.
    """

    __slots__ = (
        "_account",
        "_allowed",
        "_charged",
        "_closed",
        "_end",
        "_flowing",
        "_held",
        "_idle",
        "_large",
        "_limit",
        "_loop",
        "_paid",
        "_receive",
        "_transport",
        "_watch",
        "ceiling",
        "full",
        "reading",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: "Transport",
        end: ServerEnd,
        limit: int,
        idle: Callable[[], int],
        receive: Callable[[list[Frame]], None],
        account: Account,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._end = end
        self._limit = limit
        self._idle = idle
        self._receive = receive
        self._large: LargeCalls | None = None  # once a large message has come
        self._account = account
        self._charged = account.open("calls")
        self._paid = FREE  # calls that may be in flight before more are charged
        self._watch: asyncio.TimerHandle | None = None  # runs while calls are charged
        self._allowed = limit  # calls in hand at which the connection is full
        self.ceiling = min(FREE, limit)  # calls in flight at which the limits are checked
        self.reading = True
        self.full: asyncio.TimerHandle | None = None  # set while messages are held; runs on a stall
        self._held: list[Frame] = []  # read, but not looked at
        self._flowing: asyncio.Event | None = None  # set while the client does not read
        self._closed = False

    def busy(self) -> int:
        """Return how many calls are being worked on."""
        return len(self._end.in_flight) - self._idle()

    def is_reached(self) -> bool:
        """Whether nothing more may be taken on now."""
        if self._flowing is not None or self._closed:
            return True
        if len(self._end.in_flight) >= self._paid and not self._charge():
            self._end.refuse_more(self._account.refusal)
        # A handler that waits for this client's answer would wait forever if nothing were read.
        return not self._end.pending and self.busy() >= self._allowed

    def _set_ceiling(self) -> None:
        stopped = self._closed or self._flowing is not None
        self.ceiling = 0 if stopped else min(self._allowed, self._paid)

    # The account

    def _charge(self) -> bool:
        """Charge the client for twice as many calls; False when there is no room for that."""
        paid = 2 * max(self._paid, len(self._end.in_flight))
        if not self._charged.resize(paid * CALL):
            return False
        self._pay(paid)
        self._keep_watch()
        return True

    def _pay(self, paid: int) -> None:
        self._paid = paid
        self._end.refuse_more(None)
        self._set_ceiling()

    def _keep_watch(self) -> None:
        """Check after a while whether the client holds less."""
        if self._watch is None:
            self._watch = self._loop.call_later(_LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._large is not None:
            self._large.look()
        needed = max(2 * len(self._end.in_flight), FREE)
        if needed <= self._paid // 2:
            self._charged.resize(needed * CALL if needed > FREE else 0)
            self._pay(needed)
        if self._large or self._paid > FREE:
            self._keep_watch()

    def receive_large(self, message: bytes) -> Event:
        """Hand a large message to the end; the budget counts it while it is worked on."""
        large = self._weighed()
        try:
            weight = large.admit(message)
        except NoRoom as error:
            return self._end.refuse(message, McpError(INTERNAL_ERROR, str(error)))
        event = self._end.receive(message)
        large.keep(event, weight)
        self._keep_watch()
        return event

    def _weighed(self) -> "LargeCalls":
        if self._large is None:
            from mcpearl.server.large_calls import LargeCalls

            self._large = LargeCalls(self._account, self._end)
        return self._large

    # Holding

    def hold(self, frames: list[Frame]) -> None:
        """Keep messages until there is room, and read no further."""
        if self._closed:
            return
        self._held += frames
        if self.full is None:
            self.full = self._loop.call_later(STALL, self._stalled, self.busy())
            self._regulate()

    def _stalled(self, busy: int) -> None:
        """Take on some more: the running calls may wait for a cancellation that was not read yet."""
        if self._flowing is not None or self.busy() < busy:
            self.full = self._loop.call_later(STALL, self._stalled, self.busy())
        else:
            self._allowed = busy + self._limit
            self._set_ceiling()
            self._loop.call_later(STALL, self._lower)
            self._go_on()

    def _lower(self) -> None:
        self._allowed = self._limit
        self._set_ceiling()

    def make_room(self) -> None:
        """Continue if enough calls have ended, or if a handler waits for the client."""
        if self.full is None or self._flowing is not None:
            return
        if self._end.pending or self.busy() <= self._limit // 2:
            self._go_on()

    def _go_on(self) -> None:
        """Take the held messages, then read again unless the limit is reached."""
        if self.full is not None:
            self.full.cancel()
            self.full = None
        held, self._held = self._held, []
        self._receive(held)
        self._regulate()

    def writable(self, flowing: bool) -> None:
        """Note whether the client reads.

        While it does not, no new call is started for it. The transport holds what running calls send;
        it counts this, and drops the client at the limit.
        """
        if not flowing:
            self._flowing = self._flowing or asyncio.Event()
            self._set_ceiling()
        elif self._flowing is not None:
            self._flowing.set()
            self._flowing = None
            self._allowed = self._limit
            self._set_ceiling()
            if self.full is not None and not self.is_reached():
                self._go_on()
        self._regulate()

    @property
    def is_flowing(self) -> bool:
        """Whether the client reads what it is sent."""
        return self._flowing is None

    async def until_flowing(self) -> None:
        """Wait while the client does not read."""
        while self._flowing is not None:
            await self._flowing.wait()

    def _regulate(self) -> None:
        reading = self.full is None and self._flowing is None
        if reading is not self.reading:
            self.reading = reading
            if reading:
                self._transport.resume()
            else:
                self._transport.pause()

    def close(self) -> None:
        """Take nothing more: the client is gone."""
        self._closed = True
        self._set_ceiling()
        self._held.clear()
        if self._large is not None:
            self._large.close()
        self._charged.release()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self.full is not None:
            self.full.cancel()
            self.full = None
        if self._flowing is not None:
            self._flowing.set()
            self._flowing = None
