"""The data that errors of MCP carry."""

from mcpearl.types.base import Wire
from mcpearl.types.capabilities import ClientCapabilities


class UnsupportedProtocolVersionData(Wire, kw_only=True):
    """Data of UNSUPPORTED_PROTOCOL_VERSION: the requested version and the supported ones."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(Wire, kw_only=True):
    """Data of MISSING_REQUIRED_CLIENT_CAPABILITY: the capabilities the client has to declare."""

    required_capabilities: ClientCapabilities
