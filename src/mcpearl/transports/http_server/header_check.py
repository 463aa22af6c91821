"""Comparing what a request's headers repeat with what its body says.

Intermediaries act on the headers and the server on the body, so the two must agree. As much of a
message is read here as that takes, and no more.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.versions import MODERN_VERSIONS, VERSIONS, unsupported
from mcpearl.transports.mirrored_headers import NAMED_BY, decode_value
from mcpearl.types.base import PROTOCOL_VERSION_KEY
from mcpearl.types.jsonrpc import HEADER_MISMATCH

ToolHeadersOf = Callable[[str, Raw | UnsetType], list[tuple[str, str | None]]]
"""The headers a call of a tool with these arguments must have; None for one it must not have."""


class _Meta(Struct):
    version: Any = field(default=UNSET, name=PROTOCOL_VERSION_KEY)


class _Params(Struct, rename="camel"):
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = UNSET
    arguments: Raw | UnsetType = UNSET
    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")

    @property
    def version(self) -> Any:
        """The version it says it is of."""
        return UNSET if self.meta is UNSET else self.meta.version


_read_params = msgspec.json.Decoder(_Params).decode
_NO_PARAMS = _Params()
_MODERN = frozenset(version.encode() for version in MODERN_VERSIONS)
_MODERN_ONLY = frozenset({"server/discover", LISTEN})
_NAMES = {name.encode(): name for name in VERSIONS}


def peek(message: Envelope) -> _Params:
    """Read what of a message headers repeat. What cannot be read is not there: others will say so."""
    if message.params is UNSET:
        return _NO_PARAMS
    try:
        return _read_params(message.params)
    except codec.UNREADABLE:
        return _NO_PARAMS


def is_modern(message: Envelope | None, headers: dict[bytes, bytes]) -> bool:
    """Whether a request is of the era without sessions."""
    if headers.get(b"mcp-protocol-version") in _MODERN:
        return True
    if message is None:
        return False
    return message.method in _MODERN_ONLY or peek(message).version is not UNSET


def mismatch_of(
    message: Envelope, headers: dict[bytes, bytes], tool_headers: ToolHeadersOf
) -> McpError | None:
    """Compare the headers with the body they repeat; the error names what differs."""
    version = headers.get(b"mcp-protocol-version")
    if message.id is UNSET and version is None:
        return None  # a notification; which headers it has is not defined
    if version is None:
        return _differs("MCP-Protocol-Version header is missing")
    params = peek(message)
    text = _NAMES.get(version) or version.decode("ascii", "replace")
    if params.version is not UNSET and params.version != text:
        return _differs(f"MCP-Protocol-Version header {text!r:.64} is not {params.version!r:.64}")
    if text not in VERSIONS:
        return unsupported(text[:64])
    if message.id is UNSET:
        return None
    return _mirrored(message, params, headers, tool_headers)


def _mirrored(
    message: Envelope,
    params: _Params,
    headers: dict[bytes, bytes],
    tool_headers: ToolHeadersOf,
) -> McpError | None:
    method = headers.get(b"mcp-method")
    if method is None:
        return _differs("Mcp-Method header is missing")
    if message.method is UNSET or method != message.method.encode():
        return _differs(f"Mcp-Method header {method!r:.64} is not {message.method!r:.64}")
    member = NAMED_BY.get(message.method)
    if member is None or params is _NO_PARAMS:
        return None
    named = getattr(params, "task_id" if member == "taskId" else member)
    given = headers.get(b"mcp-name")
    if given is None:
        return _differs("Mcp-Name header is missing")
    try:
        name = decode_value(given.decode("ascii"))
    except ValueError as error:
        return _differs(f"Mcp-Name header: {error}")
    if name != named:
        return _differs(f"Mcp-Name header {name!r:.64} is not {named!r:.64}")
    if message.method == "tools/call":
        expected = tool_headers(name, params.arguments)
        return _parameters(expected, headers) if expected else None
    return None


def _parameters(
    expected: list[tuple[str, str | None]], headers: dict[bytes, bytes]
) -> McpError | None:
    for name, value in expected:
        given = headers.get(name.lower().encode())
        if given is None and value is None:
            continue
        if given is None:
            return _differs(f"{name} header is missing")
        if value is None:
            return _differs(f"{name} header is there, but no argument")
        try:
            if not _same(decode_value(given.decode("ascii")), decode_value(value)):
                return _differs(f"{name} header does not match the argument")
        except ValueError as error:
            return _differs(f"{name} header: {error}")
    return None


_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def _same(given: str, expected: str) -> bool:
    """Compare two values, numbers as numbers: `42.0` is `42`."""
    if given == expected:
        return True
    return bool(_INTEGER.fullmatch(expected)) and given.rstrip("0") == f"{expected}."


def _differs(reason: str) -> McpError:
    return McpError(HEADER_MISMATCH, f"Header mismatch: {reason}")
