"""One client of a server: what its transport reads goes in, its calls run, its answers go out.

`ServerConnection` is the receiver of one client's messages, and owns what lives as long as the client:
the protocol end, the calls in flight, the subscriptions, the requests to the client. When the transport
is lost, all of it ends. `SoloConnection` serves requests that have no session.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol.capabilities import STATELESS
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpError
from mcpearl.protocol.events import (
    Answer,
    Call,
    Cancel,
    Event,
    Ignored,
    Many,
    Notice,
    Opened,
    Outlet,
    Ready,
    Reply,
)
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.runtime.budget import Account
from mcpearl.runtime.liveness import Watch
from mcpearl.runtime.loading import Loading
from mcpearl.server.call_end import TURN, CallEnd, send_notification, take
from mcpearl.server.core import ServerCore
from mcpearl.server.intake import LARGE, Intake
from mcpearl.server.whole_outlet import WholeOutlet
from mcpearl.types.base import RequestId, Result

if TYPE_CHECKING:
    from mcpearl.protocol.snapshot import EndSnapshot
    from mcpearl.server.calls import Calls
    from mcpearl.server.listen_streams import ListenStreams
    from mcpearl.server.questions import Questions
    from mcpearl.server.session import Session
    from mcpearl.server.session_subscriptions import SessionSubscriptions
    from mcpearl.stores.sessions import Missed
    from mcpearl.transports.transport import Transport

logger = logging.getLogger("mcpearl.server")


class ServerConnection(CallEnd):
    """The receiver of one client's messages, and the peer of its calls.

    Args:
        core: What the server's connections share.
        transport: Carries the client's messages.
        principal: The client, as far as the transport could verify it.
        account: Counts what is held for the client; by default a new one.
        renewable: Whether the client may initialize a second time on this transport.
    """

    def __init__(
        self,
        core: ServerCore,
        transport: Transport,
        principal: Any = None,
        account: Account | None = None,
        *,
        renewable: bool = True,
    ) -> None:
        self.loop = loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        # A client that the wire trusts, such as the one on stdio, may use everything.
        self.share: Hashable = None if principal is None else id(self)
        self.transport = transport
        self.closed = False
        self._until_closed: asyncio.Event | None = None  # made for the one wire that waits for it
        self.heard_at = 0.0  # when something was last read
        self.end = end = ServerEnd(
            core.offer, core.stamp, core.limits, principal, renewable=renewable
        )
        if not renewable and (first := core.first_request()):
            end.pending.number_from(first)
        self._core = core
        self.session: Session | None = None  # once a legacy client is ready
        self.outlet: Outlet = WholeOutlet(transport)
        # Each is made when it is first used.
        self._running: Calls | None = None
        self._asked: Questions | None = None
        self._followed: SessionSubscriptions | None = None
        self._account = account = account or core.budget.account()
        end.open_batch = account.open_batch
        # Made for the first stream: few clients listen.
        self._listening: ListenStreams | None = None
        limit = core.limits.max_in_flight
        self._intake = Intake(loop, transport, end, limit, self._idle, self.received, account)
        self._last_turn = 0.0  # when a handler that sends a lot last let others run
        self._drained: asyncio.Event | None = None  # set when the last call is done, on the way out
        self._ending: asyncio.Task[None] | None = None
        self._watch: Watch | None = None  # of a legacy session, unless the wire notices itself
        core.roster.enter(self)
        if core.observer is not None or core.recorder is not None:
            _ = self._calls  # made now: it observes the first read, too

    @property
    def _calls(self) -> Calls:
        if self._running is None:
            with Loading():  # not needed to answer `initialize`
                from mcpearl.server.calls import make_calls

            end, flush = self.end, self.transport.flush
            self._running = make_calls(self._core, end, self, self._call_ended, flush)
            if self._drained is not None:  # the connection is about to end, and takes no calls
                self._running.close()
        return self._running

    @property
    def _subscriptions(self) -> SessionSubscriptions:
        if self._followed is None:
            with Loading():  # not needed before a client is ready
                from mcpearl.server.session_subscriptions import SessionSubscriptions

            core, account = self._core, self._account
            self._followed = SessionSubscriptions(core, self.outlet, account, self.transport)
        return self._followed

    @property
    def _questions(self) -> Questions:
        if self._asked is None:
            from mcpearl.server.questions import Questions  # most clients are never asked

            core = self._core
            timeout, observer = core.ask_timeout, core.observer
            self._asked = Questions(self.loop, self.end, self.transport, timeout, observer)
        return self._asked

    # Receiving

    def received(self, frames: list[Frame]) -> None:
        """Take messages as they arrive; each is handled, or started, before the next."""
        self.heard_at = self.loop.time()
        intake = self._intake
        if intake.full is not None:
            intake.hold(frames)
            return
        receive, refuse, in_flight = self.end.receive, self.end.refuse_frame, self.end.in_flight
        calls = self._running
        start: Callable[[Call], None] = self._start_first
        if calls is not None:
            start = calls.begin_read() if calls.minded else calls.start
            calls.corked = True  # answers made meanwhile leave together
        try:
            for taken, frame in enumerate(frames, 1):
                if not isinstance(frame, bytes):
                    event = refuse(frame.reason)
                elif len(frame) > LARGE:
                    event = intake.receive_large(frame)
                else:
                    event = receive(frame)
                if isinstance(event, Call) and event.method != LISTEN:
                    event.outlet = self.outlet
                    start(event)
                elif calls is not None and calls.minded:
                    calls.end_read()
                    self._handle(event)
                    start = calls.begin_read()
                else:
                    self._handle(event)
                if len(in_flight) >= intake.ceiling and intake.is_reached():
                    self._hold(frames[taken:])
                    break
        finally:
            if (calls := self._running) is not None:
                calls.corked = False
                if calls.minded:
                    calls.end_read()
            self.transport.flush()

    def _start_first(self, call: Call) -> None:
        """Start a call that was read while nothing had been called yet."""
        calls = self._calls
        calls.corked = True
        calls.start(call)

    def _hold(self, rest: list[Frame]) -> None:
        if self.closed:  # while the messages were taken: the answers were too many
            self._calls.stop_all()
            return
        self._calls.watched = True
        if self._intake.is_flowing:  # otherwise the client does not read, which is another limit
            self._core.bounded("Limits.max_in_flight", f"{len(self.end.in_flight)} calls in flight")
        self._intake.hold(rest)

    def receive(self, message: bytes | Envelope, outlet: Outlet) -> list[Call]:
        """Take one message whose answer has an outlet of its own; return the calls to `run`."""
        began = 0.0 if self._core.observer is None else self.loop.time()
        end = self.end
        event = end.receive_one(message) if type(message) is Envelope else end.receive(message)
        if isinstance(event, Call):
            event.outlet = outlet
            return [event]
        if isinstance(event, (Reply, Opened, Many)):
            self._core.replied(event, outlet.medium, self.loop.time() - began)
        return take(event, outlet, self._handle)

    def recognize(self, principal: Any) -> None:
        """Continue with the same client under a new token; drop subscriptions it does not allow."""
        self.end.recognize(principal)
        self._subscriptions.keep_allowed(principal)

    def speak(self, version: str) -> None:
        """Treat the client as initialized in this version, where no session is kept."""
        from mcpearl.protocol.snapshot import EndSnapshot  # of HTTP only

        self.end.restore(EndSnapshot(version, capabilities=STATELESS))

    @property
    def held(self) -> int:
        """How many bytes are held for the client, or for all that share its account."""
        return self._account.held

    @property
    def is_ready(self) -> bool:
        """Whether the client has sent `notifications/initialized`."""
        return self.end.lifecycle.phase is Phase.READY

    def runs(self, request: RequestId) -> bool:
        """Whether a request of the client is being answered here."""
        return request in self.end.in_flight

    def snapshot(self) -> tuple[EndSnapshot, tuple[str, ...]]:
        """Return the lasting state of the session, and the resources it is subscribed to."""
        return self.end.snapshot(), self._subscriptions.uris()

    def restore(self, state: EndSnapshot, uris: Iterable[str]) -> None:
        """Continue a session that began at another process."""
        self.end.restore(state)
        if state.ready:
            self._ready()
        self.adopt(state, uris)

    def adopt(self, state: EndSnapshot, uris: Iterable[str]) -> None:
        """Take over what another process changed in the session: log level and subscriptions."""
        if self.end.adopt(state):
            self._ready()
        self._subscriptions.adopt(uris)

    def make_up(self, missed: Sequence[Missed] | None) -> None:
        """Announce what other processes may not have announced to the client of a restored session."""
        self._subscriptions.make_up(missed)

    def _handle(self, event: Event) -> None:
        match event:
            case Call():
                event.outlet = self.outlet
                if event.method == LISTEN:
                    self._calls.start(event, self._listen)
                else:
                    self._calls.start(event)
            case Reply(message) | Opened(message):
                self._core.replied(event, self.transport.medium, self.loop.time() - self.heard_at)
                self.transport.send(message)
            case Answer():
                self._questions.settle(event)
            case Cancel(call, reason, message):
                self._cancel(call, reason)
                if message is not None:
                    call.outlet.finish(message)
            case Notice():
                self._notice(event)
            case Ready():
                self._ready()
            case Many(events):
                self._core.replied(event, self.transport.medium, self.loop.time() - self.heard_at)
                for each in events:
                    self._handle(each)
            case Ignored(reason):
                logger.debug("ignored: %s", reason)

    def _ready(self) -> None:
        kinds = ("tools", "prompts", "resources")
        has = self.end.offer.has
        self._subscriptions.follow_lists(kind for kind in kinds if has(f"{kind}.list_changed"))
        times = self._core.keepalive
        if times is not None and self._watch is None and not self.transport.keeps_alive:
            self._watch = Watch(self.loop, self, times)
        self._begin_session()

    def _begin_session(self) -> None:
        """Make the application's handle on the client. A client that initializes again is a new one."""
        # Loaded here: a client has been answered before it is ready.
        from mcpearl.server.session import Session
        from mcpearl.transports.null import NullTransport

        self._end_session()
        if not isinstance(self.transport, NullTransport):
            assert self.end.caller is not None
            self.session = self.end.caller.session = Session(self, self._core)
            self._core.session_began(self.session)

    def _end_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self._core.session_ended(session)

    def _notice(self, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            self.end.pending.progress(notice.params.progress_token, self.loop.time())
        self._core.dispatcher.notified(notice, self.end.caller)

    # Running calls

    async def _listen(self, call: Call) -> None:
        if self._calls.begin(call):
            if self._listening is None:
                from mcpearl.server.listen_streams import ListenStreams

                self._listening = ListenStreams(
                    self._core, self, self.followed, self._calls.answer, lambda _: self._account
                )
            await self._listening.open(call)
        self._call_ended()

    def _stop_listening(self, call: Call) -> None:
        if self._listening is not None:
            self._listening.leave(call)

    def _idle(self) -> int:
        """Return how many calls in flight are only listening."""
        return 0 if self._listening is None else len(self._listening)

    def give_up(self, calls: Sequence[Call]) -> None:
        """End calls whose client no longer waits for them."""
        for call in self._calls.give_up(calls):
            self._stop_listening(call)
        self._call_ended()

    def abort(self, call: Call, error: McpError) -> bool:
        """Answer a call with an error and stop its handler; return False when it is over already."""
        if not self.end.is_open(call):
            return False
        self._calls.abort(call, error)
        self._stop_listening(call)
        self._call_ended()
        return True

    def _cancel(self, call: Call, reason: str | None) -> None:
        logger.debug("%s cancelled by the client: %s", call.method, reason)
        self._stop_listening(call)
        self._calls.stop(call)
        self._call_ended()

    def _call_ended(self) -> None:
        """Take on more calls if there is room again, or note that the last call is done."""
        self._intake.make_room()
        if self._drained is None:
            if self._running is not None:
                self._running.watched = self._intake.full is not None
        elif not self._intake.busy():
            self._drained.set()

    # The peer of the calls

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Send a notification of a call; let others run now and then, and wait for the reader."""
        send_notification(call, method, params)
        intake = self._intake
        if intake.is_flowing:
            now = self.loop.time()
            if now - self._last_turn >= TURN:
                self._last_turn = now
                await asyncio.sleep(0)
        await intake.until_flowing()
        await call.outlet.drained()

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request to a legacy client on behalf of a call, and wait for its answer."""
        if self._intake.full is not None:
            self.loop.call_soon(self._call_ended)  # so that the answer is read
        return await self._questions.ask(call, method, params, kind)

    def tell(self, message: bytes) -> bool:
        """Send a message that belongs to no call."""
        if not self.closed:
            self.transport.send(message)
        return not self.closed

    def followed(self) -> int:
        """Count the resources that the client is notified of."""
        listening = 0 if self._listening is None else self._listening.uris
        return len(self._subscriptions) + listening

    def reserve(self, uri: str) -> None:
        """Make sure that there is room for a subscription; raises `LimitReached`."""
        if uri not in self._subscriptions:
            from mcpearl.server.listen_streams import check_room

            check_room(self._core.limits.max_subscriptions, self.followed(), 1)

    def subscribe(self, uri: str) -> None:
        """Send updates of a resource to this client from now on; raises `LimitReached`."""
        self._subscriptions.subscribe(uri)

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates of a resource."""
        self._subscriptions.unsubscribe(uri)

    # Whether the client reads, and is there

    def writable(self, flowing: bool) -> None:
        """Note whether the client reads what it is sent."""
        self._intake.writable(flowing)
        # Time in which nothing was read is not the client's silence.
        self.heard_at = self.loop.time()

    @property
    def attentive(self) -> bool:
        """Whether the connection is being read."""
        return self._intake.reading

    def ping(self, patience: float) -> bool:
        """Ask whether the client is there."""
        return not self.closed and self._questions.ping(patience)

    def silent(self, patience: float) -> None:
        """Drop a client that did not answer a ping, with everything it held."""
        logger.warning("a client was dropped: it did not answer a ping within %g s", patience)
        self.lost(ConnectionLost("the client did not answer a ping"))
        self._ending = self.loop.create_task(self.transport.close())

    # Ending

    def ended(self) -> None:
        """Finish the calls in flight: the client sends nothing more, but may wait for answers."""
        if self._ending is None:
            self._ending = self.loop.create_task(self.drain(self._core.grace))

    def lost(self, reason: Exception | None) -> None:
        """Release everything the client held."""
        if self.closed:
            return
        if isinstance(reason, LimitReached):
            logger.warning("a client was dropped: %s", reason)
            self._core.bounded("Limits.max_outgoing", str(reason))
        self.closed = True
        if self._until_closed is not None:
            self._until_closed.set()
        if self.end.lifecycle.can("closed"):
            self.end.lifecycle.take("closed")
        if self._watch is not None:
            self._watch.stop()
        if self._asked is not None:
            self._asked.close()
        if self._listening is not None:
            self._listening.clear()
        if self._followed is not None:
            self._followed.leave()
        if self._running is not None:
            self._running.stop_all()
        self._intake.close()
        self._call_ended()
        self._end_session()
        self._core.roster.leave(self, reason)

    async def wait_closed(self) -> None:
        """Wait until the client is gone and everything it held is released."""
        if not self.closed:
            self._until_closed = self._until_closed or asyncio.Event()
            await self._until_closed.wait()

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, cancel the rest, then close."""
        if self.closed:
            return
        self._drained = self._drained or asyncio.Event()
        if self._running is not None:
            self._running.close()
        if self.end.caller is not None and self.end.lifecycle.can("close"):
            self.end.lifecycle.take("close")
        if self._listening is not None:
            self._listening.end_all()
        if self._intake.busy():
            try:
                async with asyncio.timeout(grace):
                    await self._drained.wait()
            except TimeoutError:
                await self._calls.cancel_rest()
        await self.transport.close()
