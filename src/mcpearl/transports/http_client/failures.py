"""Error answers to requests that were refused in HTTP: the server's own, or made from the status."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcpearl.protocol.codec import UNREADABLE, Envelope, encode_error
from mcpearl.protocol.errors import AuthorizationFailed, Malformed, McpError, brief
from mcpearl.types.base import RequestId
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

REDIRECTS = (301, 302, 303, 307, 308)
_LONGEST_CHALLENGE = 2000  # characters that are looked through
_SHOWN = 200  # characters of an unreadable body that an error quotes
PASS_AUTH = 'pass `auth=`: a token, or "oauth" to log in with the browser'
"""What a program that uses the client can do about a refusal."""


class _NumericCode(Struct):
    """What every `error` of JSON-RPC has; in OAuth, `error` is a word."""

    code: Any


class _ErrorAnswer(Struct):
    """The members of an error answer that matter. Its id is ignored: it may be null or wrong."""

    error: Raw
    method: Raw | UnsetType = UNSET


class _Said(Struct):
    """How a server says why a request is not authorized: as OAuth does, or as JSON-RPC does."""

    error: Any = None
    error_description: Any = None
    message: Any = None


_decode_refusal = msgspec.json.Decoder(_ErrorAnswer).decode
_decode_code = msgspec.json.Decoder(_NumericCode).decode
_decode_said = msgspec.json.Decoder(_Said).decode


def error_in(body: bytes, id: RequestId) -> Envelope | None:
    """Return the error answer in a body, under the id of the request; None when there is none."""
    try:
        refusal = _decode_refusal(body)
        _decode_code(refusal.error)
    except UNREADABLE:
        return None
    return Envelope("2.0", id, error=refusal.error) if refusal.method is UNSET else None


def is_unreadable_answer(error: Malformed, id: RequestId) -> bool:
    """Whether a message is the answer to the request `id`, but nested too deeply to be read."""
    return error.code == PARSE_ERROR and error.is_answer and error.id == id


def http_failure(id: RequestId, status: int, reason: str, headers: Mapping[str, str]) -> bytes:
    """Make the answer to a request that the server refused by its HTTP status only."""
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
    return f"HTTP status {status}"


def is_unauthorized(status: int, headers: Mapping[str, str], error: Envelope | None) -> bool:
    """Whether a request was refused because of its sender, rather than its content."""
    return status == 401 or (status == 403 and (error is None or "www-authenticate" in headers))


def unauthorized(
    status: int, body: bytes, challenge: str, *, has_auth: bool, has_header: bool
) -> AuthorizationFailed:
    """Make the error for a server that does not let this client in.

    Args:
        status: The HTTP status, 401 or 403.
        body: The server's answer.
        challenge: The `WWW-Authenticate` header of the answer.
        has_auth: Whether the client was given `auth`.
        has_header: Whether the client was given an `Authorization` header.
    """
    if has_auth:
        hint = "what `auth=` supplied is not accepted"
    elif has_header:
        hint = "the `Authorization` header of `headers=` is not accepted"
    else:
        hint = PASS_AUTH
    reason = _reason(body) or _described(challenge)
    return AuthorizationFailed(f"the server answered {status}{reason}; {hint}")


def _described(challenge: str) -> str:
    """Return the server's words from a challenge."""
    _, found, rest = challenge[:_LONGEST_CHALLENGE].partition('error_description="')
    words = rest.partition('"')[0] if found else ""
    return f" ({brief(words, _SHOWN)})" if words else ""


def _reason(body: bytes) -> str:
    """Return the server's words from a refusal."""
    try:
        said = _decode_said(body)
    except UNREADABLE:
        return shown(body)
    error = said.error
    if isinstance(error, dict):  # an error of JSON-RPC
        error = error.get("message")
    words = [word for word in (error, said.error_description or said.message) if word]
    text = ": ".join(brief(str(word), _SHOWN) for word in words)
    return f" ({text})" if text else shown(body)


def shown(body: bytes) -> str:
    """Return the beginning of a body, on one line, to be appended to a sentence about it."""
    text = brief(" ".join(body[: 4 * _SHOWN].decode("utf-8", "replace").split()), _SHOWN)
    return f": {text}" if text else ""


def reason_of(error: Exception) -> str:
    """Return why a message was not delivered: the error's text, or that time ran out."""
    return str(error) or "no answer in time"
