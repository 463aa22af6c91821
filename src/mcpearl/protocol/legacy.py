"""The handshake of the legacy era, for both ends.

The legacy era is the protocol up to 2025-11-25: with `initialize` a connection agrees once on a
version and on capabilities, which apply to the whole session. This module makes and reads the
handshake's messages; the phases of a session are in `lifecycle`.
"""

from typing import Any

from mcpearl.protocol.capabilities import announce
from mcpearl.protocol.events import Caller
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.offer import Offer
from mcpearl.protocol.versions import LEGACY_VERSIONS, VERSIONS, Version, negotiate
from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.initialize import InitializeRequestParams, InitializeResult


def accept(
    params: InitializeRequestParams, offer: Offer, principal: Any
) -> tuple[Caller, InitializeResult]:
    """Answer `initialize`. Return the caller of the session, and the result to send."""
    version = negotiate(params.protocol_version, offer.legacy_versions)
    caller = Caller(version, params.client_info, params.capabilities, principal=principal)
    result = InitializeResult(
        protocol_version=version.name,
        capabilities=announce(
            offer.capabilities,
            version,
            params.capabilities,
            identified=principal is None or bool(principal.subject),
        ),
        server_info=offer.info,
        instructions=offer.instructions,
    )
    return caller, narrow(result, version.name)


def propose(
    version: Version, info: Implementation, capabilities: ClientCapabilities
) -> InitializeRequestParams:
    """Return the params of a client's `initialize`."""
    params = InitializeRequestParams(
        protocol_version=version.name, capabilities=capabilities, client_info=info
    )
    return narrow(params, version.name)


def agreed(result: InitializeResult) -> Version | None:
    """Return the version a server answered with, or None if this side does not support it."""
    name = result.protocol_version
    return VERSIONS[name] if name in LEGACY_VERSIONS else None
