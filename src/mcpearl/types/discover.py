"""Discover: what a server is and can do, asked without a session, from 2026-07-28."""

from mcpearl.types.base import CacheableResult
from mcpearl.types.capabilities import ServerCapabilities


class DiscoverResult(CacheableResult, kw_only=True):
    """The versions a server speaks, what it can do, and how a model should use it."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
