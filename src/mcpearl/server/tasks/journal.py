"""What is stored of a task besides its status: the request, and the journal for running it again."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from mcpearl.auth.principal import Principal
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.routes import TO_SERVER
from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.protocol.versions import VERSIONS
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import RequestId
from mcpearl.types.jsonrpc import ErrorObject


class Journal(Struct, omit_defaults=True):
    """The questions of a task, their answers, and the values of `ctx.once`."""

    asked: dict[str, Raw] = field(default_factory=dict)
    """Open questions: each the method and params of a request to the client."""
    answers: dict[str, Raw] = field(default_factory=dict)
    """Results of questions, by key. A key is never used for another question."""
    refusals: dict[str, ErrorObject] = field(default_factory=dict)
    """Errors that the client answered questions with."""
    done: dict[str, Raw] = field(default_factory=dict)
    """Values of `ctx.once`."""

    def knows(self, key: str) -> bool:
        """Whether a question was answered."""
        return key in self.answers or key in self.refusals

    def pack(self) -> bytes:
        """Return the bytes to store."""
        if not (self.asked or self.answers or self.refusals or self.done):
            return b""
        return msgspec.json.encode(self)


_journal_decoder = msgspec.json.Decoder(Journal)


def unpack_journal(data: bytes) -> Journal:
    """Read a stored journal."""
    return _journal_decoder.decode(data) if data else Journal()


class StoredQuestion(Struct):
    """One open question as it is stored."""

    method: str
    params: Raw = Raw(b"{}")


read_question = msgspec.json.Decoder(StoredQuestion).decode


class _StoredRequest(Struct, omit_defaults=True):
    params: Raw
    caller: EndSnapshot
    identity: Identity | None
    scopes: tuple[str, ...] = ()
    token: RequestId | None = None


_request_decoder = msgspec.json.Decoder(_StoredRequest)


def owner_of(call: Call) -> Identity:
    """Return the identity that a call's tasks belong to."""
    principal: Principal | None = call.caller.principal
    return (None, "", None) if principal is None else principal.identity


def pack_request(call: Call) -> bytes:
    """Return the bytes from which a call can be run again. They do not contain the caller's token."""
    caller = call.caller
    principal: Principal | None = caller.principal
    return msgspec.json.encode(
        _StoredRequest(
            params=Raw(bytes(call.raw)),
            caller=EndSnapshot(
                caller.version.name, caller.client, caller.capabilities, caller.log_level
            ),
            identity=None if principal is None else principal.identity,
            scopes=() if principal is None else tuple(sorted(principal.scopes)),
            token=call.progress_token,
        )
    )


def unpack_request(data: bytes) -> Call:
    """Return the call of a stored request, without an outlet.

    Its principal has the identity and the scopes of the caller, and no claims.
    """
    request = _request_decoder.decode(data)
    principal = None
    if request.identity is not None:
        issuer, subject, client_id = request.identity
        principal = Principal(subject, client_id=client_id, issuer=issuer, scopes=request.scopes)
    seen = request.caller
    caller = Caller(
        VERSIONS[seen.version], seen.client, seen.capabilities, seen.log_level, principal
    )
    params = TO_SERVER["tools/call"].decode(request.params)
    return Call(0, "tools/call", params, request.params, caller, request.token)


def as_raw(answers: Mapping[str, Any]) -> dict[str, Raw]:
    """Return answers as they are stored."""
    return {key: Raw(msgspec.json.encode(answer)) for key, answer in answers.items()}


def as_running(record: TaskRecord) -> TaskRecord:
    """Return a record that says that the tool is running."""
    return replace(record, running=True)
