"""The HTTP status of an answer: one rule for each era. An answer that is not an error is a 200."""

from math import ceil

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcpearl.transports.http_server.post import PostOutlet
from mcpearl.types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, OVERLOADED, RATE_LIMITED

_BUSY = {RATE_LIMITED: 429, OVERLOADED: 503, INTERNAL_ERROR: 503}  # with a time to wait


class _RetryAfter(Struct, rename="camel"):
    retry_after: float


class _CodeOnly(Struct):
    code: int
    data: Raw = Raw(b"{}")


class _ErrorCode(Struct):
    error: _CodeOnly | UnsetType = UNSET


_read_code = msgspec.json.Decoder(_ErrorCode).decode


def modern_status(exchange: PostOutlet) -> int:
    """Return the status of an error: errors of the request itself are HTTP errors too."""
    try:
        error = _read_code(exchange.answer or b"").error
    except msgspec.DecodeError:
        return 200
    if error is UNSET:
        return 200
    if error.code == METHOD_NOT_FOUND:
        return 404
    if error.code in _BUSY:
        return _busy(exchange, error)
    if exchange.refused or -32099 <= error.code <= -32020:
        return 400
    return 200


def legacy_status(exchange: PostOutlet) -> int:
    """Return 400 for something that was not a message, 429 or 503 for a refusal, and else 200."""
    answer = exchange.answer or b""
    if exchange.refused and answer.startswith(b'{"jsonrpc":"2.0","id":null'):
        return 400
    try:
        error = _read_code(answer).error
    except msgspec.DecodeError:
        return 200  # a batch
    return 200 if error is UNSET or error.code not in _BUSY else _busy(exchange, error)


def _busy(exchange: PostOutlet, error: _CodeOnly) -> int:
    """Return the status of a refusal that says how long to wait; repeat that in a header."""
    try:
        seconds = msgspec.json.decode(error.data, type=_RetryAfter).retry_after
    except msgspec.DecodeError:
        return 200  # an error with this code that does not say so
    exchange.headers = (*exchange.headers, (b"retry-after", b"%d" % max(1, ceil(seconds))))
    return _BUSY[error.code]
