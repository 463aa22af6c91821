"""What both ends of a message stream share: requests out and their answers, requests in, batches.

An end is fed one message at a time and returns one event for it. It never raises for what a peer
sends. `server_end` and `client_end` add what only one side does.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import Malformed, McpError, brief
from mcpearl.protocol.events import (
    Answer,
    Batch,
    Call,
    Caller,
    Cancel,
    Event,
    Hold,
    Ignored,
    Many,
    Notice,
    Reply,
)
from mcpearl.protocol.lifecycle import EndRole, Lifecycle
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.pending import Pending, PendingRequest
from mcpearl.protocol.routes import Route
from mcpearl.types.base import PROGRESS_TOKEN_KEY, RequestId
from mcpearl.types.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
)


class End:
    """One end of one message stream."""

    def __init__(self, role: EndRole, limits: Limits, notices: Mapping[str, Route]) -> None:
        self.notices = notices
        self.limits = limits
        self.lifecycle = Lifecycle(role)
        self.pending = Pending(limits.max_pending)  # requests of ours
        self.in_flight: dict[Any, Call] = {}  # requests of the peer, by key
        self.caller: Caller | None = None  # the peer of a legacy session, once known
        self.malformed = 0  # messages that could not be read
        self.open_batch: Callable[[], Hold] = lambda: _unlimited  # counts what batches hold
        self.refuse_more(None)

    def refuse_more(self, reason: str | None) -> None:
        """Refuse every further request with this reason; None admits requests up to the limit again."""
        limit = self.limits.max_in_flight_hard
        self._most_in_flight = limit if reason is None else min(limit, len(self.in_flight))
        self._too_many = reason or f"Too many requests in flight: the limit is {limit}"

    # Receiving

    def receive(self, message: bytes | Envelope) -> Event:
        """Take one message, which may be decoded already, and return the event it causes."""
        # Comparing the type is cheap; `isinstance` is slow for a struct that does not match.
        if type(message) is Envelope:
            return self.receive_one(message)
        try:
            envelope = codec.decode(message)  # type: ignore[arg-type]
        except Malformed as error:
            assert isinstance(message, bytes)
            if codec.is_batch(message):
                return self._receive_batch(message)
            return self._refuse_malformed(error)
        return self.receive_one(envelope)

    def receive_one(self, envelope: Envelope, batch: Batch | None = None) -> Event:
        """Take one message that is decoded, and return the event it causes."""
        if envelope.method is UNSET:
            return self._answered(envelope)
        if envelope.id is UNSET:
            return self._notified(envelope)
        try:
            return self._requested(envelope, batch)
        except McpError as error:
            return Reply(codec.encode_error(envelope.id, error), True, envelope.method, envelope)
        except RecursionError:
            too_deep = McpError(INVALID_PARAMS, "Invalid params: nested too deeply")
            return Reply(codec.encode_error(envelope.id, too_deep), True, envelope.method, envelope)

    def _requested(self, envelope: Envelope, batch: Batch | None) -> Event:
        raise NotImplementedError

    def _refuse_malformed(self, error: Malformed) -> Event:
        self.malformed += 1
        if error.is_answer:
            return self._answered_badly(error)
        return Reply(codec.encode_error(error.id, error), refused=True)

    def _answered_badly(self, error: Malformed) -> Event:
        """Fail the request of ours whose answer cannot be read; ignore any other message."""
        unreadable = error.code == PARSE_ERROR and error.id is not None
        entry = self.pending.resolve(error.id) if unreadable else None
        reason = f"malformed answer: {error.message}"
        if entry is None:
            return Ignored(reason)
        return Answer(entry, error=ErrorObject(code=error.code, message=reason))

    def refuse(self, message: bytes, error: McpError) -> Event:
        """Answer a message with an error without processing it; only a request gets an answer."""
        try:
            envelope = codec.decode(message)
        except Malformed:
            return Reply(codec.encode_error(None, error), refused=True)  # a batch, or not a message
        if envelope.method is UNSET or envelope.id is UNSET:
            return Ignored(error.message)
        return Reply(codec.encode_error(envelope.id, error), True, envelope.method, envelope)

    def refuse_frame(self, reason: str) -> Event:
        """Answer bytes that the framer could not turn into a message."""
        return self._refuse_malformed(Malformed(INVALID_REQUEST, reason))

    def _receive_batch(self, message: bytes) -> Event:
        caller = self.caller
        if caller is None or not caller.version.batches:
            return self._refuse_batch(message)
        try:
            messages = codec.decode_batch(message, self.limits.max_batch)
        except Malformed as error:
            return self._refuse_malformed(error)
        batch = Batch(self.limits.max_outgoing, self.open_batch())
        batch.open = 1  # held open until every message was looked at
        events: list[Event] = []
        replied: list[Reply] = []
        for part in messages:
            try:
                event = self.receive_one(codec.decode(part), batch)
            except Malformed as error:
                event = self._refuse_malformed(error)
            if isinstance(event, Call):
                batch.open += 1
            elif isinstance(event, Reply):
                batch.add(event.message)
                replied.append(event)
                continue
            events.append(event)
        whole = batch.close(None)
        if whole is not None:
            events.append(Reply(whole))
        return Many(events, replied)

    def _refuse_batch(self, message: bytes) -> Event:
        agreed = "before initialize" if self.caller is None else f"in {self.caller.version.name}"
        try:
            codec.check_json(message)
        except Malformed as error:
            return self._refuse_malformed(error)
        return self._refuse_malformed(
            Malformed(INVALID_REQUEST, f"there are no JSON-RPC batches {agreed}")
        )

    def _answered(self, envelope: Envelope) -> Event:
        entry = self.pending.resolve(envelope.id)
        if entry is None:
            return Ignored(f"answer to {_shown(envelope.id)}, which is not waited for")
        if envelope.error is not UNSET:
            return Answer(entry, error=codec.decode_error(envelope.error))
        assert envelope.result is not UNSET
        return Answer(entry, result=envelope.result)

    def _notified(self, envelope: Envelope) -> Event:
        assert envelope.method is not UNSET
        method = envelope.method
        route = self.notices.get(method)
        if route is None:
            return Ignored(f"unknown notification {method[:128]!r}")
        refusal = self._refuse_notice(method)
        if refusal is not None:
            return Ignored(refusal)
        try:
            params = route.decode(b"{}" if envelope.params is UNSET else envelope.params)
        except McpError as error:
            return Ignored(error.message)
        if method == "notifications/cancelled":
            return self._cancelled(params)
        return Notice(method, params)

    def _refuse_notice(self, method: str) -> str | None:
        """Return why a notification may not be received now, or None if it may."""
        raise NotImplementedError

    def _cancelled(self, params: Any) -> Event:
        call = self.in_flight.get(params.request_id)
        if call is None:
            return Ignored(f"cancellation of {_shown(params.request_id)}, which is not in flight")
        return Cancel(call, params.reason, self.drop(call))

    # Answering

    def _admit(self, call: Call) -> Call:
        if call.key in self.in_flight:
            raise McpError(
                INVALID_REQUEST, f"The id {_shown(call.id)} belongs to a request still in flight"
            )
        if len(self.in_flight) >= self._most_in_flight:
            raise McpError(INTERNAL_ERROR, self._too_many)
        self.in_flight[call.key] = call
        return call

    def drop(self, call: Call) -> bytes | None:
        """Forget a call that will not be answered; bytes to send if that completes its batch."""
        if not self.is_open(call):
            return None
        del self.in_flight[call.key]
        return None if call.batch is None else call.batch.close(None)

    def is_open(self, call: Call) -> bool:
        """Whether the peer still waits for this call."""
        return self.in_flight.get(call.key) is call

    def _finish(self, call: Call, answer: bytes) -> bytes | None:
        """Close a call with its encoded answer: bytes to send, or None while its batch is open."""
        del self.in_flight[call.key]
        return answer if call.batch is None else call.batch.close(answer, call.id)

    def watch_answers(
        self,
        watching: Callable[
            [Callable[[Call, bytes], bytes | None]], Callable[[Call, bytes], bytes | None]
        ],
    ) -> None:
        """Have each answered call and its encoded answer seen, before the answer is sent.

        An end that is not watched does no work for this.

        Args:
            watching: Takes the function that finishes a call, and returns one that does so and sees more.
        """
        self._finish = watching(self._finish)  # type: ignore[assignment, method-assign]

    def fail(self, call: Call, error: McpError) -> bytes | None:
        """Answer a call with an error; None when there is nothing to send."""
        if not self.is_open(call):
            return None
        call.failed = True
        return self._finish(call, codec.encode_error(call.id, error))

    # Asking

    def abandon(self, entry: PendingRequest, reason: str) -> bytes:
        """Give up on a request of ours; return the bytes that tell the peer."""
        self.pending.discard(entry.id)
        body = b'{"requestId":%d,"reason":%b}' % (entry.id, codec.encode_text(reason))
        return codec.encode_notification("notifications/cancelled", body)


def _unlimited(size: int) -> bool:
    return True


def _shown(id: object) -> str:
    return brief(repr(id[:64] if isinstance(id, str) else id), 80)


def progress_token(meta: dict[str, Any] | None) -> RequestId | None:
    """Return the token that progress notifications must carry, or None if the peer wants none."""
    token = None if meta is None else meta.get(PROGRESS_TOKEN_KEY)
    return token if isinstance(token, (int, str)) and not isinstance(token, bool) else None
