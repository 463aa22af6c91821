"""The server's end of one message stream: admits requests of both eras, answers what is protocol.

`initialize`, `ping`, `server/discover` and `logging/setLevel` are answered here, since they are
about the conversation itself; every other request comes out as a `Call` once version, phase and
capability allow it.
"""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from mcpearl.protocol import codec, legacy, modern
from mcpearl.protocol.capabilities import absent
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.end import End, progress_token
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import (
    Batch,
    Call,
    Caller,
    Encoded,
    EncodedToolResult,
    Event,
    Ignored,
    Notice,
    Opened,
    Ready,
    Reply,
)
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.pending import PendingRequest
from mcpearl.protocol.routes import NOTICES_TO_SERVER, unknown_method
from mcpearl.protocol.versions import VERSIONS, Version
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    RequestId,
    Result,
    encode,
)
from mcpearl.types.jsonrpc import INVALID_REQUEST

if TYPE_CHECKING:
    from mcpearl.protocol.snapshot import EndSnapshot

_READY = Phase.READY  # looked up once: reading a member of an enumeration runs a Python function
_MODERN_ONLY = frozenset({"server/discover", modern.LISTEN})
_ANSWERED_HERE = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})


class ServerEnd(End):
    """One client, as the server sees it. `principal` is the client, as the transport authenticated it.

    `renewable` says whether a second `initialize` begins a new session on the same stream, or is
    refused, as it is where sessions have ids.
    """

    def __init__(
        self,
        offer: Offer,
        stamp: modern.Stamp,
        limits: Limits,
        principal: Any = None,
        *,
        renewable: bool = True,
    ) -> None:
        super().__init__("server", limits, offer.notices)
        self.offer = offer
        self.stamp = stamp
        self.principal = principal
        self.renewable = renewable
        self.reception = modern.CallerReader(offer.versions, principal)
        self._ids_repeat = False  # the requests are of several clients
        self.lifecycle.take("connect")

    def snapshot(self) -> "EndSnapshot":
        """Return what the session agreed on. `initialize` must have been answered."""
        from mcpearl.protocol.snapshot import EndSnapshot  # sessions of one process need none

        caller = self.caller
        assert caller is not None
        ready = self.lifecycle.phase is not Phase.INITIALIZING
        return EndSnapshot(
            caller.version.name, caller.client, caller.capabilities, caller.log_level, ready
        )

    def restore(self, snapshot: "EndSnapshot") -> None:
        """Continue a session that began at another end. This end must be a new one."""
        self.lifecycle.take("initialize")
        self.caller = Caller(
            VERSIONS[snapshot.version],
            snapshot.client,
            snapshot.capabilities,
            snapshot.log_level,
            self.principal,
        )
        if snapshot.ready:
            self.lifecycle.take("initialized")

    def adopt(self, snapshot: "EndSnapshot") -> bool:
        """Take over what changed in the session at another end; return whether that made it ready."""
        assert self.caller is not None
        self.caller.log_level = snapshot.log_level
        if not snapshot.ready or self.lifecycle.phase is _READY:
            return False
        self.lifecycle.take("initialized")
        return True

    def recognize(self, principal: Any) -> None:
        """Serve this principal from now on; calls in flight keep the principal that made them."""
        self.principal = principal
        self.reception = modern.CallerReader(self.offer.versions, principal)
        if self.caller is not None:
            self.caller = self.caller.brought_by(principal)

    # Receiving

    def _requested(self, envelope: Envelope, batch: Batch | None) -> Event:
        method: str = envelope.method  # type: ignore[assignment]
        id: RequestId = envelope.id  # type: ignore[assignment]
        offer = self.offer
        if offer.gate is not None:
            offer.gate(method)
        route = offer.routes.get(method)
        if route is None:
            route = None if offer.beyond is None else offer.beyond(method)
            if route is None:
                raise unknown_method(method)
        raw = b"{}" if envelope.params is UNSET else envelope.params
        read = route.read  # calling a local name is faster than calling a slot
        try:
            params = read(raw)
        except codec.UNREADABLE as error:
            from mcpearl.protocol.foreign import refuse_foreign  # most params can be read

            refuse_foreign(route, raw)
            raise route.refusal(error) from None
        meta = params.meta
        caller = self._who(method, meta)
        if caller is None:
            return self._open(envelope, params, batch)
        version, needs = caller.version, route.needs
        if batch is not None and not version.batches:
            raise McpError(INVALID_REQUEST, f"there are no JSON-RPC batches in {version.name}")
        if not route.since <= version.index <= route.until:
            route.check_version(version)
        if needs is not None and needs not in offer.paths:
            raise absent(method, needs)
        if method in _ANSWERED_HERE:
            return self._answer(envelope, params, caller)
        token = progress_token(meta) if meta is not None and PROGRESS_TOKEN_KEY in meta else None
        # Where ids may repeat, the key is one that no peer can send: no client reaches a call of another.
        key = object() if self._ids_repeat else id
        return self._admit(Call(id, method, params, raw, caller, token, batch, key))

    def _who(self, method: str, meta: dict[str, Any] | None) -> Caller | None:
        """Return the caller, or None for a request that may precede the session."""
        if meta is not None and (
            PROTOCOL_VERSION_KEY in meta
            or CLIENT_CAPABILITIES_KEY in meta
            or CLIENT_INFO_KEY in meta
        ):
            return self.reception.caller(meta)
        if method in _MODERN_ONLY:
            raise modern.missing_meta(method)
        if self.lifecycle.phase is _READY and method != "initialize":
            return self.caller
        if not self.offer.legacy_versions and method not in ("initialize", "ping"):
            raise modern.missing_meta(method)  # no session has said it before
        if method == "initialize" and self.renewable and self.lifecycle.can("renew"):
            return None
        refusal = self.lifecycle.refuse(method)
        if refusal is not None:
            raise McpError(INVALID_REQUEST, refusal, {"method": method})
        return self.caller if self.lifecycle.phase is Phase.INITIALIZING else None

    def _open(self, envelope: Envelope, params: Any, batch: Batch | None) -> Event:
        """Answer what may come before a session is ready: `ping`, and `initialize` itself."""
        id = envelope.id
        assert id is not UNSET
        if envelope.method == "ping":
            return Reply(codec.encode_result(id, b"{}"), False, "ping", envelope)
        if batch is not None:
            raise McpError(INVALID_REQUEST, "`initialize` cannot be part of a batch")
        if not self.offer.legacy_versions:
            speaks = ", ".join(self.offer.versions)
            raise McpError(INVALID_REQUEST, f"There is no `initialize` here; it speaks {speaks}")
        self.caller, result = legacy.accept(params, self.offer, self.principal)
        self.lifecycle.take("renew" if self.lifecycle.can("renew") else "initialize")
        return Opened(codec.encode_result(id, encode(result)), envelope)

    def _answer(self, envelope: Envelope, params: Any, caller: Caller) -> Reply:
        id, method, members, body = envelope.id, envelope.method, b"", b"{}"
        assert id is not UNSET
        assert method is not UNSET
        if method == "server/discover":
            discovered = modern.discover(self.offer, caller.version)
            members, body = self.stamp.encode(discovered, caller.version)
        elif method == "logging/setLevel":
            caller.log_level = params.level
        return Reply(codec.encode_result(id, body, members), False, method, envelope)

    def _refuse_notice(self, method: str) -> str | None:
        # A modern client may cancel, and notify an extension, whatever the session beside it is in.
        if method == "notifications/cancelled" or method not in NOTICES_TO_SERVER:
            return None
        return self.lifecycle.refuse(method)

    def _notified(self, envelope: Envelope) -> Event:
        event = super()._notified(envelope)
        if isinstance(event, Notice) and event.method == "notifications/initialized":
            if self.lifecycle.phase is not Phase.INITIALIZING:
                return Ignored(f"`{event.method}` while {self.lifecycle.phase.value}")
            self.lifecycle.take("initialized")
            return Ready()
        return event

    # Answering

    def result(self, call: Call, result: Result | Encoded) -> bytes | None:
        """Encode the answer to a call in its caller's version; None if there is nothing to send."""
        if self.in_flight.get(call.key) is not call:
            return None
        version, members = call.caller.version, b""
        if type(result) is EncodedToolResult or type(result) is Encoded:
            body = result.body
            if version.modern and not result.complete:
                members = self.stamp.complete
        elif version.modern:
            members, body = self.stamp.encode(result, version)  # type: ignore[arg-type]
        else:
            body = encode(narrow(result, version.name))
        return self._finish(call, codec.encode_result(call.id, body, members))

    # Asking

    def ask(
        self, method: str, params: Struct, waiter: Any, now: float, timeout: float
    ) -> tuple[PendingRequest, bytes]:
        """Encode a request to a legacy client; return the pending entry and the bytes to send."""
        assert self.caller is not None
        body = encode(narrow(params, self.caller.version.name))
        entry = self.pending.add(method, waiter, now, timeout)
        try:
            return entry, codec.encode_request(entry.id, method, body)
        except BaseException:
            self.pending.discard(entry.id)
            raise


def encoded_result(
    stamp: modern.Stamp, result: Result | Encoded, version: Version
) -> tuple[bytes, bytes]:
    """Return what `ServerEnd.result` encodes, without closing a call: members to splice, and a body."""
    if isinstance(result, Encoded):
        return stamp.complete if version.modern and not result.complete else b"", result.body
    if version.modern:
        return stamp.encode(result, version)
    return b"", encode(narrow(result, version.name))


class SoloEnd(ServerEnd):
    """Requests of many clients without sessions: each is self-contained, and ids may repeat."""

    def __init__(self, offer: Offer, stamp: modern.Stamp, limits: Limits) -> None:
        super().__init__(offer, stamp, limits)
        self._ids_repeat = True

    def receive_from(self, principal: Any, message: bytes | Envelope) -> Event:
        """Take one message of this principal."""
        self.reception.principal = principal
        if type(message) is Envelope:
            return self.receive_one(message)
        return self.receive(message)

    def _who(self, method: str, meta: dict[str, Any] | None) -> Caller | None:
        if meta is None or PROTOCOL_VERSION_KEY not in meta:
            raise modern.missing_meta(method)  # there is no session at all
        return self.reception.caller(meta)

    def _admit(self, call: Call) -> Call:
        self.in_flight[call.key] = call
        return call
