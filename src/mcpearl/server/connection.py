"""One client of a server: what its transport reads goes in, its calls run, its answers go out.

It owns everything that lives as long as the client does: the protocol end, the calls in flight, the
subscriptions, the requests to the client. When the transport is lost, all of it ends.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import (
    ConnectionLost,
    InvalidResult,
    LimitReached,
    McpError,
    RequestTimeout,
)
from mcpearl.protocol.events import (
    Answer,
    Call,
    Caller,
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
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.lifecycle import Phase, Step
from mcpearl.protocol.modern import LISTEN, subscription_meta
from mcpearl.protocol.server_end import ServerEnd, SoloEnd
from mcpearl.protocol.snapshot import Snapshot
from mcpearl.runtime.eager import spawn
from mcpearl.runtime.liveness import Watch
from mcpearl.runtime.timers import DeadlineTimer
from mcpearl.schema.errors import OutputError
from mcpearl.server.context import LEVELS, Context
from mcpearl.server.failures import answer_to
from mcpearl.server.listen_streams import ListenStreams
from mcpearl.server.subscriptions import Subscriber
from mcpearl.transports.transport import Transport
from mcpearl.types.base import RequestParams, Result, decode
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.subscriptions import SubscriptionsListenResult

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")
TURN = 0.001  # seconds a handler may go on saying things; what it says meanwhile leaves together
STALL = 5.0  # seconds without any call ending after which a full connection reads on
UNWINDING = 1.0  # seconds a handler has to end once it is cancelled


class _Whole:
    """The outlet of a connection that carries everything: an answer is a message like others."""

    __slots__ = ("finish", "send")

    def __init__(self, transport: Transport) -> None:
        self.send = self.finish = transport.send


class ServerConnection:
    """A `Receiver` for the messages of one client."""

    def __init__(self, server: "Server", transport: Transport, principal: Any = None) -> None:
        self.server = server
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.end = self._make_end(principal)
        self.closed = asyncio.Event()
        self._outlet = cast("Outlet", _Whole(transport))
        self._timer = DeadlineTimer(self.loop, self._expire)
        self._subscriber: Subscriber | None = None  # the legacy session's
        self._listeners = ListenStreams(server)
        self._last_turn = 0.0  # when a handler that says a lot last gave others a turn
        self._flowing: asyncio.Event | None = None  # there while the client does not read
        self._largest = server.limits.max_outgoing
        self._soft_limit = server.limits.max_in_flight
        self._ceiling = self._soft_limit  # calls in hand at which it is full
        self._full: asyncio.TimerHandle | None = None  # there while full; runs when it stalls
        self._held: list[Frame] = []  # read, but not looked at, because it is full
        self._reading = True
        self._receiving = False
        self._drained: asyncio.Event | None = None  # set when the last call is done, on the way out
        self._ending: asyncio.Task[None] | None = None
        self.heard_at = 0.0  # when something was last read
        self._now = self.loop.time
        self._watch: Watch | None = None  # of a legacy session, where the wire has none

    def _make_end(self, principal: Any) -> ServerEnd:
        server = self.server
        return ServerEnd(server.offer, server.stamp, server.limits, principal)

    # Receiving

    def received(self, frames: list[Frame]) -> None:
        """Take messages as they come; each is dealt with, or started, before the next."""
        self.heard_at = self._now()
        if self._full is not None:
            self._held += frames
            return
        receive, refuse, in_flight = self.end.receive, self.end.refuse_frame, self.end.in_flight
        self._receiving = True  # what is answered meanwhile leaves together
        try:
            for taken, frame in enumerate(frames, 1):
                event = receive(frame) if isinstance(frame, bytes) else refuse(frame.reason)
                if isinstance(event, Call):
                    self._start(event, self._outlet)
                    if len(in_flight) >= self._ceiling and self._is_full():
                        self._held = frames[taken:]
                        self._hold()
                        break
                else:
                    self._handle(event)
        finally:
            self._receiving = False
            self.transport.flush()

    def receive(self, message: bytes | Envelope, outlet: Outlet) -> list[Call]:
        """Take one message whose answer has an outlet of its own; give the calls to be `run`."""
        return self._take(self.end.receive(message), outlet)

    def _take(self, event: Event, outlet: Outlet) -> list[Call]:
        match event:
            case Call():
                event.outlet = outlet
                return [event]
            case Reply(message, refused):
                outlet.finish(message, refused)
            case Opened(message):
                outlet.finish(message)
            case Many(events):
                return [call for each in events for call in self._take(each, outlet)]
            case _:
                self._handle(event)
        return []

    def recognize(self, principal: Any) -> None:
        """Go on with the same client, who brought a new token."""
        self.end.recognize(principal)

    def speak(self, version: str) -> None:
        """Take the session as initialized in this version, where no session is kept."""
        self.end.restore(Snapshot(version))

    @property
    def is_ready(self) -> bool:
        """Whether the client has sent `notifications/initialized`."""
        return self.end.lifecycle.phase is Phase.READY

    def snapshot(self) -> tuple[Snapshot, tuple[str, ...]]:
        """Return the lasting state of the session, and the resources it is subscribed to."""
        uris = () if self._subscriber is None else tuple(sorted(self._subscriber.uris))
        return self.end.snapshot(), uris

    def restore(self, state: Snapshot, uris: Iterable[str]) -> None:
        """Continue a session that began at another process."""
        self.end.restore(state)
        if state.ready:
            self._ready()
        self.adopt(state, uris)

    def adopt(self, state: Snapshot, uris: Iterable[str]) -> None:
        """Take over what another process changed in the session: log level and subscriptions."""
        assert self.end.caller is not None
        self.end.caller.log_level = state.log_level
        subscriber, wanted = self.subscriber(), set(uris)
        for uri in subscriber.uris - wanted:
            self.server.subscriptions.unsubscribe(subscriber, uri)
        for uri in wanted - subscriber.uris:
            self.server.subscriptions.subscribe(subscriber, uri)

    def _handle(self, event: Event) -> None:
        match event:
            case Call():
                self._start(event, self._outlet)
            case Reply(message) | Opened(message):
                self.transport.send(message)
            case Answer():
                _settle(event)
            case Cancel(call, reason, message):
                self._cancel(call, reason)
                if message is not None:
                    call.outlet.finish(message)
            case Notice():
                self._notice(event)
            case Ready():
                self._ready()
            case Many(events):
                for each in events:
                    self._handle(each)
            case Ignored(reason):
                logger.debug("ignored: %s", reason)

    def _ready(self) -> None:
        self._subscriber = subscriber = Subscriber(self._outlet)
        for kind in ("tools", "prompts", "resources"):
            if self.end.offer.has(f"{kind}.list_changed"):
                self.server.subscriptions.follow(subscriber, kind)
        times = self.server.keepalive
        if times is not None and not getattr(self.transport, "keeps_alive", False):
            self._watch = Watch(self.loop, self, times)

    def _notice(self, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            self.end.pending.progress(notice.params.progress_token, self.loop.time())
        self.server.noticed(notice, self)

    # How much is taken on

    def _busy(self) -> int:
        """How many calls are being worked on. Listening is no work."""
        return len(self.end.in_flight) - len(self._listeners)

    def _is_full(self) -> bool:
        if self._flowing is not None or self.closed.is_set():
            return True
        # While a handler waits for this client's answer, not reading would be waiting for ever.
        return not self.end.pending and self._busy() >= self._ceiling

    def _hold(self) -> None:
        """Read no further until enough calls have ended, or none does for too long."""
        if self.closed.is_set():  # in the middle of what was read: the answers were too many
            self._end_calls()
            return
        self._full = self.loop.call_later(STALL, self._stalled, self._busy())
        self._regulate()

    def _stalled(self, busy: int) -> None:
        """Take some more on: what the calls in hand wait for may be a cancellation to be read."""
        if self._flowing is not None or self._busy() < busy:
            self._hold()
        else:
            self._ceiling = busy + self._soft_limit
            self.loop.call_later(STALL, self._lower)
            self._go_on()

    def _lower(self) -> None:
        if self._flowing is None:
            self._ceiling = self._soft_limit

    def _make_room(self) -> None:
        if self._full is None or self._flowing is not None:
            return
        if self.end.pending or self._busy() <= self._soft_limit // 2:
            self._go_on()

    def _go_on(self) -> None:
        """Look at what was held, then read again unless that was enough already."""
        if self._full is not None:
            self._full.cancel()
            self._full = None
        held, self._held = self._held, []
        self.received(held)
        self._regulate()

    def _regulate(self) -> None:
        """Read while there is room for calls and the client takes what it is sent."""
        reading = self._full is None and self._flowing is None
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.heard_at = self._now()  # the time it was not read is not its silence
                self.transport.resume()
            else:
                self.transport.pause()

    # Running calls

    def _start(self, call: Call, outlet: Outlet) -> None:
        call.outlet = outlet
        if self._drained is not None:
            self._answer(call, _shutting_down())
        elif call.method == LISTEN:
            call.work = spawn(self.loop, self._listen(call))
        else:
            call.work = spawn(self.loop, self._run(call))

    async def run(self, calls: list[Call]) -> None:
        """Run calls that have their outlets to their end: one in this task, several in their own."""
        if len(calls) > 1:
            for call in calls:
                self._start(call, call.outlet)
            await asyncio.wait([call.work for call in calls if call.work is not None])
            return
        call = calls[0]
        if self._drained is not None:
            self._answer(call, _shutting_down())
            return
        task = call.work = asyncio.current_task(self.loop)
        assert task is not None
        before = task.cancelling()
        try:
            await (self._listen(call) if call.method == LISTEN else self._run(call))
        except asyncio.CancelledError:
            if self.end.is_open(call):
                raise
        finally:
            call.work = None
            while task.cancelling() > before:
                task.uncancel()  # it was the call that was to end, and it has

    def give_up(self, calls: Sequence[Call]) -> None:
        """End calls nobody waits for any more."""
        for call in calls:
            if self.end.is_open(call):
                self.end.drop(call)
                self._cancel(call, "the client left")

    async def _run(self, call: Call) -> None:
        ctx = Context(call, self, self.server)
        answer: Result | McpError
        raised: BaseException | None = None
        try:
            answer = await self.server.perform(call, ctx)
        except asyncio.CancelledError as error:
            if not self.end.is_open(call):
                self._done()
                raise
            raised = error
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raised = error
        if ctx.rounds is not None and ctx.rounds.suspended:
            # Whatever the handler made of being stopped: it asked, and has not been answered yet.
            answer = self._asking(call, ctx)
        elif raised is not None:
            answer = self._failed(call, raised)
        self._answer(call, answer)

    def _failed(self, call: Call, error: BaseException) -> Result | McpError:
        if self._drained is not None and isinstance(error, asyncio.CancelledError):
            return _shutting_down()
        return answer_to(call, error, mask=self.server.mask_errors)

    def _asking(self, call: Call, ctx: Context) -> Result | McpError:
        try:
            return ctx.input_required()
        except Exception as error:
            return answer_to(call, error, mask=self.server.mask_errors)

    def _answer(self, call: Call, answer: Result | McpError) -> None:
        try:
            message = self._encode(call, answer)
        except Exception as error:
            # The result cannot be encoded: that, too, costs only this call.
            no_form = OutputError(f"The result has no JSON form: {error}")
            message = self._encode(call, answer_to(call, no_form, mask=False))
        if message is not None:
            call.outlet.finish(message)
            if not self._receiving and not self.end.in_flight:
                self.transport.flush()
        if self._full is not None or self._drained is not None:
            self._done()

    def _encode(self, call: Call, answer: Result | McpError) -> bytes | None:
        if isinstance(answer, Result):
            message = self.end.result(call, answer)
            if message is not None and len(message) > self._largest and call.batch is None:
                return codec.encode_error(call.id, self._too_large(len(message)))
            return message
        if isinstance(answer, McpError):
            return self.end.fail(call, answer)
        raise TypeError(f"the handler returned a {type(answer).__name__}, not a `Result`")

    def _too_large(self, size: int) -> McpError:
        reason = f"The answer has {size} bytes, over the {self._largest} of `Limits.max_outgoing`"
        return McpError(INTERNAL_ERROR, reason)

    def _done(self) -> None:
        """Look after a call ended: there may be room again, or nothing left to wait for."""
        self._make_room()
        if self._drained is not None and not self._busy():
            self._drained.set()

    def _cancel(self, call: Call, reason: str | None) -> None:
        logger.debug("%s cancelled by the client: %s", call.method, reason)
        self._listeners.leave(call)
        self._abort(call)
        self._done()

    def _abort(self, call: Call) -> None:
        """Stop a handler; the server stays up until it has ended."""
        # A cancelled task keeps its frames, and so the call: they must not hold each other for long.
        work, call.work = call.work, None
        if work is not None and not work.done():
            work.cancel()
            self.server.unwinding.add(work)
            work.add_done_callback(self.server.unwinding.discard)

    # Subscriptions

    def subscriber(self) -> Subscriber:
        """The legacy session as a subscriber."""
        if self._subscriber is None:
            self._subscriber = Subscriber(self._outlet)
        return self._subscriber

    async def _listen(self, call: Call) -> None:
        """Open a modern subscription; from then on nothing runs, but it hears."""
        try:
            await self._listeners.open(call, Context(call, self, self.server))
        except LimitReached as error:
            self._answer(call, McpError(INTERNAL_ERROR, str(error)))
        principal = call.caller.principal
        left = None if principal is None else principal.time_left
        if left is not None:
            self._listeners.end_in(left, call, self._end_listener)
        self._done()

    def _end_listener(self, call: Call) -> None:
        self._listeners.leave(call)
        self._answer(call, _heard(call))

    def reserve(self, count: int) -> None:
        """Refuse more subscriptions than one client may have."""
        held = 0 if self._subscriber is None else len(self._subscriber.uris)
        self._listeners.reserve(count, held + self._listeners.uris)

    def end_listeners(self) -> None:
        """End every modern subscription in order, with its result."""
        for call in self._listeners.end_all():
            self._answer(call, _heard(call))

    # Asking and telling

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request to a legacy client on behalf of a call, and wait for its answer."""
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        timeout = self.server.ask_timeout
        entry, message = self.end.ask(method, params, future, self.loop.time(), timeout)
        self._timer.at_latest(entry.deadline)
        call.outlet.send(message)
        if self._full is not None:
            self.loop.call_soon(self._make_room)
        try:
            raw = await future
        except asyncio.CancelledError:
            if entry.id in self.end.pending:
                call.outlet.send(self.end.abandon(entry, "the call it belongs to has ended"))
            raise
        try:
            return decode(kind, raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidResult(
                f"the client's answer to `{method}` is not valid: {error}"
            ) from None

    def _expire(self, now: float) -> float | None:
        for entry in self.end.pending.expire(now):
            message = self.end.abandon(entry, f"no answer within {entry.timeout:g} s")
            self.transport.send(message)
            if not entry.waiter.done():
                entry.waiter.set_exception(RequestTimeout(entry.method, entry.timeout))
        return self.end.pending.next_deadline()

    def wants_log(self, caller: Caller, level: str) -> bool:
        """Whether a message of this level may be sent: modern callers opt in, legacy ones out."""
        wanted = caller.log_level
        if wanted is None:
            return not caller.version.modern
        return LEVELS[level] >= LEVELS[wanted]

    def narrow(self, params: msgspec.Struct, caller: Caller) -> msgspec.Struct:
        """Fit a notification's params to the caller's version."""
        return narrow(params, caller.version.name)

    async def drained(self, outlet: Outlet) -> None:
        """Give others a turn once in a while, and wait while the client does not read."""
        if self._flowing is None:
            now = self.loop.time()
            if now - self._last_turn >= TURN:
                self._last_turn = now
                await asyncio.sleep(0)
        while self._flowing is not None:
            await self._flowing.wait()
        if outlet is not self._outlet:
            await outlet.drained()  # of HTTP: every response has its own reader

    def writable(self, flowing: bool) -> None:
        """Note whether the client reads.

        While it does not, nothing new is begun for it. What the calls in hand have to say is the
        transport's to hold, which counts it, and drops the client at the bound.
        """
        if not flowing:
            self._flowing = self._flowing or asyncio.Event()
            self._ceiling = 0
        elif self._flowing is not None:
            self._flowing.set()
            self._flowing = None
            self._ceiling = self._soft_limit
            if self._full is not None and not self._is_full():
                self._go_on()
        self._regulate()

    # Whether the client is there

    @property
    def attentive(self) -> bool:
        """Whether the connection is being read."""
        return self._reading

    def ping(self, patience: float) -> bool:
        """Ask whether the client is there, unless a question waits: that has its own timeout."""
        if self.end.pending or self.closed.is_set():
            return False
        answered = self.loop.create_future()
        answered.set_result(None)  # nobody waits: being heard is enough
        now = self.loop.time()
        entry, message = self.end.ask("ping", RequestParams(), answered, now, patience)
        self._timer.at_latest(entry.deadline)
        self.transport.send(message)
        return True

    def silent(self, patience: float) -> None:
        """Give the client up, with everything it held: it did not even answer a ping."""
        logger.warning("a client was dropped: it did not answer a ping within %g s", patience)
        self.lost(ConnectionLost("the client did not answer a ping"))
        self._ending = self.loop.create_task(self.transport.close())

    # Ending

    def ended(self) -> None:
        """Finish what is in hand: the client asks nothing more, but may wait for answers."""
        if self._ending is None:
            self._ending = self.loop.create_task(self.drain(self.server.grace))

    def lost(self, reason: Exception | None) -> None:
        """Release everything the client held: nobody is there to answer."""
        if self.closed.is_set():
            return
        if isinstance(reason, LimitReached):
            logger.warning("a client was dropped: %s", reason)
        self.closed.set()
        if self.end.lifecycle.can(Step.CLOSED):
            self.end.lifecycle.take(Step.CLOSED)
        self._timer.cancel()
        if self._watch is not None:
            self._watch.stop()
        for entry in self.end.pending.clear():
            if not entry.waiter.done():
                entry.waiter.set_exception(
                    ConnectionLost("the client is gone", maybe_executed=True)
                )
        self._release()
        self._end_calls()
        if self._full is not None:
            self._full.cancel()
            self._full = None
        if self._flowing is not None:
            self._flowing.set()
            self._flowing = None
        self._done()
        self.server.connections.discard(self)

    def _end_calls(self) -> None:
        """Begin nothing more, and stop what runs: nobody waits for it."""
        self._ceiling = 0
        self._held.clear()
        for call in list(self.end.in_flight.values()):
            self.end.drop(call)
            self._abort(call)

    def _release(self) -> None:
        self._listeners.clear()
        if self._subscriber is not None:
            self.server.subscriptions.leave(self._subscriber)

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, cancel the rest, then close."""
        if self.closed.is_set():
            return
        self._drained = self._drained or asyncio.Event()
        if self.end.lifecycle.phase is Phase.READY:
            self.end.lifecycle.take(Step.CLOSE)
        self.end_listeners()
        if self._busy():
            try:
                async with asyncio.timeout(grace):
                    await self._drained.wait()
            except TimeoutError:
                await self._cancel_rest()
        await self.transport.close()

    async def _cancel_rest(self) -> None:
        tasks = [call.work for call in self.end.in_flight.values() if call.work is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=UNWINDING)


class SoloConnection(ServerConnection):
    """Clients without a session, all of them: each message stands for itself, wherever it is from."""

    end: SoloEnd

    def _make_end(self, principal: Any) -> SoloEnd:
        server = self.server
        return SoloEnd(server.offer, server.stamp, server.limits, principal)

    def receive_from(self, principal: Any, message: bytes | Envelope, outlet: Outlet) -> list[Call]:
        """Take one message of whoever this is; as `receive`."""
        return self._take(self.end.receive_from(principal, message), outlet)

    def reserve(self, count: int) -> None:
        """Refuse more subscriptions than one request may ask for: others are somebody else's."""
        self._listeners.reserve(count, held=0)


def _heard(call: Call) -> SubscriptionsListenResult:
    return SubscriptionsListenResult(meta=dict(subscription_meta(call.id)))


def _shutting_down() -> McpError:
    return McpError(INTERNAL_ERROR, "The server is shutting down")


def _settle(answer: Answer) -> None:
    waiter = answer.entry.waiter
    if waiter.done():
        return
    if answer.error is not None:
        waiter.set_exception(McpError.of(answer.error))
    else:
        waiter.set_result(answer.result)
