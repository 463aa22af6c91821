"""Requests without a session: they share one object instead of a connection for each client."""

import asyncio
import logging
import threading
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import msgspec

from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpError
from mcpearl.protocol.events import Call, Event, Ignored, Notice, Outlet, Reply
from mcpearl.protocol.server_end import SoloEnd
from mcpearl.runtime import clock
from mcpearl.server.call_end import TURN, CallEnd, send_notification, take
from mcpearl.server.calls import Calls, make_calls
from mcpearl.server.core import ServerCore
from mcpearl.server.listen_streams import ListenStreams
from mcpearl.types.base import Result

logger = logging.getLogger("mcpearl.server")


class SoloConnection(CallEnd):
    """Self-contained requests of many clients, without a session.

    Args:
        core: What the server's connections share.
    """

    end: SoloEnd
    _calls: Calls
    transport: ClassVar[None] = None  # every request has its own

    def __init__(self, core: ServerCore) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.share: Hashable = (
            None  # clients without a session are told apart by their principal only
        )
        self.end = end = SoloEnd(core.offer, core.stamp, core.limits)
        self._core = core
        self._calls = make_calls(core, end, self)
        # Each request has its own share: the subscriptions of others belong to other clients.
        self._listening = ListenStreams(
            core, self, lambda: 0, self._calls.answer, lambda call: call.outlet.account
        )
        self._last_turn = 0.0
        core.roster.enter(self)

    def receive_from(self, principal: Any, message: bytes | Envelope, outlet: Outlet) -> list[Call]:
        """Take one message of this principal; return the calls to `run`."""
        began = 0.0 if self._core.observer is None else clock.monotonic()
        event = self.end.receive_from(principal, message)
        if isinstance(event, Call):
            event.outlet, event.read = outlet, began
            return [event]
        if isinstance(event, Reply):
            self._core.replied(event, outlet.medium, clock.monotonic() - began)
        return take(event, outlet, self._handle)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Notice):
            self._core.dispatcher.notified(event, None)
        elif isinstance(event, Ignored):
            logger.debug("ignored: %s", event.reason)

    async def _listen(self, call: Call) -> None:
        if self._calls.begin(call):
            await self._listening.open(call)

    def give_up(self, calls: Sequence[Call]) -> None:
        """End calls whose client no longer waits for them."""
        for call in self._calls.give_up(calls):
            self._listening.leave(call)

    def abort(self, call: Call, error: McpError) -> bool:
        """Answer a call with an error and stop its handler; return False when it is over already."""
        if not self.end.is_open(call):
            return False
        self._calls.abort(call, error)
        self._listening.leave(call)
        return True

    # The peer of the calls

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Send a notification of a call; let others run now and then, and wait for the reader."""
        send_notification(call, method, params)
        now = self.loop.time()
        if now - self._last_turn >= TURN:
            self._last_turn = now
            await asyncio.sleep(0)
        await call.outlet.drained()

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Refuse: a client without a session is asked by `input_required`."""
        raise ConnectionLost(f"`{method}` cannot be sent: this client has no session")

    def tell(self, message: bytes) -> bool:
        """Send nothing: without a session only the answers to its calls reach a client."""
        return False

    def reserve(self, uri: str) -> None:
        """Refuse: without a session a client subscribes with `subscriptions/listen`."""
        raise LimitReached("This resource cannot be subscribed to: this client has no session")

    def subscribe(self, uri: str) -> None:
        """Do nothing: `reserve` has refused."""

    def unsubscribe(self, uri: str) -> None:
        """Do nothing: there is no subscription."""

    # Ending

    def lost(self, reason: Exception | None) -> None:
        """Release everything the clients held."""
        self._listening.clear()
        self._calls.stop_all()
        self._core.roster.leave(self, reason)

    def end_listeners(self) -> None:
        """End every subscription in order, with its result."""
        self._listening.end_all()
