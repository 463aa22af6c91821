"""The HTTP status of an answer: one rule for each era. An answer that is not an error is a 200."""

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mcpearl.transports.http_server.post import PostOutlet
from mcpearl.types.jsonrpc import METHOD_NOT_FOUND


class _CodeOnly(Struct):
    code: int


class _Code(Struct):
    error: _CodeOnly | UnsetType = UNSET


_read_code = msgspec.json.Decoder(_Code).decode


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
    if exchange.refused or -32099 <= error.code <= -32020:
        return 400
    return 200


def legacy_status(exchange: PostOutlet) -> int:
    """Return 400 for an error of something that was not a message; every other answer is a 200."""
    answer = exchange.answer or b""
    return 400 if exchange.refused and answer.startswith(b'{"jsonrpc":"2.0","id":null') else 200
