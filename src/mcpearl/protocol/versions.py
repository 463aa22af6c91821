"""The protocol versions and how they differ, as one table.

Code outside this package does not compare version strings: it asks the `Version` row. Which members a
version has is in `fields`, which methods in `types.methods`. The legacy era are the versions with
sessions, the modern era those in which every request is self-contained.
"""

from typing import Literal

from msgspec import Struct

from mcpearl.protocol.errors import McpError, brief
from mcpearl.types.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

Era = Literal["legacy", "modern"]


class Version(Struct, frozen=True, kw_only=True):
    """One row of the table of versions."""

    name: str
    modern: bool = False
    """Requests carry their own context, and there is no session."""
    index: int
    """Position in time; later versions have a larger index."""
    batches: bool = False
    """Whether JSON-RPC batches exist."""
    arguments_as_result: bool = False
    """Whether wrong tool arguments are answered with an `isError` result instead of an error."""
    resource_not_found: int = RESOURCE_NOT_FOUND
    """The error code for an unknown resource."""
    url_elicitation_error: bool = False
    """Whether the error -32042 exists."""
    announces_completions: bool = True
    """Whether there is a capability for completion."""
    primes_streams: bool = False
    """Whether an HTTP event stream begins with an empty event, whose id allows resuming."""

    @property
    def era(self) -> Era:
        """`modern` where requests carry their own context, `legacy` where there is a session."""
        return "modern" if self.modern else "legacy"


# fmt: off
_TABLE = (
    Version(name="2024-11-05", index=0, announces_completions=False),
    Version(name="2025-03-26", index=1, batches=True),
    Version(name="2025-06-18", index=2),
    Version(name="2025-11-25", index=3, arguments_as_result=True,
            url_elicitation_error=True, primes_streams=True),
    Version(name="2026-07-28", modern=True, index=4, arguments_as_result=True,
            resource_not_found=INVALID_PARAMS),
)
# fmt: on

VERSIONS: dict[str, Version] = {version.name: version for version in _TABLE}
LEGACY_VERSIONS = tuple(version.name for version in _TABLE if not version.modern)
MODERN_VERSIONS = tuple(version.name for version in _TABLE if version.modern)
NEWEST = _TABLE[-1]
NEWEST_LEGACY = VERSIONS[LEGACY_VERSIONS[-1]]
UNNAMED = VERSIONS["2025-03-26"]
"""The version of an HTTP request without a version header."""
SUPPORTED = tuple(reversed(VERSIONS))
"""Every version, newest first, as `server/discover` lists them."""


def negotiate(requested: str, supported: tuple[str, ...] = LEGACY_VERSIONS) -> Version:
    """Return the version to answer `initialize` with: the client's if supported, else our newest."""
    return VERSIONS[requested if requested in supported else supported[-1]]


def unsupported(requested: str, supported: tuple[str, ...] = SUPPORTED) -> McpError:
    """Return the error for a version that this side does not support."""
    shown = brief(requested, 64)
    return McpError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version: {shown}",
        {"supported": list(supported), "requested": shown},
    )


def common(offered: list[str], wanted: tuple[str, ...] = SUPPORTED) -> Version | None:
    """Return the newest version in both lists, or None if there is none."""
    return next((VERSIONS[name] for name in wanted if name in offered), None)
