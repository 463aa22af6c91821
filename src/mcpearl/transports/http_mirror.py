"""Comparing what a request's headers repeat with what its body says.

Intermediaries act on the headers and the server on the body, so the two must agree. As much of a
message is read here as that takes, and no more.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.versions import MODERN_VERSIONS, VERSIONS, unsupported
from mcpearl.transports.http_headers import NAMED_BY, decode_value
from mcpearl.types.base import PROTOCOL_VERSION_KEY, RequestId
from mcpearl.types.jsonrpc import HEADER_MISMATCH

ToolHeadersOf = Callable[[str, bytes], list[tuple[str, str | None]]]
"""The headers a call of a tool must have; None for one it must not have."""


class _Meta(Struct):
    version: Any = field(default=UNSET, name=PROTOCOL_VERSION_KEY)


class _Params(Struct, rename="camel"):
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = UNSET
    arguments: Raw | UnsetType = UNSET
    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")


class Peek(Struct):
    """As much of a message as the headers must agree with."""

    method: str | UnsetType = UNSET
    id: RequestId | UnsetType = UNSET
    params: _Params | UnsetType = UNSET


read_peek = msgspec.json.Decoder(Peek).decode


def is_modern(peek: Peek, headers: dict[bytes, bytes]) -> bool:
    """Whether a request is of the era without sessions."""
    meta = UNSET if peek.params is UNSET else peek.params.meta
    if meta is not UNSET and meta.version is not UNSET:
        return True
    if peek.method in ("server/discover", LISTEN):
        return True
    return headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_VERSIONS


def mismatch_of(
    peek: Peek, headers: dict[bytes, bytes], tool_headers: ToolHeadersOf
) -> McpError | None:
    """Compare the headers with the body they repeat; the error names what differs."""
    params = peek.params
    meta = UNSET if params is UNSET else params.meta
    stated = UNSET if meta is UNSET else meta.version
    version = headers.get(b"mcp-protocol-version")
    if peek.id is UNSET and version is None:
        return None  # a notification; which headers it has is not defined
    if version is None:
        return _differs("MCP-Protocol-Version header is missing")
    text = version.decode("ascii", "replace")
    if stated is not UNSET and stated != text:
        return _differs(f"MCP-Protocol-Version header {text!r:.64} is not {stated!r:.64}")
    if text not in VERSIONS:
        return unsupported(text[:64])
    if peek.id is UNSET:
        return None
    return _mirrored(peek, params, headers, tool_headers)


def _mirrored(
    peek: Peek,
    params: _Params | UnsetType,
    headers: dict[bytes, bytes],
    tool_headers: ToolHeadersOf,
) -> McpError | None:
    method = headers.get(b"mcp-method")
    if method is None:
        return _differs("Mcp-Method header is missing")
    if peek.method is UNSET or method != peek.method.encode():
        return _differs(f"Mcp-Method header {method!r:.64} is not {peek.method!r:.64}")
    member = NAMED_BY.get(peek.method or "")
    if member is None or params is UNSET:
        return None
    named = {"name": params.name, "uri": params.uri, "taskId": params.task_id}[member]
    given = headers.get(b"mcp-name")
    if given is None:
        return _differs("Mcp-Name header is missing")
    try:
        name = decode_value(given.decode("ascii"))
    except ValueError as error:
        return _differs(f"Mcp-Name header: {error}")
    if name != named:
        return _differs(f"Mcp-Name header {name!r:.64} is not {named!r:.64}")
    if peek.method == "tools/call" and isinstance(named, str):
        raw = b"{}" if params.arguments is UNSET else bytes(params.arguments)
        return _parameters(tool_headers(named, raw), headers)
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
