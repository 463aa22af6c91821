"""Initialize: the handshake that opens a session (up to 2025-11-25)."""

from mcpearl.types.base import Implementation, RequestParams, Result
from mcpearl.types.capabilities import ClientCapabilities, ServerCapabilities


class InitializeRequestParams(RequestParams, kw_only=True):
    """The client's newest version, capabilities and name."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The version of the session, and the server's capabilities and name."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
