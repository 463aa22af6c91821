"""The messages about a call between a server and its isolated processes, which frames carry.

A server decodes each message as exactly one type: a process may have been taken over by the code that
it runs.
"""

import struct
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcpearl.protocol.errors import (
    InvalidResult,
    LimitReached,
    McpearlError,
    McpError,
    ResourceNotFound,
    ToolError,
)
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.types.base import RequestId

_HEAD = struct.Struct("<HBI")
_BARE = 0x80  # in the version: there are no arguments


class VisibleContext(Struct, array_like=True):
    """What a handler may look at, of tools that have a `Context`."""

    id: RequestId
    caller: bytes
    """A `CallerRecord`; the same bytes for the same caller."""
    meta: bytes | None
    token: RequestId | None
    session_id: str | None
    address: str | None
    headers: dict[bytes, bytes]
    rounds: bool
    """Whether results of `Context.once` are kept: for a modern client, or a task."""
    task: str | None
    promotable: bool
    """Whether it may become a task while it runs."""
    state: dict[str, bytes]
    unsent: list[str]
    """Keys of `Context.state` whose values have no form that could be sent."""


class CallerRecord(Struct, array_like=True):
    """A caller."""

    client: bytes | None
    capabilities: bytes
    log_level: str | None
    principal: "PrincipalRecord | None"


class PrincipalRecord(Struct, array_like=True):
    """A principal. It has no subject on a wire that does not authenticate callers."""

    subject: str
    client_id: str | None
    issuer: str | None
    scopes: list[str]
    claims: bytes
    expires: float | None


class ContextRequest(Struct, array_like=True):
    """What a call asks its server for, or tells it."""

    number: int
    what: str
    arguments: list[Any]


class ContextReply(Struct, array_like=True):
    """The answer: a value, or what was raised."""

    number: int
    value: Any = None
    raised: "Raised | None" = None
    cancelled: bool = False


class Raised(Struct, array_like=True):
    """An exception, by the name of its kind."""

    kind: str
    text: str
    code: int = 0
    data: bytes | None = None


class CallFailure(Struct, array_like=True):
    """How a call failed: as the text of a tool's error, or with an error of the protocol."""

    text: str | None = None
    code: int = 0
    message: str = ""
    data: bytes | None = None
    state: dict[str, bytes] = {}


pack = msgspec.msgpack.Encoder().encode
decode_context = msgspec.msgpack.Decoder(VisibleContext).decode
decode_caller = msgspec.msgpack.Decoder(CallerRecord).decode
decode_ask = msgspec.msgpack.Decoder(ContextRequest).decode
decode_reply = msgspec.msgpack.Decoder(ContextReply).decode
decode_failure = msgspec.msgpack.Decoder(CallFailure).decode
decode_state = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def pack_call(tool: int, version: int, context: bytes, arguments: Raw | UnsetType) -> bytes:
    """Return the payload of a call."""
    if arguments is UNSET:
        return _HEAD.pack(tool, version | _BARE, len(context)) + context
    return b"".join((_HEAD.pack(tool, version, len(context)), context, cast(bytes, arguments)))


def unpack_call(payload: bytes) -> tuple[int, int, bytes, Raw | UnsetType]:
    """Return the tool, the version, the context and the arguments of a call."""
    tool, version, length = _HEAD.unpack_from(payload)
    end = _HEAD.size + length
    context = payload[_HEAD.size : end]
    if version & _BARE:
        return tool, version & ~_BARE, context, UNSET
    return tool, version, context, Raw(payload[end:])


_RESULT = struct.Struct("<BI")
_COMPLETE, _IS_ERROR = 1, 2


def pack_result(body: bytes, complete: bool, is_error: bool, state: bytes) -> bytes:
    """Return the payload of a result."""
    flags = _COMPLETE * complete | _IS_ERROR * is_error
    return b"".join((_RESULT.pack(flags, len(state)), state, body))


def unpack_result(payload: bytes) -> tuple[bytes, bool, bool, bytes]:
    """Return the body of a result, whether it is complete, whether an error, and the state."""
    flags, length = _RESULT.unpack_from(payload)
    end = _RESULT.size + length
    return (
        payload[end:],
        bool(flags & _COMPLETE),
        bool(flags & _IS_ERROR),
        payload[_RESULT.size : end],
    )


# Exceptions

_RAISABLE: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(LimitReached, InvalidResult, StoreUnavailable, ToolError, McpearlError),
        *(
            LookupError,
            KeyError,
            ValueError,
            TypeError,
            TimeoutError,
            ConnectionError,
            RuntimeError,
        ),
    )
}


def raised(error: BaseException) -> Raised:
    """Describe an exception."""
    if isinstance(error, McpError):
        kind = "ResourceNotFound" if isinstance(error, ResourceNotFound) else "McpError"
        return Raised(kind, error.message, error.code, json_or_none(error.data))
    kinds = [each.__name__ for each in type(error).__mro__ if each.__name__ in _RAISABLE]
    return Raised(kinds[0] if kinds else "RuntimeError", str(error))


def exception(given: Raised) -> Exception:
    """Return the exception that was described."""
    if given.code:
        data = UNSET if given.data is None else msgspec.json.decode(given.data)
        if given.kind == "ResourceNotFound" and isinstance(data, dict) and "uri" in data:
            return ResourceNotFound(data["uri"])
        return McpError(given.code, given.text, data)
    kind = _RAISABLE[given.kind]
    error = kind.__new__(kind)
    error.args = (given.text,)
    return error


def json_or_none(value: Any) -> bytes | None:
    """Return the JSON of a value; None if it has none, or there is no value."""
    if value is UNSET:
        return None
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
