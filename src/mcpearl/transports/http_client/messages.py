"""What Streamable HTTP has to see of the messages it carries, and the answers it makes up itself.

A message is looked into just far enough for its headers and its place; it travels as it came. Where
HTTP fails, the request that waits gets an error answer in the words of JSON-RPC.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.codec import UNREADABLE, encode_error
from mcpearl.protocol.errors import (
    AuthorizationFailed,
    ConnectionLost,
    McpearlError,
    McpError,
    brief,
)
from mcpearl.transports.mirrored_headers import METHOD, NAME, NAMED_BY, ToolHeaders, encode_value
from mcpearl.types.base import PROTOCOL_VERSION_KEY, RequestId
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST

_SHOWN = 200  # characters of a body that nobody can read as a message


class _Meta(Struct):
    version: str | UnsetType = field(default=UNSET, name=PROTOCOL_VERSION_KEY)


class _Params(Struct, rename="camel"):
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    request_id: RequestId | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")


class Outgoing(Struct):
    """A message of this client: a request, a notification, or the answer to a server's request."""

    method: str | UnsetType = UNSET
    id: RequestId | UnsetType = UNSET
    params: _Params | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        """Whether an answer is expected."""
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_notification(self) -> bool:
        """Whether it is said without an answer to come."""
        return self.id is UNSET

    @property
    def version(self) -> str | None:
        """The version it names itself, as every modern request does."""
        if self.params is UNSET or self.params.meta is UNSET or self.params.meta.version is UNSET:
            return None
        return self.params.meta.version

    @property
    def cancels(self) -> RequestId | None:
        """The request that is given up with it."""
        if self.method != "notifications/cancelled" or self.params is UNSET:
            return None
        return None if self.params.request_id is UNSET else self.params.request_id

    def headers(self, tools: ToolHeaders) -> list[Header]:
        """Mirror what the specification wants mirrored."""
        if self.method is UNSET:
            return []
        headers = [(METHOD, encode_value(self.method))]
        if self.params is UNSET or self.method not in NAMED_BY:
            return headers
        name = getattr(self.params, _ATTRIBUTES[NAMED_BY[self.method]])
        if name is UNSET:
            return headers
        headers.append((NAME, encode_value(name)))
        if self.method == "tools/call" and tools.mirrors(name):
            given = self.params.arguments
            headers += tools.of(name, {} if given is UNSET else msgspec.json.decode(given))
        return headers


class _Skeleton(Struct):
    method: str | UnsetType = UNSET
    id: RequestId | UnsetType = UNSET


class _Incoming(Struct):
    id: RequestId | UnsetType | None = UNSET
    method: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Agreement(Struct):
    protocol_version: str = field(name="protocolVersion")


class _Initialized(Struct):
    result: _Agreement


_ATTRIBUTES = {"name": "name", "uri": "uri", "taskId": "task_id"}
_decode_outgoing = msgspec.json.Decoder(Outgoing).decode
_decode_skeleton = msgspec.json.Decoder(_Skeleton).decode
_decode_incoming = msgspec.json.Decoder(_Incoming).decode
_decode_initialized = msgspec.json.Decoder(_Initialized).decode


def read_outgoing(message: bytes) -> Outgoing:
    """Look into a message about to be sent. Params of another shape are none of ours."""
    try:
        return _decode_outgoing(message)
    except msgspec.ValidationError:
        seen = _decode_skeleton(message)
        return Outgoing(seen.method, seen.id)


def answers(message: bytes, id: RequestId) -> bool:
    """Whether a message is the answer to the request `id`."""
    try:
        seen = _decode_incoming(message)
    except UNREADABLE:
        return False
    return seen.method is UNSET and seen.id == id


def agreed_version(message: bytes) -> str | None:
    """Read the version out of the answer to `initialize`."""
    try:
        return _decode_initialized(message).result.protocol_version
    except UNREADABLE:
        return None


def error_in(body: bytes, id: RequestId) -> bytes | None:
    """Give the error answer a body holds, under the id of the request it came for, if it is one."""
    try:
        seen = _decode_incoming(body)
    except UNREADABLE:
        return None
    if seen.error is UNSET or seen.method is not UNSET:
        return None
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (msgspec.json.encode(id), seen.error)


def http_failure(id: RequestId, status: int, reason: str, headers: dict[str, str]) -> bytes:
    """Make the answer to a request that HTTP itself refused."""
    code = INVALID_REQUEST if 400 <= status < 500 else INTERNAL_ERROR
    data: dict[str, Any] = {"status": status}
    if "www-authenticate" in headers:
        data["wwwAuthenticate"] = headers["www-authenticate"]
    if "retry-after" in headers:
        data["retryAfter"] = headers["retry-after"]
    return encode_error(id, McpError(code, reason, data))


def connection_failure(id: RequestId, error: McpearlError) -> bytes:
    """Make the answer to a request whose exchange broke, for a receiver that knows no other way."""
    maybe_executed = not isinstance(error, AuthorizationFailed) and (
        not isinstance(error, ConnectionLost) or error.maybe_executed
    )
    return encode_error(id, McpError(INTERNAL_ERROR, str(error), {"maybeExecuted": maybe_executed}))


def shown(body: bytes) -> str:
    """Give the beginning of a body, for a sentence that says what came instead of a message."""
    text = brief(body[: 4 * _SHOWN].decode("utf-8", "replace").strip(), _SHOWN)
    return f": {text}" if text else ""
