"""Finding out what a server speaks: modern first, then `initialize`, and remembering which it was.

The probe is `server/discover`. A result, or an error only a modern server gives, settles it; any
other error or silence means the server is of the legacy era, and so does a server process that ends
over it. What was found is remembered by target for the life of this process and checked again when
it turns out wrong.
"""

from typing import Any

import msgspec

from mcpearl.client.connection import ClientConnection
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import (
    ConnectionLost,
    InvalidResult,
    McpearlError,
    McpError,
    RequestTimeout,
    brief,
)
from mcpearl.protocol.lifecycle import Step
from mcpearl.protocol.versions import (
    MODERN_VERSIONS,
    NEWEST,
    NEWEST_LEGACY,
    SUPPORTED,
    VERSIONS,
    Version,
    common,
)
from mcpearl.types.base import SERVER_INFO_KEY, Implementation, RequestParams, Result, decode
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.discover import DiscoverResult
from mcpearl.types.initialize import InitializeResult
from mcpearl.types.jsonrpc import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)

_MODERN_ERRORS = (
    UNSUPPORTED_PROTOCOL_VERSION,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    HEADER_MISMATCH,
)
_PROBE_SHARE = 0.5  # of the time an answer may take; a legacy server may never give one
_remembered: dict[str, str] = {}
_MAX_REMEMBERED = 1000


class Introduction(msgspec.Struct):
    """What a server said of itself when it was met."""

    version: Version
    """The one agreed on."""
    capabilities: ServerCapabilities
    server_info: Implementation | None = None
    instructions: str | None = None


class Handshake:
    """How one client meets its server. `protocol` is `auto` or the version to speak."""

    def __init__(
        self, name: str | None, protocol: str, timeout: float, log_level: str | None
    ) -> None:
        if protocol != "auto" and protocol not in VERSIONS:
            known = ", ".join(VERSIONS)
            raise ValueError(
                f"unknown protocol version {protocol!r}; give `auto` or one of {known}"
            )
        self._name = name  # to remember the era under; None when there is nothing to save
        self._protocol = protocol
        self.timeout = timeout
        self.log_level = log_level
        """What a modern server is told with every request."""
        self.ended_by_probe = False
        """Whether the server went away over the probe; the next attempt will be without one."""

    async def perform(self, connection: ClientConnection) -> Introduction:
        """Agree on a version with the server at the other end."""
        if self._protocol != "auto":
            version = VERSIONS[self._protocol]
            if version.modern:
                return await self._discover(connection, version, self.timeout)
            return await self._initialize(connection, version)
        introduction = await self._detect(connection)
        if self._name is not None:
            _remember(self._name, connection.end.version.era)
        return introduction

    async def check(self, connection: ClientConnection) -> None:
        """Ask a server that was met already whether it is there; any answer of its says so."""
        method = "server/discover" if connection.end.version.modern else "ping"
        try:
            await connection.request(method, RequestParams(), Result, timeout=self.timeout)
        except (McpError, InvalidResult):
            pass

    async def _detect(self, connection: ClientConnection) -> Introduction:
        known = self._name is not None and _remembered.get(self._name) == "legacy"
        sure = False
        if not known and not self.ended_by_probe:
            introduction, sure = await self._first_probe(connection)
            if introduction is not None:
                return introduction
        self.ended_by_probe = False
        try:
            return await self._initialize(connection, NEWEST_LEGACY)
        except McpError:
            if sure:
                raise
            # A modern server that was slow to start, or is no longer the one remembered.
            forget(self._name)
            introduction = await self._probe_again(connection)
            if introduction is None:
                raise
            return introduction

    async def _first_probe(self, connection: ClientConnection) -> tuple[Introduction | None, bool]:
        """Give what the probe found, and whether the server was there to be probed."""
        try:
            return await self._probe(connection), True
        except RequestTimeout:
            connection.end.speak_legacy()
            return None, False
        except ConnectionLost:
            self.ended_by_probe = True
            raise

    async def _probe_again(self, connection: ClientConnection) -> Introduction | None:
        connection.end.lifecycle.take(Step.LOSE)
        connection.end.lifecycle.take(Step.CONNECT)
        try:
            return await self._probe(connection)
        except RequestTimeout:
            return None

    async def _probe(self, connection: ClientConnection) -> Introduction | None:
        """Try the modern way; None when the server does not know it."""
        try:
            return await self._discover(connection, NEWEST, self.timeout * _PROBE_SHARE)
        except McpError as error:
            if error.code not in _MODERN_ERRORS:
                connection.end.speak_legacy()
                return None
            version = _offered(error.data)
            if version is None:
                raise
            if not version.modern:
                connection.end.speak_legacy()
                return None
            return await self._discover(connection, version, self.timeout * _PROBE_SHARE)
        except InvalidResult:
            connection.end.speak_legacy()
            return None

    async def _discover(
        self, connection: ClientConnection, version: Version, timeout: float
    ) -> Introduction:
        connection.end.speak_modern(version, self.log_level)
        result = await connection.request(
            "server/discover", RequestParams(), DiscoverResult, timeout=timeout
        )
        if not isinstance(result, DiscoverResult):
            raise InvalidResult("`server/discover` was answered `input_required`")
        agreed = common(result.supported_versions, tuple(reversed(MODERN_VERSIONS)))
        if agreed is None:
            raise _no_modern_version(result.supported_versions)
        connection.end.speak_modern(agreed, self.log_level)
        connection.end.connected()
        return Introduction(agreed, result.capabilities, _identity(result), result.instructions)

    async def _initialize(self, connection: ClientConnection, version: Version) -> Introduction:
        raw = await connection.initialize(self.timeout, version)
        try:
            result = decode(InitializeResult, raw)
        except UNREADABLE as error:
            raise InvalidResult(f"the answer to `initialize` is not valid: {error}") from None
        connection.initialized(result)
        return Introduction(
            connection.end.version, result.capabilities, result.server_info, result.instructions
        )


def _no_modern_version(offered: list[str]) -> McpearlError:
    """Say what is wrong; only a server that also speaks a legacy version is worth going on with."""
    shown = brief(", ".join(offered))
    if common(offered) is not None:
        return InvalidResult(f"the server speaks {shown}, none of them modern")
    return McpearlError(
        f"no protocol version in common: the server speaks {shown or 'none'}, "
        f"this client {', '.join(SUPPORTED)}"
    )


def _offered(data: Any) -> Version | None:
    supported = data.get("supported") if isinstance(data, dict) else None
    return common(supported) if isinstance(supported, list) else None


def _identity(result: Result) -> Implementation | None:
    said = (result.meta or {}).get(SERVER_INFO_KEY)
    try:
        return None if said is None else msgspec.convert(said, Implementation)
    except msgspec.ValidationError:
        return None


def _remember(name: str, era: str) -> None:
    if len(_remembered) >= _MAX_REMEMBERED:
        _remembered.clear()
    _remembered[name] = era


def forget(name: str | None = None) -> None:
    """Forget which era a target was of, or all of them."""
    if name is None:
        _remembered.clear()
    else:
        _remembered.pop(name, None)
