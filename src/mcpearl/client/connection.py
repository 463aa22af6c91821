"""A client's connection to its server: requests go out; answers, notices and questions come in.

It owns all that lives as long as the connection: the protocol end, the pending requests, and the
questions being answered. Every request it sends has exactly one outcome, whatever the server does.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from mcpearl.client.answering import Answering
from mcpearl.client.callbacks import Callbacks
from mcpearl.client.progress import MAX_WAITING_NOTICES, ProgressCallback, ProgressFeeds
from mcpearl.protocol import codec
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import (
    ConnectionLost,
    LimitReached,
    Malformed,
    McpError,
    RequestTimeout,
)
from mcpearl.protocol.events import Answer, Call, Cancel, Event, Ignored, Many, Notice, Reply
from mcpearl.protocol.framing import Frame, FrameError
from mcpearl.protocol.lifecycle import Step
from mcpearl.protocol.modern import Presentation
from mcpearl.protocol.pending import PendingRequest
from mcpearl.runtime.eager import spawn
from mcpearl.runtime.liveness import Keepalive, Watch
from mcpearl.runtime.ordered import OrderedCalls
from mcpearl.runtime.timers import DeadlineTimer, HeldTimeout
from mcpearl.transports.transport import ClientReceiver, Outgoing, ToolAware, Transport
from mcpearl.types.base import SUBSCRIPTION_ID_KEY, RequestId, RequestParams, Result
from mcpearl.types.initialize import InitializeResult
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.tools import Tool

logger = logging.getLogger("mcpearl.client")

R = TypeVar("R", bound=Result)
BoundCallback = tuple[Callable[[Any], Any], Any]  # a callback of the application, and its argument
_CANCELLED = "notifications/cancelled"


class RelayedRequest(msgspec.Struct, eq=False):
    """A request that a client forwards for another client."""

    method: str
    params: Any
    """The params that `body` encodes, for transports that repeat parts of them in headers."""
    body: bytes
    """The encoded params, without `_meta`."""
    on_progress: ProgressCallback | None = None
    """Called with each progress notification."""
    presentation: Presentation | None = None
    """Describes the other client to a modern server."""
    meta: dict[str, Any] | None = None
    """Further members of `_meta`."""
    on_sent: Callable[[PendingRequest], None] | None = None
    """Called with the pending request, each time it is sent."""


class ClientConnection(ClientReceiver):
    """The receiver of one server's messages, and the sender of requests to it."""

    def __init__(
        self,
        transport: Transport,
        end: ClientEnd,
        callbacks: Callbacks,
        on_notice: Callable[[Notice], BoundCallback | None],
        on_lost: "Callable[[ClientConnection], None]",
    ) -> None:
        self.transport = transport
        self.end = end
        self.loop = asyncio.get_running_loop()
        self.lost_reason: ConnectionLost | None = None
        self.heard_at = 0.0  # when the server was last heard
        self._now = self.loop.time
        self._opening = HeldTimeout(self.loop)  # how long the transport may take to connect
        self._on_notice = on_notice
        self._on_lost = on_lost
        self._watch: Watch | None = None
        self._timer = DeadlineTimer(self.loop, self._expire)
        self.answering = Answering(
            self.end, callbacks, transport.medium, self.notify, self._reply_at_once
        )
        self._listeners: dict[int | str, Callable[[Notice], None]] = {}  # by subscription id
        self._notices = OrderedCalls(MAX_WAITING_NOTICES, self._hold)
        self.progress = ProgressFeeds(end.pending, self._notices, self._hold, self._now)
        self._full = 0  # queues of callbacks at their limit; reading pauses until all have room

    async def open(self, timeout: float) -> None:
        """Open the transport; `TimeoutError` when that takes longer than `timeout` seconds.

        The time stands still while the transport waits for authorization.
        """
        async with self._opening.within(timeout):
            await self.transport.open(self)

    # Sending

    def _about(
        self, method: str | None = None, id: int | None = None, cancels: int | None = None
    ) -> Outgoing:
        """Describe a message without params to the transport."""
        end = self.end
        return Outgoing(method, id, None, end.agreed, end.presentation is not None, cancels)

    async def request(
        self,
        method: str,
        params: msgspec.Struct,
        kind: type[R],
        *,
        timeout: float,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        on_sent: Callable[[PendingRequest], None] | None = None,
    ) -> R | InputRequiredResult:
        """Send a request and wait for its result: of `kind`, or of a type that an extension claims.

        Args:
            method: The method.
            params: Its params.
            kind: The type of its result.
            timeout: Seconds to wait for the answer; progress restarts them.
            max_timeout: Seconds to wait in all, whatever the progress.
            on_progress: Called with each progress notification.
            meta: Further members of `_meta`.
            on_sent: Called with the pending request; progress and authorization move its deadline.
        """
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        end = self.end
        entry, message = end.request(
            method,
            params,
            future,
            self.loop.time(),
            timeout,
            max_timeout,
            progress=on_progress is not None,
            meta=meta,
        )
        if on_sent is not None:
            on_sent(entry)
        if on_progress is not None:
            self.progress.callbacks[entry.id] = on_progress
        about = Outgoing(method, entry.id, params, end.agreed, end.presentation is not None)
        raw = await self._outcome(entry, message, about, future)
        return end.decode_result(method, kind, raw)  # type: ignore[return-value]

    def relay(
        self, request: RelayedRequest, timeout: float, max_timeout: float
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Send a request of another client, and return its result undecoded.

        Args:
            request: The request.
            timeout: Seconds to wait for the answer; progress restarts them.
            max_timeout: Seconds to wait in all, whatever the progress.
        """
        if self.lost_reason is not None:
            self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        end, method, on_progress = self.end, request.method, request.on_progress
        entry, message = end.relay(
            method,
            request.body,
            future,
            self._now(),
            timeout,
            max_timeout,
            request.presentation,
            request.meta,
            on_progress is not None,
        )
        if request.on_sent is not None:
            request.on_sent(entry)
        if on_progress is not None:
            self.progress.callbacks[entry.id] = on_progress
        modern = end.presentation is not None
        about = Outgoing(method, entry.id, request.params, end.agreed, modern)
        return self._outcome(entry, message, about, future)

    async def initialize(self, timeout: float, version: Any) -> msgspec.Raw:
        """Send `initialize` and wait for the raw answer."""
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        entry, message = self.end.initialize(future, self.loop.time(), timeout, version)
        about = self._about("initialize", entry.id)
        return await self._outcome(entry, message, about, future)

    def initialized(self, result: InitializeResult) -> None:
        """Apply the answer to `initialize`, and complete the handshake of a legacy session."""
        message = self.end.initialized(result)
        self.transport.send(message, self._about("notifications/initialized"))

    async def _outcome(
        self,
        entry: PendingRequest,
        message: bytes,
        about: Outgoing,
        future: "asyncio.Future[msgspec.Raw]",
    ) -> msgspec.Raw:
        self._timer.at_latest(entry.deadline)
        self.transport.send(message, about)
        if len(self.end.pending) == 1:
            self.transport.flush()
        try:
            raw = await future
            if entry.id in self.progress.feeds:
                await self.progress.finish(entry)
            return raw
        except asyncio.CancelledError:
            if entry.id in self.end.pending:
                self._give_up(entry, "the caller gave up")
            raise
        finally:
            if entry.id in self.progress.callbacks:
                self.progress.end(entry)

    def _give_up(self, entry: PendingRequest, reason: str) -> None:
        message = self.end.abandon(entry, reason)
        if entry.method != "initialize":  # the one request that must not be cancelled
            self.transport.send(message, self._about(_CANCELLED, cancels=entry.id))

    def set_log_level(self, level: str) -> None:
        """Ask a modern server for this log level with every request from now on."""
        self.end.set_log_level(level)

    def notify(self, method: str, params: msgspec.Struct | None = None) -> None:
        """Send a notification."""
        self.transport.send(self.end.notify(method, params), self._about(method))

    def _reply(self, message: bytes) -> None:
        self.transport.send(message, self._about())

    def _reply_at_once(self, message: bytes) -> None:
        self._reply(message)
        self.transport.flush()

    def listen(
        self, params: msgspec.Struct, on_notice: Callable[[Notice], None]
    ) -> tuple[PendingRequest, "asyncio.Future[msgspec.Raw]"]:
        """Open a modern subscription; the future is done when it ends."""
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        entry, message = self.end.listen(params, future)
        self._listeners[entry.id] = on_notice
        self.transport.send(message, self._about(entry.method, entry.id))
        return entry, future

    def unlisten(self, entry: PendingRequest) -> None:
        """End a modern subscription from this side."""
        self._listeners.pop(entry.id, None)
        if entry.id in self.end.pending:
            self._give_up(entry, "no longer interested")
            if not entry.waiter.done():
                entry.waiter.cancel()

    def check(self) -> None:
        """Raise if the connection is lost."""
        if self.lost_reason is not None:
            raise _copy(self.lost_reason, maybe_executed=False)

    def _expire(self, now: float) -> float | None:
        for entry in self.end.pending.expire(now, self.answering.busy_until(now)):
            seconds = entry.seconds
            self._give_up(entry, f"no answer within {seconds:g} s")
            _reject(entry, RequestTimeout(entry.method, seconds, hard=entry.hard))
        return self.end.pending.next_deadline()

    # Receiving

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        """Handle messages as they arrive."""
        self.heard_at = self._now()
        for frame in frames:
            if isinstance(frame, FrameError):
                self._refuse(frame)
                continue
            event = self.end.receive(frame)
            if isinstance(event, Answer):
                _settle(event)
            else:
                self._handle(event)

    def _refuse(self, frame: FrameError) -> None:
        """Fail the request whose answer cannot be read, if the message still shows which it is."""
        id = codec.answered_by(frame.head)
        if id is not None and id in self.end.pending:
            self.failed(id, LimitReached(f"the answer cannot be taken: {frame.reason}"))
        else:
            logger.warning("the server sent an invalid message: %s", frame.reason)

    def _handle(self, event: Event) -> None:
        match event:
            case Answer():
                _settle(event)
            case Notice():
                self._notice(event)
            case Call():
                event.outlet = self.transport
                event.work = spawn(self.loop, self.answering.answer(event))
            case Reply(message):
                self._reply(message)
            case Cancel(call, _, message):
                if call.work is not None:
                    call.work.cancel()
                if message is not None:
                    self._reply(message)
            case Many(events):
                for each in events:
                    self._handle(each)
            case Ignored(reason):
                logger.debug("ignored: %s", reason)
            case _:
                pass

    def _notice(self, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            self.progress.heard(notice.params)
            return
        if notice.params.meta is not None:
            listener = self._listeners.get(notice.params.meta.get(SUBSCRIPTION_ID_KEY))
            if listener is not None:
                listener(notice)
        if notice.method == "notifications/subscriptions/acknowledged":
            return  # it concerns only the opening of the subscription
        told = self._on_notice(notice)
        if told is not None:
            self._notices.put(*told)

    def _hold(self, full: bool) -> None:
        self._full += 1 if full else -1
        if full and self._full == 1:
            self.transport.pause()
        elif not self._full:
            self.heard_at = self._now()  # the server was not silent, only unread
            self.transport.resume()

    def writable(self, flowing: bool) -> None:
        """Do nothing: `Limits.max_pending` bounds what a client sends."""

    def failed(self, request_id: RequestId, error: Exception) -> None:
        """Fail the one request whose exchange broke; the others continue."""
        entry = self.end.pending.get(request_id)
        if entry is not None:
            self.end.pending.discard(entry.id)
            _reject(entry, error)

    def unsent(self, messages: list[bytes]) -> None:
        """Fail the requests that never left, before the connection is lost: they did not run."""
        for message in messages:
            try:
                id = codec.decode(message).id
            except Malformed:
                continue
            if isinstance(id, int):
                self.failed(id, ConnectionLost("not sent: the connection ended before"))

    def held(self, request_id: RequestId | None, holding: bool) -> None:
        """Stop the timeout of a request, or of connecting (None), while it waits for authorization."""
        if request_id is None:
            self._opening.hold(holding)
        elif holding:
            self.end.pending.hold(request_id)
        elif (entry := self.end.pending.release(request_id, self.loop.time())) is not None:
            self._timer.at_latest(entry.deadline)

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Pass listed tools to the transport; return those that can be called over it."""
        transport = self.transport
        return transport.learn_tools(tools) if isinstance(transport, ToolAware) else tools

    # Liveness

    def watch(self, keepalive: Keepalive) -> None:
        """Ping a legacy server when it falls silent, unless the transport has a keepalive of its own."""
        if not self.end.version.modern and not self.transport.keeps_alive:
            self._watch = Watch(self.loop, self, keepalive)

    @property
    def attentive(self) -> bool:
        """Whether the connection is being read."""
        return not self._full

    def ping(self, patience: float) -> bool:
        """Ping the server and return True; return False if a request is pending, as it has a timeout."""
        if self.end.pending:
            return False
        answered = self.loop.create_future()
        answered.set_result(None)  # any sign of life is enough, so nothing waits for the answer
        now = self.loop.time()
        entry, message = self.end.request("ping", RequestParams(), answered, now, patience)
        self._timer.at_latest(entry.deadline)
        self.transport.send(message, self._about("ping", entry.id))
        return True

    def silent(self, patience: float) -> None:
        """End the connection: the server did not answer a ping."""
        self.lost(ConnectionLost(f"the server did not answer a ping within {patience:g} s"))

    # Ending

    def ended(self) -> None:
        """End the connection: a server that has closed its side cannot answer."""
        self.lost(ConnectionLost("the server closed its side of the connection"))

    def lost(self, reason: Exception | None) -> None:
        """Fail every pending request at once."""
        if self.lost_reason is not None:
            return
        if isinstance(reason, ConnectionLost):
            self.lost_reason = reason
        else:
            why = f": {reason}" if reason is not None else ""
            self.lost_reason = ConnectionLost(f"the connection is closed{why}")
        step: Step = "lose" if reason is not None else "closed"
        if self.end.lifecycle.can(step):
            self.end.lifecycle.take(step)
        self._timer.cancel()
        self.answering.close()
        if self._watch is not None:
            self._watch.stop()
        for entry in self.end.pending.clear():
            _reject(entry, _copy(self.lost_reason, maybe_executed=True))
        for call in list(self.end.in_flight.values()):
            self.end.drop(call)
            if call.work is not None:
                call.work.cancel()
        self._on_lost(self)

    async def close(self) -> None:
        """End the connection from this side."""
        if self.end.lifecycle.can("close"):
            self.end.lifecycle.take("close")
        try:
            await self.transport.close()
        finally:
            self.lost(None)
            self._notices.close()
            self.progress.close()


def _copy(lost: ConnectionLost, *, maybe_executed: bool) -> ConnectionLost:
    """Make the error of one request on a lost connection."""
    return type(lost)(
        lost.reason if maybe_executed else f"not sent: {lost.reason}",
        maybe_executed=maybe_executed,
        exit_code=lost.exit_code,
        stderr=lost.stderr,
    )


def _settle(answer: Answer) -> None:
    if answer.error is not None:
        _reject(answer.entry, McpError.of(answer.error))
    elif not answer.entry.waiter.done():
        answer.entry.waiter.set_result(answer.result)


def _reject(entry: PendingRequest, error: Exception) -> None:
    if not entry.waiter.done():
        entry.waiter.set_exception(error)
