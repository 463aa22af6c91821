"""The client's end of one message stream: opens it in either era, sends requests, reads answers.

Requests of a legacy server come out as `Call`s, beside answers, notices and the ends of
subscriptions. A modern server sends no requests: its questions are part of results.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from mcpearl.protocol import codec, legacy
from mcpearl.protocol.capabilities import CLIENT_NEEDS, check_mode, has
from mcpearl.protocol.codec import UNREADABLE, Envelope
from mcpearl.protocol.end import End, progress_token
from mcpearl.protocol.errors import InvalidResult, Malformed, McpError
from mcpearl.protocol.events import Answer, Batch, Call, Caller, Event, Ignored, Reply
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import COMPLETE, INPUT_REQUIRED, LISTEN, Presentation
from mcpearl.protocol.pending import PendingRequest
from mcpearl.protocol.routes import NOTICES_TO_CLIENT, TO_CLIENT, Route, unknown_method
from mcpearl.protocol.versions import NEWEST, NEWEST_LEGACY, Version
from mcpearl.types.base import Implementation, Result, decode, encode
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.initialize import InitializeResult
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND

Claims = Mapping[tuple[str, str], type[Result]]
"""The types of results that extensions claim, by method and `resultType`."""
NO_CLAIMS: Claims = {}


class ClientEnd(End):
    """One server, as the client sees it."""

    def __init__(
        self,
        info: Implementation,
        capabilities: ClientCapabilities,
        limits: Limits,
        notices: Mapping[str, Route] = NOTICES_TO_CLIENT,
        claims: Claims = NO_CLAIMS,
        requests: Mapping[str, Route] = TO_CLIENT,
    ) -> None:
        super().__init__("client", limits, notices)
        self._requests = requests  # that the server may send
        self._claims = claims  # results that extensions may send in place of a method's own
        self.info = info
        self.capabilities = capabilities
        self.version: Version = NEWEST_LEGACY
        self.agreed: str | None = None
        """The version messages are sent in; None until a legacy session has agreed on one."""
        self.presentation: Presentation | None = None
        """Sent with every request in the modern era; None in a legacy session."""
        self.lifecycle.take("connect")

    # Opening

    def speak_modern(self, version: Version = NEWEST, log_level: str | None = None) -> None:
        """Present this client on every request from now on."""
        self.version = version
        self.agreed = version.name
        self.presentation = Presentation(version, self.info, self.capabilities, log_level)

    def speak_legacy(self) -> None:
        """Go back to a session: the server turned out to be of the legacy era."""
        self.presentation = self.agreed = None
        self.version = NEWEST_LEGACY

    def set_log_level(self, level: str) -> None:
        """Ask a modern server for this log level with every request from now on."""
        if self.presentation is not None:
            self.speak_modern(self.version, level)

    def restart(self) -> None:
        """Go back to before the handshake, to try it another way on the same connection."""
        self.lifecycle.take("lose")
        self.lifecycle.take("connect")

    def initialize(
        self, waiter: Any, now: float, timeout: float, version: Version = NEWEST_LEGACY
    ) -> tuple[PendingRequest, bytes]:
        """Begin a legacy session; return the pending entry and the bytes to send."""
        self.lifecycle.take("initialize")
        self.agreed = None
        params = legacy.propose(version, self.info, self.capabilities)
        entry = self.pending.add("initialize", waiter, now, timeout)
        return entry, codec.encode_request(entry.id, "initialize", encode(params))

    def initialized(self, result: InitializeResult) -> bytes:
        """Take the server's answer to `initialize`; return the notification to send.

        Raises:
            InvalidResult: The server chose a version this client does not speak.
        """
        version = legacy.agreed(result)
        if version is None:
            raise InvalidResult(
                f"the server answered `initialize` with protocol version "
                f"{result.protocol_version!r}, which this client does not speak"
            )
        self.lifecycle.take("initialized")
        self.version = version
        self.agreed = version.name
        self.caller = Caller(version, None, self.capabilities)
        return codec.encode_notification("notifications/initialized")

    def connected(self) -> None:
        """Note that a modern server answered: there is nothing left to negotiate."""
        self.lifecycle.take("initialize")
        self.lifecycle.take("initialized")

    # Receiving

    def _refuse_malformed(self, error: Malformed) -> Event:
        # A client does not answer what it cannot read: two such peers would never stop.
        self.malformed += 1
        if error.is_answer:
            return self._answered_badly(error)
        return Ignored(f"the server sent an invalid message: {error.message}")

    def _refuse_notice(self, method: str) -> str | None:
        return self.lifecycle.refuse(method) if self.presentation is None else None

    def _cancelled(self, params: Any) -> Event:
        # A modern server only ever cancels a subscription, which then ends as if answered.
        id = params.request_id
        entry = self.pending.get(id)
        if self.presentation is None or entry is None or entry.method != LISTEN:
            return super()._cancelled(params)
        self.pending.discard(entry.id)
        return Answer(entry, result=Raw(b"{}"))

    def _requested(self, envelope: Envelope, batch: Batch | None) -> Event:
        method, id = envelope.method, envelope.id
        assert method is not UNSET
        assert id is not UNSET
        if self.presentation is not None and (self.ready or method != "ping"):
            # Until the handshake is over this may still be a legacy server, which may ping.
            return Ignored(f"a modern server sent the request `{method[:128]}`")
        route = self._requests.get(method)
        if route is None:
            raise unknown_method(method)
        refusal = self.lifecycle.refuse(method)
        if refusal is not None:
            raise McpError(INVALID_REQUEST, refusal, {"method": method})
        if method == "ping":
            return Reply(codec.encode_result(id, b"{}"))
        route.check_version(self.version)
        needs = CLIENT_NEEDS.get(method)
        if needs is not None and not has(self.capabilities, needs):
            raise McpError(
                METHOD_NOT_FOUND,
                f"Method not found: `{method}` needs the capability `{needs}`, "
                "which this client did not declare",
                {"method": method, "capability": needs},
            )
        raw = b"{}" if envelope.params is UNSET else envelope.params
        params = route.decode(raw)
        if method == "elicitation/create":
            check_mode(self.capabilities, params.mode)
        assert self.caller is not None
        token = progress_token(params.meta)
        return self._admit(Call(id, method, params, raw, self.caller, token, batch, id))

    # Answering

    def result(self, call: Call, result: Result) -> bytes | None:
        """Encode the answer to a request of the server; None when it was cancelled."""
        if not self.is_open(call):
            return None
        return self._finish(
            call, codec.encode_result(call.id, encode(narrow(result, self.version.name)))
        )

    # Asking

    def request(
        self,
        method: str,
        params: Struct,
        waiter: Any,
        now: float,
        timeout: float,
        max_timeout: float | None = None,
        *,
        progress: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> tuple[PendingRequest, bytes]:
        """Encode a request in the agreed version; return the pending entry and the bytes to send."""
        own = getattr(params, "meta", None)
        if own is not None:
            meta = {**own, **(meta or {})}
            params = replace(params, meta=None)
        body = encode(narrow(params, self.version.name))
        entry = self.pending.add(method, waiter, now, timeout, max_timeout)
        try:
            members = self._meta(entry.id if progress else None, meta)
            return entry, codec.encode_request(entry.id, method, body, members)
        except BaseException:
            self.pending.discard(entry.id)
            raise

    def relay(
        self,
        method: str,
        body: bytes,
        waiter: Any,
        now: float,
        timeout: float,
        max_timeout: float,
        presentation: Presentation | None,
        meta: dict[str, Any] | None,
        with_progress: bool,
    ) -> tuple[PendingRequest, bytes]:
        """Encode a request on behalf of another client, whose params are encoded and have no `_meta`.

        `presentation` describes that client to a modern server, in place of this one.
        """
        entry = self.pending.add(method, waiter, now, timeout, max_timeout)
        token = entry.id if with_progress else None
        try:
            if presentation is not None and self.presentation is not None:
                members = presentation.member(token, meta)
            else:
                members = self._meta(token, meta)
            return entry, codec.encode_request(entry.id, method, body, members)
        except BaseException:
            self.pending.discard(entry.id)
            raise

    def listen(self, params: Struct, waiter: Any) -> tuple[PendingRequest, bytes]:
        """Open a subscription: a request that is answered only when the subscription ends."""
        return self.request(LISTEN, params, waiter, 0.0, inf)

    def _meta(self, token: int | None, more: dict[str, Any] | None) -> bytes:
        if self.presentation is not None:
            return self.presentation.member(token, more)
        if token is None and not more:
            return b""
        legacy_meta = dict(more or {})
        if token is not None:
            legacy_meta["progressToken"] = token
        return b'"_meta":' + encode(legacy_meta)

    def notify(self, method: str, params: Struct | None = None) -> bytes:
        """Encode a notification."""
        body = b"" if params is None else encode(narrow(params, self.version.name))
        return codec.encode_notification(method, body)

    def decode_result(self, method: str, kind: type[Result], raw: Raw) -> Result:
        """Decode a result as `kind`, or as what a modern server may send in its place.

        That is an `InputRequiredResult` with questions, or a type that an extension claims.
        """
        try:
            result = decode(kind, raw)
        except msgspec.ValidationError as error:
            return self._other_result(method, raw, error)
        except UNREADABLE as error:
            raise InvalidResult(f"the result of `{method}` is not JSON: {error}") from None
        result_type = result.result_type
        if result_type is None or result_type == COMPLETE or self.presentation is None:
            return result
        return self._other_result(method, raw, None)

    def _other_result(self, method: str, raw: Raw, error: Exception | None) -> Result:
        """Decode a result of another type than the method's own."""
        try:
            result_type = decode(Result, raw).result_type
            if self.presentation is None or result_type in (None, COMPLETE):
                raise InvalidResult(f"the result of `{method}` is not valid: {error}") from None
            if result_type != INPUT_REQUIRED:
                kind = self._claims.get((method, result_type))
                if kind is None:
                    raise _unknown_result_type(method, result_type)
                return decode(kind, raw)
            result = decode(InputRequiredResult, raw)
        except UNREADABLE as unreadable:
            raise InvalidResult(
                f"the result of `{method}` is not valid: {error or unreadable}"
            ) from None
        if result.input_requests is None and result.request_state is None:
            raise InvalidResult(
                f"`{method}` was answered `input_required` with neither `inputRequests` "
                "nor `requestState`"
            )
        return result

    @property
    def ready(self) -> bool:
        """Whether requests may be sent."""
        return self.lifecycle.phase is Phase.READY


def _unknown_result_type(method: str, result_type: str) -> InvalidResult:
    return InvalidResult(f"`{method}` was answered with the unknown resultType {result_type!r}")
