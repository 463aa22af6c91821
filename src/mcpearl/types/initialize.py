"""Initialize: the handshake that opens a session, up to 2025-11-25."""

from mcpearl.types.base import Implementation, RequestParams, Result
from mcpearl.types.capabilities import ClientCapabilities, ServerCapabilities


class InitializeRequestParams(RequestParams, kw_only=True):
    """The newest version a client speaks, what it can do, and who it is."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The version the session will use, what the server can do, and who it is."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
