"""One client of a server: what its transport reads goes in, its calls run, its answers go out.

It owns everything that lives as long as the client does: the protocol end, the calls in flight, the
subscriptions, the requests to the client. When the transport is lost, all of it ends.
"""

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol import codec
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
    Ready,
    Reply,
)
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.lifecycle import Phase, Step
from mcpearl.protocol.modern import subscription_meta
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.runtime.tasks import spawn
from mcpearl.runtime.timers import DeadlineTimer
from mcpearl.server.context import LEVELS, Context
from mcpearl.server.failures import answer_to
from mcpearl.server.subscriptions import Subscriber, followed, granted
from mcpearl.transports.transport import Transport
from mcpearl.types.base import Result, decode, encode
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.subscriptions import (
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenResult,
)

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")


class ServerConnection:
    """A `Receiver` for the messages of one client."""

    def __init__(self, server: "Server", transport: Transport, principal: Any = None) -> None:
        self.server = server
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.end = ServerEnd(server.offer, server.stamp, server.limits, principal)
        self.closed = asyncio.Event()
        self._timer = DeadlineTimer(self.loop, self._expire)
        self._subscriber: Subscriber | None = None  # the legacy session's
        self._listeners: dict[int | str, Subscriber] = {}  # by id of their listen request
        self._flowing: asyncio.Event | None = None  # cleared while the client does not read
        self._paused = False
        self._drained: asyncio.Event | None = None  # set when the last call is done, on the way out
        self._ending: asyncio.Task[None] | None = None
        self._soft_limit = server.limits.max_in_flight

    # Receiving

    def received(self, frames: list[Frame]) -> None:
        """Take messages as they come; each is dealt with, or started, before the next."""
        receive, refuse = self.end.receive, self.end.refuse_frame
        for frame in frames:
            event = receive(frame) if isinstance(frame, bytes) else refuse(frame.reason)
            if isinstance(event, Call):
                self._start(event)
            else:
                self._handle(event)
        if len(self.end.in_flight) >= self._soft_limit and not self._paused:
            self._pause()

    def _handle(self, event: Event) -> None:
        match event:
            case Call():
                self._start(event)
            case Reply(message) | Opened(message):
                self.transport.send(message)
            case Answer():
                _settle(event)
            case Cancel(call, reason, message):
                self._cancel(call, reason)
                if message is not None:
                    self.transport.send(message)
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
        self._subscriber = subscriber = Subscriber(self.transport)
        for kind in ("tools", "prompts", "resources"):
            if self.end.offer.has(f"{kind}.list_changed"):
                self.server.subscriptions.follow(subscriber, kind)

    def _notice(self, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            self.end.pending.progress(notice.params.progress_token, self.loop.time())
        self.server.noticed(notice, self)

    def _pause(self) -> None:
        # While a handler waits for this client's answer, not reading would be waiting for ever.
        if not self.end.pending:
            self._paused = True
            self.transport.pause()

    def _resume(self) -> None:
        if self._paused and (self.end.pending or len(self.end.in_flight) <= self._soft_limit // 2):
            self._paused = False
            self.transport.resume()

    # Running calls

    def _start(self, call: Call) -> None:
        call.outlet = self.transport
        if call.method == "subscriptions/listen":
            self._listen(call)
        else:
            call.work = spawn(self.loop, self._run(call))

    async def _run(self, call: Call) -> None:
        ctx = Context(call, self, self.server)
        answer: Result | McpError
        try:
            answer = await self.server.perform(call, ctx)
        except asyncio.CancelledError as error:
            if not self.end.is_open(call):
                self._done()
                raise
            answer = self._interrupted(call, ctx, error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            answer = answer_to(call, error, mask=self.server.mask_errors)
        self._answer(call, answer)

    def _interrupted(self, call: Call, ctx: Context, error: BaseException) -> Result | McpError:
        """Answer a call whose handler was cancelled while the client still waits."""
        try:
            asked = ctx.suspended()
        except LimitReached as reached:
            return answer_to(call, reached, mask=False)
        if asked is not None:
            return asked
        if self._drained is not None:
            return McpError(INTERNAL_ERROR, "The server is shutting down")
        return answer_to(call, error, mask=self.server.mask_errors)

    def _answer(self, call: Call, answer: Result | McpError) -> None:
        try:
            if isinstance(answer, McpError):
                message = self.end.fail(call, answer)
            else:
                message = self.end.result(call, answer)
        except Exception as error:
            # The result cannot be encoded: that, too, costs only this call.
            logger.error("%s: result cannot be encoded", call.method, exc_info=error)
            failure = McpError(INTERNAL_ERROR, f"The result has no JSON form: {error}")
            message = self.end.fail(call, failure)
        if message is not None:
            call.outlet.send(message)
            if not self.end.in_flight:
                self.transport.flush()
        if self._paused or self._drained is not None:
            self._done()

    def _done(self) -> None:
        """Look after a call ended: there may be room again, or nothing left to wait for."""
        if self._paused:
            self._resume()
        if self._drained is not None and not self._busy():
            self._drained.set()

    def _busy(self) -> bool:
        return len(self.end.in_flight) > len(self._listeners)

    def _cancel(self, call: Call, reason: str | None) -> None:
        logger.debug("%s cancelled by the client: %s", call.method, reason)
        listener = self._listeners.pop(call.id, None)
        if listener is not None:
            self.server.subscriptions.leave(listener)
        if call.work is not None:
            call.work.cancel()
        self._done()

    # Subscriptions

    def subscriber(self) -> Subscriber:
        """The legacy session as a subscriber."""
        if self._subscriber is None:
            self._subscriber = Subscriber(self.transport)
        return self._subscriber

    def _listen(self, call: Call) -> None:
        """Open a modern subscription: acknowledge first, then let it hear."""
        honoured = granted(call.params.notifications, self.end.offer.has)
        subscriber = Subscriber(call.outlet, call)
        try:
            for uri in honoured.resource_subscriptions or ():
                self.server.subscriptions.subscribe(
                    subscriber, uri, self.server.limits.max_subscriptions
                )
        except LimitReached as error:
            self.server.subscriptions.leave(subscriber)
            self._answer(call, McpError(INTERNAL_ERROR, str(error)))
            return
        acknowledged = SubscriptionsAcknowledgedNotificationParams(
            notifications=honoured, meta=subscription_meta(call.id)
        )
        call.outlet.send(
            codec.encode_notification(
                "notifications/subscriptions/acknowledged", encode(acknowledged)
            )
        )
        for kind in followed(honoured):
            self.server.subscriptions.follow(subscriber, kind)
        self._listeners[call.id] = subscriber

    def _end_listeners(self) -> None:
        """End every modern subscription in order, with its result."""
        for id, listener in list(self._listeners.items()):
            self.server.subscriptions.leave(listener)
            del self._listeners[id]
            assert listener.call is not None
            self._answer(listener.call, SubscriptionsListenResult(meta=dict(subscription_meta(id))))

    # Asking and telling

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request to a legacy client on behalf of a call, and wait for its answer."""
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        timeout = self.server.ask_timeout
        entry, message = self.end.ask(method, params, future, self.loop.time(), timeout)
        self._timer.at_latest(entry.deadline)
        call.outlet.send(message)
        self._resume()
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

    async def drained(self) -> None:
        """Give others a turn, and wait while the client does not read."""
        if self._flowing is None:
            await asyncio.sleep(0)
        else:
            await self._flowing.wait()

    def writable(self, flowing: bool) -> None:
        """Note whether the client reads."""
        if flowing:
            if self._flowing is not None:
                self._flowing.set()
                self._flowing = None
            self.transport.resume()
        else:
            self._flowing = asyncio.Event()
            self.transport.pause()

    # Ending

    def ended(self) -> None:
        """Finish what is in hand: the client asks nothing more, but may wait for answers."""
        if self._ending is None:
            self._ending = self.loop.create_task(self.drain(self.server.grace))

    def lost(self, reason: Exception | None) -> None:
        """Release everything the client held: nobody is there to answer."""
        if self.closed.is_set():
            return
        self.closed.set()
        if self.end.lifecycle.can(Step.CLOSED):
            self.end.lifecycle.take(Step.CLOSED)
        self._timer.cancel()
        for entry in self.end.pending.clear():
            if not entry.waiter.done():
                entry.waiter.set_exception(
                    ConnectionLost("the client is gone", maybe_executed=True)
                )
        self._release()
        for call in list(self.end.in_flight.values()):
            self.end.drop(call)
            if call.work is not None:
                call.work.cancel()
        if self._flowing is not None:
            self._flowing.set()
        self._done()
        self.server.connections.discard(self)

    def _release(self) -> None:
        for listener in self._listeners.values():
            self.server.subscriptions.leave(listener)
        self._listeners.clear()
        if self._subscriber is not None:
            self.server.subscriptions.leave(self._subscriber)

    async def drain(self, grace: float) -> None:
        """Let calls finish within `grace` seconds, cancel the rest, then close."""
        if self.closed.is_set():
            return
        self._drained = asyncio.Event()
        if self.end.lifecycle.phase is Phase.READY:
            self.end.lifecycle.take(Step.CLOSE)
        self._end_listeners()
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
            await asyncio.wait(tasks, timeout=1.0)


def _settle(answer: Answer) -> None:
    waiter = answer.entry.waiter
    if waiter.done():
        return
    if answer.error is not None:
        waiter.set_exception(McpError.of(answer.error))
    else:
        waiter.set_result(answer.result)
