"""Turns an upstream's raw result into one for a client of either era, and decodes only what it must."""

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded
from mcpearl.protocol.modern import COMPLETE, INPUT_REQUIRED
from mcpearl.types.base import SERVER_INFO_KEY, Implementation, decode, encode
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_CACHEABLE = frozenset({"resources/read"})
_HINTS = {"ttlMs": Raw(b"0"), "cacheScope": Raw(b'"private"')}


class _ResultKind(Struct):
    result_type: str | None = field(default=None, name="resultType")


_kind = msgspec.json.Decoder(_ResultKind)
_members = msgspec.json.Decoder(dict[str, Raw])


def members_of(raw: bytes | Raw) -> dict[str, Any]:
    """Return the members of an object, undecoded."""
    found: dict[str, Any] = _members.decode(raw)
    return found


def asked_of(raw: bytes) -> InputRequiredResult | None:
    """Return the questions in a modern upstream's result; None if the result is complete."""
    if raw.find(b"input_required") < 0:  # faster than `in`, which tries a number first
        return None
    try:
        if _kind.decode(raw).result_type != INPUT_REQUIRED:
            return None
        return decode(InputRequiredResult, raw)
    except UNREADABLE as error:
        raise McpError(
            INTERNAL_ERROR, f"the upstream's questions cannot be read: {error}"
        ) from None


def relayed(name: str, body: bytes, call: Call, info: Implementation, modern: bool) -> Encoded:
    """Return an upstream's result for the caller.

    Args:
        name: The upstream.
        body: Its result.
        call: The call.
        info: The name and version of the gateway.
        modern: Whether the upstream is of the modern era.
    """
    if body[:1] != b"{":
        raise McpError(INTERNAL_ERROR, f"`{name}` answered with something that is not a result")
    if modern:
        return Encoded(body, complete=True)
    if not call.caller.version.modern:
        return Encoded(body)
    if call.method not in _CACHEABLE and b'"_meta"' not in body and b'"resultType"' not in body:
        return Encoded(body)
    members: dict[str, Any] = _members.decode(body)
    said = bytes(members.get("_meta", b""))
    meta = _members.decode(said) if said[:1] == b"{" else {}
    whole = {
        **(_HINTS if call.method in _CACHEABLE else {}),
        **members,
        "resultType": COMPLETE,
        "_meta": {SERVER_INFO_KEY: info, **meta},
    }
    return Encoded(encode(whole), complete=True)
