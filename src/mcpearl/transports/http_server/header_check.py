"""Compares what the headers of a request repeat with what its message says.

Intermediaries act on the headers and the server on the body, so the two must agree. A call is compared
after its params were decoded, so that they are read once. Of other messages, this module reads only what
it compares.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from mcpearl.net.http_server.request import HeaderMap
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.versions import MODERN_VERSIONS, UNNAMED, VERSIONS, unsupported
from mcpearl.transports.mirrored_headers import (
    NAMED_BY,
    PARAM,
    ParameterPath,
    decode_value,
    text_at,
)
from mcpearl.types.base import PROTOCOL_VERSION_KEY
from mcpearl.types.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS

Mirrored = Mapping[str, Mapping[ParameterPath, str]]
"""The parameters that tools mirror into headers: by tool, the header of each path."""

MODERN_ONLY = frozenset({"server/discover", LISTEN})
_MEMBER = {method: "task_id" if name == "taskId" else name for method, name in NAMED_BY.items()}


class _HeaderMeta(Struct):
    version: Any = field(default=UNSET, name=PROTOCOL_VERSION_KEY)


class _HeaderParams(Struct, rename="camel"):
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = UNSET
    arguments: Raw | UnsetType = UNSET
    meta: _HeaderMeta | UnsetType = field(default=UNSET, name="_meta")


_read_params = msgspec.json.Decoder(_HeaderParams).decode
_NO_PARAMS = _HeaderParams()


def _peek(message: Envelope) -> _HeaderParams:
    """Read the params that headers repeat. Params that cannot be read are refused elsewhere."""
    if message.params is UNSET:
        return _NO_PARAMS
    try:
        return _read_params(message.params)
    except codec.UNREADABLE:
        return _NO_PARAMS


def _version_in(params: _HeaderParams) -> Any:
    return UNSET if params.meta is UNSET else params.meta.version


class MessageHeaders:
    """What the headers of one request say about its message."""

    __slots__ = (
        "_headers",
        "_method",
        "_name",
        "_wrong_name",
        "in_session",
        "legacy_version",
        "says_modern",
        "session",
        "version",
    )

    def __init__(self, headers: HeaderMap) -> None:
        self._headers = headers
        self.session = _text(headers.get(b"mcp-session-id"))
        self.version = _text(headers.get(b"mcp-protocol-version"))
        self._method = _text(headers.get(b"mcp-method"))
        self._name: str | None = None
        self._wrong_name: str | None = None  # why there is none, although there is a header
        self.says_modern = self.version in MODERN_VERSIONS
        self.in_session = self.session is not None and not self.says_modern
        """Whether only a method that sessions do not have makes the message a modern one."""
        self.legacy_version = UNNAMED if self.version is None else VERSIONS.get(self.version)
        """The version of a legacy message; None if there is no such version."""
        name = headers.get(b"mcp-name")
        if name is not None:
            try:
                self._name = decode_value(name.decode("ascii"))
            except ValueError as error:
                self._wrong_name = f"Mcp-Name header: {error}"

    def is_modern(self, message: Envelope | bytes) -> bool:
        """Whether a message is of the era without sessions.

        A modern call with the headers of a session is not found here, where its params are not read
        yet, but by `mismatch_of_legacy`.
        """
        if self.says_modern or not isinstance(message, Envelope):
            return self.says_modern
        if message.method in MODERN_ONLY:
            return True
        return self.session is None and _version_in(_peek(message)) is not UNSET

    def mismatch_of_call(self, call: Call, mirrored: Mirrored) -> McpError | None:
        """Compare with a call that was decoded; return an error naming what differs, or None."""
        version, method = call.caller.version.name, call.method
        if version != self.version:
            return self._other_version(version)
        if method != self._method:
            return self._other_method(method)
        if method == "tools/call":
            name = call.params.name
            if name != self._name:
                return self._other_name(method, name)
            if name in mirrored:
                return self._other_parameters(mirrored[name], call.params.arguments)
        elif method in _MEMBER:
            named = getattr(call.params, _MEMBER[method])
            if named != self._name:
                return self._other_name(method, named)
        return None

    def mismatch_of(self, message: Envelope) -> McpError | None:
        """Compare with a message that was not decoded; return an error naming what differs, or None."""
        if message.id is UNSET and self.version is None:
            return None  # a notification; which headers it has is not defined
        params = _peek(message)
        version = _version_in(params)
        if self.version is None or (version is not UNSET and version != self.version):
            return self._other_version(version)
        if self.version not in VERSIONS:
            return unsupported(self.version[:64])
        if message.id is UNSET:
            return None
        if message.method is UNSET or message.method != self._method:
            return self._other_method(message.method)
        member = _MEMBER.get(message.method)
        if member is None or params is _NO_PARAMS:
            return None
        named = getattr(params, member)
        return None if named == self._name else self._other_name(message.method, named)

    def mismatch_of_legacy(self, call: Call) -> McpError | None:
        """Return the error of a modern call that came with the headers of a session."""
        version = call.caller.version.name
        return self._other_version(version) if version in MODERN_VERSIONS else None

    def _other_version(self, version: object) -> McpError:
        if self.version is None:
            return _differs("MCP-Protocol-Version header is missing")
        return _differs(f"MCP-Protocol-Version header {self.version!r:.64} is not {version!r:.64}")

    def _other_method(self, method: object) -> McpError:
        if self._method is None:
            return _differs("Mcp-Method header is missing")
        return _differs(f"Mcp-Method header {self._method!r:.64} is not {method!r:.64}")

    def _other_name(self, method: str, name: object) -> McpError | None:
        if self._wrong_name is not None:
            return _differs(self._wrong_name)
        if self._name is None:
            # FastMCP's client sends none for tasks, and a missing header cannot mislead a proxy.
            return None if method.startswith("tasks/") else _differs("Mcp-Name header is missing")
        return _differs(f"Mcp-Name header {self._name!r:.64} is not {name!r:.64}")

    def _other_parameters(
        self, paths: Mapping[ParameterPath, str], arguments: Raw | UnsetType
    ) -> McpError | None:
        try:
            decoded = {} if arguments is UNSET else msgspec.json.decode(arguments)
        except codec.UNREADABLE as error:
            # What runs the call might still be able to read them in part, and they were not compared.
            return McpError(INVALID_PARAMS, f"Invalid params: `arguments` cannot be read: {error}")
        for path, header in paths.items():
            name, value = PARAM + header, text_at(decoded, path)
            given = self._headers.get(name.lower().encode())
            if given is None and value is None:
                continue
            if given is None:
                return _differs(f"{name} header is missing")
            if value is None:
                return _differs(f"{name} header is there, but no argument")
            try:
                if not _same(decode_value(given.decode("ascii")), value):
                    return _differs(f"{name} header does not match the argument")
            except ValueError as error:
                return _differs(f"{name} header: {error}")
        return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("ascii", "replace")


_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def _same(given: str, expected: str) -> bool:
    """Compare two values, numbers as numbers: `42.0` is `42`."""
    if given == expected:
        return True
    return bool(_INTEGER.fullmatch(expected)) and given.rstrip("0") == f"{expected}."


def _differs(reason: str) -> McpError:
    return McpError(HEADER_MISMATCH, f"Header mismatch: {reason}")
