"""Error answers to requests that HTTP refused: the server's own, or made up from the status."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcpearl.protocol.codec import UNREADABLE, Envelope, encode_error
from mcpearl.protocol.errors import Malformed, McpError, brief
from mcpearl.transports.http_client.endpoint import REDIRECTS
from mcpearl.types.base import RequestId
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

_SHOWN = 200  # characters of an unreadable body that an error quotes


class _Refusal(Struct):
    """The members of an error answer that matter. Its id may be null, or not the request's."""

    error: Raw
    method: Raw | UnsetType = UNSET


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def error_in(body: bytes, id: RequestId) -> Envelope | None:
    """Return the error answer in a body, under the id of the request; None when there is none."""
    try:
        refusal = _decode_refusal(body)
    except UNREADABLE:
        return None
    return Envelope("2.0", id, error=refusal.error) if refusal.method is UNSET else None


def is_unreadable_answer(error: Malformed, id: RequestId) -> bool:
    """Whether a message is the answer to the request `id`, but nested too deeply to be read."""
    return error.code == PARSE_ERROR and error.is_answer and error.id == id


def http_failure(id: RequestId, status: int, reason: str, headers: Mapping[str, str]) -> bytes:
    """Make the answer to a request that the server refused in HTTP only."""
    code = INVALID_REQUEST if 400 <= status < 500 else INTERNAL_ERROR
    data: dict[str, Any] = {"status": status}
    if "www-authenticate" in headers:
        data["wwwAuthenticate"] = headers["www-authenticate"]
    if "retry-after" in headers:
        data["retryAfter"] = headers["retry-after"]
    return encode_error(id, McpError(code, reason, data))


def problem_of(status: int, headers: Mapping[str, str]) -> str:
    """Describe a status that comes without an answer."""
    if status in REDIRECTS:
        return f"HTTP status {status} points to {headers.get('location', '')!r:.200}"
    if 200 <= status < 300:
        kind = headers.get("content-type", "")
        return f"HTTP status {status} with content type {kind!r:.100} is not an answer"
    wanted = "; the server wants authorization, see `auth=`" if status == 401 else ""
    return f"HTTP status {status}{wanted}"


def shown(body: bytes) -> str:
    """Return the beginning of a body, to end a sentence about it with."""
    text = brief(body[: 4 * _SHOWN].decode("utf-8", "replace").strip(), _SHOWN)
    return f": {text}" if text else ""


def reason_of(error: Exception) -> str:
    """Return why a message was not delivered: the error's text, or that time ran out."""
    return str(error) or "no answer in time"
