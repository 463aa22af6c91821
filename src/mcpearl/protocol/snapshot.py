"""What client and server agreed on in a legacy session, as a value that can be stored."""

from msgspec import Struct, field

from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import ClientCapabilities


class EndSnapshot(Struct, frozen=True):
    """The lasting state of a server's end. Requests in flight are not part of it."""

    version: str
    client: Implementation | None = None
    capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)
    log_level: str | None = None
    ready: bool = True
    """Whether the client has sent `notifications/initialized`."""
