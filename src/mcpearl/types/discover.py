"""Discover: what a server is and supports, requested without a session (from 2026-07-28)."""

from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.pages import CacheableResult


class DiscoverResult(CacheableResult, kw_only=True):
    """The server's versions, capabilities, and instructions for models."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
