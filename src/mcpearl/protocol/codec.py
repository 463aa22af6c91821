"""JSON-RPC 2.0: from bytes to envelopes and back.

The envelope is decoded once and leaves `params`, `result` and `error` raw; the code that routes the
message decodes them into their types. Encoding splices bodies that are already encoded.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import astuple

from mcpearl.protocol.errors import Malformed, McpError
from mcpearl.protocol.nesting import ARRAY, MAX_DEPTH, SHALLOW, SHALLOW_OBJECTS, is_too_deep
from mcpearl.types import base
from mcpearl.types.base import RequestId
from mcpearl.types.jsonrpc import INVALID_REQUEST, PARSE_ERROR, ErrorObject
from mcpearl.types.methods import REQUESTS

_TOO_DEEP = f"JSON is nested deeper than {MAX_DEPTH} levels"

# What decoding can raise. Strings that are not UTF-8 come out as they do everywhere in Python.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Envelope(Struct, gc=False):
    """Any message: a request has `method` and `id`, a notification `method`, an answer `id`."""

    jsonrpc: str
    id: int | str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Anything(Struct):
    """The readable members of an invalid message: enough to decide whether and how to answer."""

    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(Envelope).decode
_decode_id = msgspec.json.Decoder(int | str).decode
_skim = msgspec.json.Decoder(Raw).decode
_encode = msgspec.json.Encoder().encode
_METHODS = {method: _encode(method) for method in REQUESTS}
_LF, _CR = b"\n\r"  # as numbers, which are found in bytes faster than bytes are


def decode(message: bytes | Raw) -> Envelope:
    """Decode one message. Raises `Malformed` with the reason and the id to answer with."""
    try:
        envelope = _decode(message)
    except UNREADABLE as error:
        raise _diagnose(message, error) from None
    size = len(message)
    if (
        size > SHALLOW
        # The messages of a batch are `Raw`; the batch was checked as a whole.
        and type(message) is not Raw
        and (size > SHALLOW_OBJECTS or ARRAY in message)
        and is_too_deep(message)
    ):
        raise _refusal(message, PARSE_ERROR, _TOO_DEEP)
    if envelope.jsonrpc != "2.0":
        raise _invalid(message, f'`jsonrpc` must be "2.0", not {envelope.jsonrpc[:32]!r}')
    if envelope.method is UNSET:
        if envelope.id is UNSET and envelope.error is UNSET:
            raise _invalid(message, "a message needs `method`, or `id` with `result` or `error`")
        if (envelope.result is UNSET) is (envelope.error is UNSET):
            raise _invalid(message, "`method` is missing, and the message is not an answer either")
    return envelope


def is_batch(message: bytes) -> bool:
    """Return whether the message is a JSON array."""
    return message.lstrip()[:1] == b"["


def decode_batch(message: bytes, limit: int) -> list[Raw]:
    """Split a batch into its messages, undecoded. Raises `Malformed`."""
    try:
        slots = astuple(_batch_decoder(limit)(message))
    except UNREADABLE as error:
        raise _diagnose(message, error) from None
    messages = [slot for slot in slots if slot is not UNSET]
    if not messages:
        raise Malformed(INVALID_REQUEST, "a batch must not be empty")
    if len(messages) > limit:
        raise Malformed(INVALID_REQUEST, f"a batch may hold {limit} messages, not more")
    if is_too_deep(message):
        raise Malformed(PARSE_ERROR, _TOO_DEEP)
    return messages


@lru_cache(maxsize=8)
def _batch_decoder(limit: int) -> Callable[[bytes], Any]:
    # One slot more than the limit; further messages are skipped. A list of all messages could take
    # thirty times the size of the batch.
    slots = [(f"m{place}", Raw | UnsetType, UNSET) for place in range(limit + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("_Cut", slots, array_like=True)).decode


def check_json(message: bytes) -> None:
    """Raise `Malformed` unless the bytes are JSON, of any content."""
    try:
        _skim(message)
    except UNREADABLE as error:
        raise _diagnose(message, error) from None


def decode_error(raw: Raw | bytes) -> ErrorObject:
    """Decode the `error` member of an answer. A malformed one becomes a generic error."""
    try:
        return base.decode(ErrorObject, raw)
    except UNREADABLE:
        return ErrorObject(
            code=INVALID_REQUEST, message="the peer answered with a malformed error object"
        )


def encode_request(id: RequestId, method: str, params: bytes, members: bytes = b"") -> bytes:
    """Return the bytes of a request whose params are encoded already; `members` as for `splice`."""
    name = _METHODS.get(method) or _encode(method)
    if type(id) is not int:
        message = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
            _encode(id),
            name,
            splice(members, params),
        )
    elif not members:
        message = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, name, params)
    elif params == b"{}":
        message = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":{%b}}' % (id, name, members)
    else:
        message = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":{%b,%b}' % (
            id,
            name,
            members,
            params[1:],
        )
    if len(message) <= SHALLOW and _LF not in message and _CR not in message:
        return message
    return _checked(message)


def encode_notification(method: str, params: bytes = b"") -> bytes:
    """Return the bytes of a notification whose params are encoded already."""
    if not params or params == b"{}":
        return b'{"jsonrpc":"2.0","method":%b}' % _encode(method)
    return _checked(b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encode(method), params))


def encode_result(id: RequestId, result: bytes, members: bytes = b"") -> bytes:
    """Return the bytes of an answer whose result is encoded already; `members` as for `splice`."""
    if type(id) is not int:
        message = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encode(id), splice(members, result))
    elif not members:
        message = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result)
    elif result == b"{}":
        message = b'{"jsonrpc":"2.0","id":%d,"result":{%b}}' % (id, members)
    else:
        message = b'{"jsonrpc":"2.0","id":%d,"result":{%b,%b}' % (id, members, result[1:])
    if len(message) <= SHALLOW and _LF not in message and _CR not in message:
        return message
    return _checked(message)


# The first bytes of an answer to a request with a numeric id.
_ANSWER = (
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,'
    rb'\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"'
)


def answered_by(head: bytes) -> int | None:
    """Return the id of the request that a message answers by its first bytes; None if unknown."""
    found = re.match(_ANSWER, head)
    return None if found is None else int(found[1])


def encode_error(id: RequestId | None, error: McpError | Malformed | ErrorObject) -> bytes:
    """Return the bytes of an error answer. Without a readable id it carries `null`.

    This never fails: data that is not JSON or is nested too deeply is left out, and text that is
    not UTF-8 is repaired.
    """
    data = getattr(error, "data", UNSET)
    try:
        body = _checked(_encode(ErrorObject(code=error.code, message=error.message, data=data)))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        message = error.message.encode(errors="replace").decode()
        body = _encode(ErrorObject(code=error.code, message=message))
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (
        b"null" if id is None else _encode(id),
        body,
    )


def encode_text(text: str) -> bytes:
    """Return a string as JSON."""
    return _encode(text)


def splice(members: bytes, body: bytes) -> bytes:
    """Insert encoded members (`"a":1,"b":2`) at the front of an encoded object."""
    if not members:
        return body
    return b"{%b%b%b" % (
        members,
        b"}" if body == b"{}" else b",",
        b"" if body == b"{}" else body[1:],
    )


def _checked(message: bytes) -> bytes:
    """Raise `ValueError` for a message that peers would refuse, and keep every message on one line.

    Only JSON that was encoded elsewhere (`msgspec.Raw`) has line breaks; some framings end there.
    """
    if _LF in message or _CR in message:
        message = msgspec.json.format(message, indent=-1)
    if is_too_deep(message):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return message


def _diagnose(message: bytes | Raw, error: Exception) -> Malformed:
    """Return the error for bytes that are not JSON, or that are JSON but not a message."""
    if isinstance(error, msgspec.ValidationError):
        return _invalid(message, f"not a JSON-RPC message: {error}")
    if isinstance(error, RecursionError):
        return Malformed(PARSE_ERROR, _TOO_DEEP)
    if isinstance(error, UnicodeDecodeError):
        return Malformed(PARSE_ERROR, "a string is not UTF-8")
    return Malformed(PARSE_ERROR, str(error) or "not JSON")


def _invalid(message: bytes | Raw, reason: str) -> Malformed:
    return _refusal(message, INVALID_REQUEST, reason)


def _refusal(message: bytes | Raw, code: int, reason: str) -> Malformed:
    """Return the error for JSON that is not a message. A broken answer is never answered."""
    try:
        _skim(message)
        seen = base.decode(_Anything, message)
    except msgspec.ValidationError:
        return Malformed(code, reason)
    except UNREADABLE as error:
        return _diagnose(message, error)
    is_answer = seen.method is UNSET and (seen.result is not UNSET or seen.error is not UNSET)
    return Malformed(code, reason, _readable_id(seen.id), is_answer=is_answer)


def _readable_id(raw: Raw | UnsetType) -> RequestId | None:
    try:
        return None if raw is UNSET else _decode_id(raw)
    except UNREADABLE:
        return None
