"""Which HTTP status an answer travels with: the one rule of each era."""

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
    """The status of a plain answer: errors of the request itself are the request's errors."""
    answer = exchange.answer or b""
    if not exchange.refused and answer.find(b'"error":', 0, 256) < 0:
        return 200
    try:
        error = _read_code(answer).error
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
    """Legacy answers are 200 whatever they say, except to what was no message at all."""
    answer = exchange.answer or b""
    return 400 if exchange.refused and answer.startswith(b'{"jsonrpc":"2.0","id":null') else 200
