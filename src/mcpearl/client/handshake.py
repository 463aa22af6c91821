"""The handshake: find out which versions a server speaks, and agree on one.

A server whose era is unknown is probed with `server/discover`. A result, or an error that only a
modern server sends, means that it is modern. Any other error, or a server process that exits because
of the probe, means that it is legacy, and `initialize` follows. Silence means nothing yet: the server
may still be starting. Then `initialize` is sent too, and the first answer decides. Legacy servers are
remembered by target (`EraMemory`); if an entry turns out to be wrong, the server is probed again.
"""

import asyncio
from collections.abc import Awaitable
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
from mcpearl.protocol.versions import (
    MODERN_VERSIONS,
    NEWEST,
    NEWEST_LEGACY,
    SUPPORTED,
    VERSIONS,
    Version,
    common,
)
from mcpearl.transports.transport import Talkative
from mcpearl.types.base import SERVER_INFO_KEY, Implementation, RequestParams, Result, decode
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.discover import DiscoverResult
from mcpearl.types.initialize import InitializeResult
from mcpearl.types.jsonrpc import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcpearl.types.logging import LoggingLevel

_MODERN_ERRORS = (
    UNSUPPORTED_PROTOCOL_VERSION,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    HEADER_MISMATCH,
)
_PROBE_SHARE = 0.5  # of the timeout, after which `initialize` is sent beside an unanswered probe
_PROBE_PATIENCE = 5.0  # seconds of that at most: a legacy server may never answer the probe
_ALL_LOGS: LoggingLevel = "debug"


class EraMemory:
    """Remembers the servers that turned out to be legacy, so that they are not probed again.

    Programs make many clients for the same few servers, one after the other, and each probe of a
    legacy server may cost a timeout or a process. So there is one memory for the whole process,
    `legacy_servers`; a wrong entry costs one failed handshake.
    """

    def __init__(self, max_targets: int = 1000) -> None:
        self._max_targets = max_targets
        self._targets: dict[str, None] = {}

    def __contains__(self, target: str | None) -> bool:
        return target in self._targets

    def add(self, target: str) -> None:
        """Remember a target; if there are too many, forget the oldest."""
        self._targets.pop(target, None)
        while len(self._targets) >= self._max_targets:
            del self._targets[next(iter(self._targets))]
        self._targets[target] = None

    def discard(self, target: str) -> None:
        """Forget a target."""
        self._targets.pop(target, None)

    def clear(self) -> None:
        """Forget all targets."""
        self._targets.clear()


legacy_servers = EraMemory()


class Introduction(msgspec.Struct):
    """How a server described itself in the handshake."""

    version: Version
    """The version agreed on."""
    capabilities: ServerCapabilities
    server_info: Implementation | None = None
    instructions: str | None = None


class Handshake:
    """How one client agrees on a version with its server, on every new connection.

    Args:
        target: the name under which to remember the server's era; None to not remember it.
        protocol: `auto`, or the one version to speak.
        timeout: seconds for each answer of the server.
        log_level: the level that a modern server gets with every request.
        listening: whether there is a listener for log messages, which a modern server sends only when
            it is asked for a level.
    """

    def __init__(
        self,
        target: str | None,
        protocol: str,
        timeout: float,
        log_level: LoggingLevel | None,
        listening: bool = False,
    ) -> None:
        if protocol != "auto" and protocol not in VERSIONS:
            known = ", ".join(VERSIONS)
            raise ValueError(
                f"unknown protocol version {protocol!r}; pass `auto` or one of {known}"
            )
        self._target = target
        self._only = None if protocol == "auto" else VERSIONS[protocol]
        self.timeout = timeout
        self.log_level = log_level
        self._listening = listening
        self.ended_by_probe = False
        """Whether the server ended the connection because of the probe; the next attempt sends none."""

    def forget_probe(self) -> None:
        """Probe the server again at the next attempt."""
        self.ended_by_probe = False

    @property
    def _modern_log_level(self) -> LoggingLevel | None:
        return self.log_level or (_ALL_LOGS if self._listening else None)

    def listen_to_logs(self, connection: ClientConnection | None) -> None:
        """Ask a modern server for log messages, unless a level was chosen already."""
        self._listening = True
        if connection is not None and self.log_level is None:
            connection.set_log_level(_ALL_LOGS)

    def set_log_level(self, level: LoggingLevel, connection: ClientConnection | None) -> None:
        """Use another log level on this connection, if there is one, and on those to come."""
        self.log_level = level
        if connection is not None:
            connection.set_log_level(level)

    async def perform(self, connection: ClientConnection) -> Introduction:
        """Agree on a version with the server at the other end."""
        try:
            if self._only is not None:
                return await self._insist(connection, self._only)
            introduction = await self._detect(connection)
        except RequestTimeout as error:
            raise RequestTimeout(
                error.method,
                error.seconds,
                setting="connect_timeout",
                stderr=_last_words(connection),
            ) from None
        except ConnectionLost as error:
            lost = connection.lost_reason or error  # says more than that a message was not sent
            raise (_without_server(lost) if lost.exit_code == 0 else lost) from None
        if self._target is not None:
            if introduction.version.modern:
                legacy_servers.discard(self._target)
            else:
                legacy_servers.add(self._target)
        return introduction

    async def check(self, connection: ClientConnection) -> None:
        """Return when a known server has answered on this connection; any answer will do."""
        method = "server/discover" if connection.end.version.modern else "ping"
        try:
            await connection.request(method, RequestParams(), Result, timeout=self.timeout)
        except (McpError, InvalidResult):
            pass

    async def _insist(self, connection: ClientConnection, version: Version) -> Introduction:
        """Speak this version or none."""
        if version.modern:
            return self._agreed(connection, await self._ask(connection, version))
        return await self._initialize(connection, version)

    async def _detect(self, connection: ClientConnection) -> Introduction:
        was_probed = False
        if self._target not in legacy_servers and not self.ended_by_probe:
            introduction = await self._first_probe(connection)
            if introduction is not None:
                return introduction
            was_probed = True
        self.ended_by_probe = False
        try:
            return await self._initialize(connection, NEWEST_LEGACY)
        except McpError:
            if was_probed:
                raise
            # The server is no longer the legacy one that was remembered.
            if self._target is not None:
                legacy_servers.discard(self._target)
            connection.end.restart()
            introduction = await self._concluded(connection, self._ask(connection, NEWEST))
            if introduction is None:
                raise
            return introduction

    async def _first_probe(self, connection: ClientConnection) -> Introduction | None:
        """Probe the server; None when it answered that it does not know the probe."""
        probe = asyncio.ensure_future(self._ask(connection, NEWEST))
        patience = min(self.timeout * _PROBE_SHARE, _PROBE_PATIENCE)
        try:
            done, _ = await asyncio.wait((probe,), timeout=patience)
            if done:
                return await self._concluded(connection, probe)
            return await self._ask_both(connection, probe)
        except ConnectionLost:
            self.ended_by_probe = True
            raise
        finally:
            probe.cancel()

    async def _ask_both(
        self, connection: ClientConnection, probe: "asyncio.Future[DiscoverResult]"
    ) -> Introduction:
        """Send `initialize` beside an unanswered probe; the first answer tells the era.

        A server that is still starting answers both, in order. A legacy server that ignores the probe
        answers `initialize` only.
        """
        connection.end.speak_legacy()
        session = asyncio.ensure_future(connection.initialize(self.timeout, NEWEST_LEGACY))
        try:
            await asyncio.wait((probe, session), return_when=asyncio.FIRST_COMPLETED)
            if not _is_good(probe):
                await asyncio.wait((session,))
            if not _is_good(probe) and not _is_good(session):
                await asyncio.wait((probe,))  # a modern server refuses `initialize`
            if not _is_good(probe):
                return self._accepted(connection, session.result())
            connection.end.restart()
            return self._agreed(connection, probe.result())
        finally:
            session.cancel()
            await asyncio.wait((session,))

    async def _concluded(
        self, connection: ClientConnection, probe: Awaitable[DiscoverResult]
    ) -> Introduction | None:
        """Agree on a version after the answer to a probe; return None for a legacy server."""
        try:
            return self._agreed(connection, await probe)
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
            return self._agreed(connection, await self._ask(connection, version))
        except InvalidResult:
            connection.end.speak_legacy()
            return None

    async def _ask(self, connection: ClientConnection, version: Version) -> DiscoverResult:
        """Ask a modern server which versions it speaks."""
        connection.end.speak_modern(version, self._modern_log_level)
        result = await connection.request(
            "server/discover", RequestParams(), DiscoverResult, timeout=self.timeout
        )
        if not isinstance(result, DiscoverResult):
            raise InvalidResult("`server/discover` was answered `input_required`")
        return result

    def _agreed(self, connection: ClientConnection, result: DiscoverResult) -> Introduction:
        """Choose the version to speak with a modern server."""
        spoken = result.supported_versions
        if self._only is not None and self._only.name not in spoken:
            raise _other_version(brief(", ".join(spoken)) or "none", self._only)
        agreed = self._only or common(spoken, tuple(reversed(MODERN_VERSIONS)))
        if agreed is None:
            raise _no_modern_version(spoken)
        connection.check()  # it may have ended right after the answer
        connection.end.speak_modern(agreed, self._modern_log_level)
        connection.end.connected()
        return Introduction(agreed, result.capabilities, _identity(result), result.instructions)

    async def _initialize(self, connection: ClientConnection, version: Version) -> Introduction:
        return self._accepted(connection, await connection.initialize(self.timeout, version))

    def _accepted(self, connection: ClientConnection, raw: msgspec.Raw) -> Introduction:
        """Apply the answer to `initialize`."""
        try:
            result = decode(InitializeResult, raw)
        except UNREADABLE as error:
            raise InvalidResult(f"the answer to `initialize` is not valid: {error}") from None
        if self._only is not None and result.protocol_version != self._only.name:
            raise _other_version(brief(result.protocol_version), self._only)
        connection.initialized(result)
        return Introduction(
            connection.end.version, result.capabilities, result.server_info, result.instructions
        )


def _is_good(answer: "asyncio.Future[Any]") -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _last_words(connection: ClientConnection) -> str:
    transport = connection.transport
    return transport.last_words if isinstance(transport, Talkative) else ""


def _without_server(lost: ConnectionLost) -> ConnectionLost:
    """Explain that the program exited without an error, but never acted as a server."""
    return ConnectionLost(
        f"{lost.reason} without answering; a server runs until its input is closed: does it end "
        "with `app.run()`?",
        exit_code=lost.exit_code,
        stderr=lost.stderr,
    )


def _other_version(spoken: str, only: Version) -> McpearlError:
    return McpearlError(
        f"no protocol version in common: the server speaks {spoken}, this client was told to speak "
        f"only {only.name}; leave `protocol` out to accept any version"
    )


def _no_modern_version(offered: list[str]) -> McpearlError:
    """Return the error; `InvalidResult` if the server also speaks a legacy version to fall back to."""
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
