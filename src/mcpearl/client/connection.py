"""One server of a client: requests go out, answers, notices and questions come in.

It owns what lives as long as the connection: the protocol end, the requests that wait, the questions
being answered. Every request it sends ends in exactly one way, whatever the server does.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mcpearl.client.callbacks import Callbacks
from mcpearl.protocol import codec
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.errors import (
    ConnectionLost,
    Malformed,
    McpearlError,
    McpError,
    RequestTimeout,
)
from mcpearl.protocol.events import Answer, Call, Cancel, Event, Ignored, Many, Notice, Reply
from mcpearl.protocol.framing import Frame
from mcpearl.protocol.lifecycle import Step
from mcpearl.protocol.pending import Entry
from mcpearl.runtime.eager import spawn
from mcpearl.runtime.liveness import Keepalive, Watch
from mcpearl.runtime.ordered import OrderedCalls
from mcpearl.runtime.timers import DeadlineTimer
from mcpearl.transports.transport import Transport
from mcpearl.types.base import SUBSCRIPTION_ID_KEY, RequestParams, Result
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.progress import ProgressNotificationParams

logger = logging.getLogger("mcpearl.client")

R = TypeVar("R", bound=Result)
ProgressCallback = Callable[[ProgressNotificationParams], Any]
Told = tuple[Callable[[Any], Any], Any]  # a callback of the application, and what it is told
MAX_WAITING_NOTICES = 10_000


class ClientConnection:
    """A `Receiver` for the messages of one server."""

    def __init__(
        self,
        transport: Transport,
        end: ClientEnd,
        callbacks: Callbacks,
        on_notice: Callable[[Notice], Told | None],
        on_lost: "Callable[[ClientConnection], None]",
    ) -> None:
        self.transport = transport
        self.end = end
        self.loop = asyncio.get_running_loop()
        self.lost_reason: ConnectionLost | None = None
        self.heard_at = 0.0  # when something was last read
        self._now = self.loop.time
        self._opening: asyncio.Timeout | None = None  # the time the transport has to connect
        self._opening_left = 0.0  # seconds of it, while it is held
        self._callbacks = callbacks
        self._on_notice = on_notice
        self._on_lost = on_lost
        self._watch: Watch | None = None
        self._timer = DeadlineTimer(self.loop, self._expire)
        self._progress: dict[int, OrderedCalls] = {}  # by request, for those who want to know
        self._progress_callbacks: dict[int, ProgressCallback] = {}
        self._listeners: dict[int | str, Callable[[Notice], None]] = {}  # by subscription id
        self._notices = OrderedCalls(MAX_WAITING_NOTICES, self._hold)
        self._full = 0  # queues of callbacks that can take no more; reading waits for all of them

    async def open(self, timeout: float) -> None:
        """Open the transport; `TimeoutError` when that takes longer than `timeout` seconds.

        The time stands still while the transport waits for authorization.
        """
        async with asyncio.timeout(timeout) as self._opening:
            await self.transport.open(self)

    # Asking

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
        on_sent: Callable[[Entry], None] | None = None,
    ) -> R | InputRequiredResult:
        """Send a request and wait for its one outcome.

        `on_sent` is called with the entry that waits, whose deadline progress and authorization move.
        """
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        entry, message = self.end.request(
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
            self._progress_callbacks[entry.id] = on_progress
        raw = await self._outcome(entry, message, future)
        return self.end.decode_result(method, kind, raw)  # type: ignore[return-value]

    async def initialize(self, timeout: float, version: Any) -> msgspec.Raw:
        """Send `initialize` and wait for the raw answer."""
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        entry, message = self.end.initialize(future, self.loop.time(), timeout, version)
        return await self._outcome(entry, message, future)

    async def _outcome(
        self, entry: Entry, message: bytes, future: "asyncio.Future[msgspec.Raw]"
    ) -> msgspec.Raw:
        self._timer.at_latest(entry.deadline)
        self.transport.send(message)
        if len(self.end.pending) == 1:
            self.transport.flush()
        try:
            raw = await future
            if entry.id in self._progress:
                await self._told(entry)
            return raw
        except asyncio.CancelledError:
            if entry.id in self.end.pending:
                self._give_up(entry, "the caller gave up")
            raise
        finally:
            if self._progress_callbacks.pop(entry.id, None) is not None:
                feed = self._progress.pop(entry.id, None)
                if feed is not None:
                    feed.close()

    async def _told(self, entry: Entry) -> None:
        """Let the progress callbacks of a request finish in what is left of its time."""
        if not await self._progress[entry.id].drained(max(0.0, entry.deadline - self._now())):
            logger.warning("a progress callback of %s takes longer than the call", entry.method)

    def _give_up(self, entry: Entry, reason: str) -> None:
        message = self.end.abandon(entry, reason)
        if entry.method != "initialize":  # the one request that must not be cancelled
            self._tell(message)

    def set_log_level(self, level: str) -> None:
        """Ask a modern server for this log level with every request from now on."""
        self.end.set_log_level(level)

    def notify(self, method: str, params: msgspec.Struct | None = None) -> None:
        """Send a notification."""
        self._tell(self.end.notify(method, params))

    def _tell(self, message: bytes) -> None:
        self.transport.send(message)

    def listen(
        self, params: msgspec.Struct, on_notice: Callable[[Notice], None]
    ) -> tuple[Entry, "asyncio.Future[msgspec.Raw]"]:
        """Open a modern subscription; the future ends with it."""
        self.check()
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        entry, message = self.end.listen(params, future)
        self._listeners[entry.id] = on_notice
        self.transport.send(message)
        return entry, future

    def unlisten(self, entry: Entry) -> None:
        """End a modern subscription from this side."""
        self._listeners.pop(entry.id, None)
        if entry.id in self.end.pending:
            self._tell(self.end.abandon(entry, "no longer interested"))
            if not entry.waiter.done():
                entry.waiter.cancel()

    def check(self) -> None:
        """Refuse to send on a connection that is lost."""
        if self.lost_reason is not None:
            raise _copy(self.lost_reason, maybe_executed=False)

    def _expire(self, now: float) -> float | None:
        for entry in self.end.pending.expire(now):
            seconds = entry.seconds
            self._give_up(entry, f"no answer within {seconds:g} s")
            _reject(entry, RequestTimeout(entry.method, seconds, hard=entry.hard))
        return self.end.pending.next_deadline()

    # Receiving

    def received(self, frames: list[Frame]) -> None:
        """Take messages as they come."""
        self.heard_at = self._now()
        for frame in frames:
            if isinstance(frame, bytes):
                event = self.end.receive(frame)
                if isinstance(event, Answer):
                    _settle(event)
                else:
                    self._handle(event)
            else:
                logger.warning("the server sent what is no message: %s", frame.reason)

    def _handle(self, event: Event) -> None:
        match event:
            case Answer():
                _settle(event)
            case Notice():
                self._notice(event)
            case Call():
                event.outlet = self.transport
                event.work = spawn(self.loop, self._answer(event))
            case Reply(message):
                self._tell(message)
            case Cancel(call, _, message):
                if call.work is not None:
                    call.work.cancel()
                if message is not None:
                    self._tell(message)
            case Many(events):
                for each in events:
                    self._handle(each)
            case Ignored(reason):
                logger.debug("ignored: %s", reason)
            case _:
                pass

    def _notice(self, notice: Notice) -> None:
        if notice.method == "notifications/progress":
            self._progressed(notice.params)
            return
        if notice.params.meta is not None:
            listener = self._listeners.get(notice.params.meta.get(SUBSCRIPTION_ID_KEY))
            if listener is not None:
                listener(notice)
        if notice.method == "notifications/subscriptions/acknowledged":
            return  # part of opening a subscription, and its alone
        told = self._on_notice(notice)
        if told is not None:
            self._notices.put(*told)

    def _progressed(self, params: ProgressNotificationParams) -> None:
        entry = self.end.pending.progress(params.progress_token, self.loop.time())
        callback = None if entry is None else self._progress_callbacks.get(entry.id)
        if entry is None or callback is None:
            return
        feed = self._progress.get(entry.id)
        if feed is None:
            feed = self._progress[entry.id] = OrderedCalls(MAX_WAITING_NOTICES, self._hold)
        feed.put(callback, params)

    def _hold(self, full: bool) -> None:
        self._full += 1 if full else -1
        if full and self._full == 1:
            self.transport.pause()
        elif not self._full:
            self.heard_at = self._now()  # the time it was not read is not its silence
            self.transport.resume()

    async def _answer(self, call: Call) -> None:
        """Answer a question of a legacy server."""
        message: bytes | None
        try:
            result = await self._callbacks.answer(call.method, call.params)
            message = self.end.result(call, result)
        except McpError as error:
            message = self.end.fail(call, error)
        except McpearlError as error:
            message = self.end.fail(call, McpError(INTERNAL_ERROR, str(error)))
        except Exception as error:
            logger.error("the answer to %s cannot be encoded", call.method, exc_info=error)
            failure = McpError(INTERNAL_ERROR, f"The client's answer has no JSON form: {error}")
            message = self.end.fail(call, failure)
        except asyncio.CancelledError:
            self.end.drop(call)
            raise
        if message is not None:
            self._tell(message)
            self.transport.flush()

    def writable(self, flowing: bool) -> None:
        """Requests are bounded by `Limits.max_pending`; there is nothing else to hold back."""

    def failed(self, request_id: int | str, error: Exception) -> None:
        """Fail the one request whose exchange broke; the others go on."""
        entry = self.end.pending.get(request_id)
        if entry is not None:
            self.end.pending.discard(entry.id)
            _reject(entry, error)

    def unsent(self, messages: list[bytes]) -> None:
        """Fail the requests that never left, before the connection is lost: they cannot have run."""
        for message in messages:
            try:
                id = codec.decode(message).id
            except Malformed:
                continue
            if isinstance(id, int):
                self.failed(id, ConnectionLost("not sent: the connection ended before"))

    def held(self, request_id: int | str | None, holding: bool) -> None:
        """Let no time pass for what waits for authorization: a request, or None for connecting."""
        if request_id is None:
            self._hold_opening(holding)
        elif holding:
            self.end.pending.hold(request_id)
        elif (entry := self.end.pending.release(request_id, self.loop.time())) is not None:
            self._timer.at_latest(entry.deadline)

    def _hold_opening(self, holding: bool) -> None:
        opening, now = self._opening, self.loop.time()
        if opening is None or opening.expired():
            return
        if holding:
            self._opening_left = (opening.when() or now) - now
        opening.reschedule(None if holding else now + self._opening_left)

    # Whether the server is there

    def watch(self, keepalive: Keepalive) -> None:
        """Notice when the server of a session falls silent, unless the wire does so by itself."""
        if not self.end.version.modern and not getattr(self.transport, "keeps_alive", False):
            self._watch = Watch(self.loop, self, keepalive)

    @property
    def attentive(self) -> bool:
        """Whether the connection is being read."""
        return not self._full

    def ping(self, patience: float) -> bool:
        """Ask whether the server is there, unless a request is waiting: that has its own timeout."""
        if self.end.pending:
            return False
        answered = self.loop.create_future()
        answered.set_result(None)  # nobody waits: being heard is enough
        now = self.loop.time()
        entry, message = self.end.request("ping", RequestParams(), answered, now, patience)
        self._timer.at_latest(entry.deadline)
        self._tell(message)
        return True

    def silent(self, patience: float) -> None:
        """Give the server up: it did not even answer a ping."""
        self.lost(ConnectionLost(f"the server did not answer a ping within {patience:g} s"))

    # Ending

    def ended(self) -> None:
        """Treat a server that says no more as gone: it cannot answer."""
        self.lost(ConnectionLost("the server closed its side of the connection"))

    def lost(self, reason: Exception | None) -> None:
        """Fail everything that waits, at once."""
        if self.lost_reason is not None:
            return
        if isinstance(reason, ConnectionLost):
            self.lost_reason = reason
        else:
            said = f": {reason}" if reason is not None else ""
            self.lost_reason = ConnectionLost(f"the connection is closed{said}")
        step = Step.LOSE if reason is not None else Step.CLOSED
        if self.end.lifecycle.can(step):
            self.end.lifecycle.take(step)
        self._timer.cancel()
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
        if self.end.lifecycle.can(Step.CLOSE):
            self.end.lifecycle.take(Step.CLOSE)
        try:
            await self.transport.close()
        finally:
            self.lost(None)
            self._notices.close()
            for feed in self._progress.values():
                feed.close()


def _copy(lost: ConnectionLost, *, maybe_executed: bool) -> ConnectionLost:
    """Make the error of one request of a lost connection."""
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


def _reject(entry: Entry, error: Exception) -> None:
    if not entry.waiter.done():
        entry.waiter.set_exception(error)
