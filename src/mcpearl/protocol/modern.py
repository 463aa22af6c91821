"""The modern era: no session; every request describes its client, every result its server.

From 2026-07-28 a request carries version, client and capabilities in `_meta`; a result carries
`resultType`, the server's identity and, if it can be cached, caching hints. Both are spliced in as
bytes that were encoded once, so that messages do not pay for encoding them again.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from mcpearl import types
from mcpearl.protocol.errors import McpError, brief
from mcpearl.protocol.events import Caller
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.versions import VERSIONS, Version, unsupported
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
    Implementation,
    RequestId,
    Result,
    encode,
)
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.jsonrpc import INVALID_PARAMS

LISTEN = "subscriptions/listen"
COMPLETE = "complete"
INPUT_REQUIRED = "input_required"
ROUND_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose handlers may ask the client, and which then run again with its answers."""

_CallerMembers = tuple[Any, Any, Any, Any]


class CallerReader:
    """Reads the caller of each request of one stream; repeated `_meta` is decoded only once.

    `principal` is the principal of the next message, if they differ.
    """

    __slots__ = ("_identity", "_known", "_meta", "_versions", "principal")

    def __init__(self, versions: tuple[str, ...], principal: Any = None) -> None:
        self._versions = versions
        self.principal = principal
        self._identity: _CallerMembers | None = None
        self._known: Caller | None = None
        self._meta: dict[str, Any] | None = (
            None  # what it was read from, with members of other kinds
        )

    def caller(self, meta: dict[str, Any]) -> Caller:
        """Return the caller that `_meta` describes. Raises `McpError` naming what is wrong with it."""
        known = self._known
        if known is not None and known.principal is self.principal and meta == self._meta:
            return known
        identity = (
            meta.get(PROTOCOL_VERSION_KEY),
            meta.get(CLIENT_CAPABILITIES_KEY),
            meta.get(CLIENT_INFO_KEY),
            meta.get(LOG_LEVEL_KEY),
        )
        if known is None or known.principal is not self.principal or identity != self._identity:
            self._known = known = self._read(*identity)
            self._identity = identity
            self._meta = dict(meta)  # a handler may change its own
        return known

    def _read(self, version: Any, capabilities: Any, client: Any, log_level: Any) -> Caller:
        name = _member(version, str, PROTOCOL_VERSION_KEY)
        if name not in self._versions or not VERSIONS[name].modern:
            raise unsupported(name, self._versions)
        return Caller(
            version=VERSIONS[name],
            capabilities=_member(capabilities, ClientCapabilities, CLIENT_CAPABILITIES_KEY),
            client=None if client is None else _member(client, Implementation, CLIENT_INFO_KEY),
            log_level=None
            if log_level is None
            else _member(log_level, types.LoggingLevel, LOG_LEVEL_KEY),
            principal=self.principal,
        )


def missing_meta(method: str) -> McpError:
    """Return the error for a modern request without the required `_meta`."""
    return McpError(
        INVALID_PARAMS,
        f"`{method}` needs `{PROTOCOL_VERSION_KEY}` and `{CLIENT_CAPABILITIES_KEY}` in `_meta`",
        {"method": method},
    )


def _member(value: Any, kind: Any, key: str) -> Any:
    if value is None:
        raise McpError(INVALID_PARAMS, f"`_meta` needs `{key}`", {"key": key})
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = brief(str(error))
        raise McpError(INVALID_PARAMS, f"`{key}` in `_meta`: {reason}", {"key": key}) from None


def discover(offer: Offer, version: Version) -> types.DiscoverResult:
    """Return the result of `server/discover`."""
    return types.DiscoverResult(
        supported_versions=list(offer.versions),
        capabilities=narrow(offer.capabilities, version.name),
        instructions=offer.instructions,
    )


class Stamp:
    """Completes modern results: adds the result type, the server's identity and caching hints."""

    __slots__ = ("_identity", "_members", "_meta", "complete")

    def __init__(self, info: Implementation) -> None:
        self._identity = {SERVER_INFO_KEY: msgspec.Raw(encode(info))}
        meta = b'"_meta":' + encode(self._identity)
        self._meta = meta
        self._members = {
            kind: b'"resultType":"%b",%b' % (kind.encode(), meta)
            for kind in (COMPLETE, INPUT_REQUIRED)
        }
        #: The members of a result that is complete: `resultType` and the server's identity.
        self.complete = self._members[COMPLETE]

    def encode(self, result: Result, version: Version) -> tuple[bytes, bytes]:
        """Return the members to splice into a result in this version, and the encoded result."""
        result = narrow(result, version.name)
        if type(result) is not types.CallToolResult and isinstance(result, types.CacheableResult):
            result = _with_cache_hints(result)
        kind = INPUT_REQUIRED if type(result) is types.InputRequiredResult else COMPLETE
        if result.meta is None:
            members = self._members[kind] if result.result_type is None else self._meta
            return members, encode(result)
        whole = replace(
            result,
            meta={**self._identity, **(result.meta or {})},
            result_type=result.result_type or kind,
        )
        return b"", encode(whole)


def _with_cache_hints(result: types.CacheableResult) -> types.CacheableResult:
    """Fill in caching hints: `ttlMs` defaults to 0, `cacheScope` to `private`."""
    ttl_ms, scope = result.ttl_ms, result.cache_scope
    if ttl_ms is not None and ttl_ms >= 0 and scope is not None:
        return result
    return replace(result, ttl_ms=max(0, ttl_ms or 0), cache_scope=scope or "private")


def subscription_meta(id: RequestId) -> dict[str, Any]:
    """Return the `_meta` of messages that belong to a `subscriptions/listen` request."""
    return {SUBSCRIPTION_ID_KEY: id}


class Presentation:
    """The `_meta` with which a client describes itself on each request, encoded once."""

    __slots__ = ("_plain", "_presented", "version")

    def __init__(
        self,
        version: Version,
        info: Implementation,
        capabilities: ClientCapabilities,
        log_level: str | None = None,
    ) -> None:
        self.version = version
        presented: dict[str, Any] = {
            PROTOCOL_VERSION_KEY: version.name,
            CLIENT_INFO_KEY: narrow(info, version.name),
            CLIENT_CAPABILITIES_KEY: narrow(capabilities, version.name),
        }
        if log_level is not None:
            presented[LOG_LEVEL_KEY] = log_level
        self._presented = presented
        self._plain = b'"_meta":' + encode(presented)

    def member(self, token: int | None, more: dict[str, Any] | None) -> bytes:
        """Return `_meta` as an encoded member of params. Members of `more` take precedence."""
        if more:
            whole = {**self._presented, **more}
            if token is not None:
                whole[PROGRESS_TOKEN_KEY] = token
            return b'"_meta":' + encode(whole)
        if token is not None:
            return b'%b,"progressToken":%d}' % (self._plain[:-1], token)
        return self._plain
