"""The protocol versions and what differs between them, as one table.

Nothing outside this package compares version strings: it asks the `Version` row. Which members of
which message exist in a version stands beside it, in `fields`; which methods, in `types.methods`.
"""

from typing import Literal

from msgspec import Struct

from mcpearl.protocol.errors import McpError, brief
from mcpearl.types.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

Era = Literal["legacy", "modern"]


class Version(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    modern: bool = False
    """Requests carry their own context, and there is no session."""
    index: int
    """Position in time; later versions have larger ones."""
    batches: bool = False
    """JSON-RPC batches exist."""
    arguments_as_result: bool = False
    """Arguments that do not fit a tool are an `isError` result instead of an error answer."""
    resource_not_found: int = RESOURCE_NOT_FOUND
    """The code for an unknown resource."""
    url_elicitation_error: bool = False
    """-32042 exists."""
    announces_completions: bool = True
    """There is a capability to announce completion with."""
    primes_streams: bool = False
    """An HTTP stream of events begins with an empty one, whose id a reader can come back with."""

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
"""What an HTTP request without a version header speaks."""
SUPPORTED = tuple(reversed(VERSIONS))
"""Every version, newest first, as `server/discover` lists them."""


def negotiate(requested: str, supported: tuple[str, ...] = LEGACY_VERSIONS) -> Version:
    """Pick the version an `initialize` is answered with: the client's if known, else our newest."""
    return VERSIONS[requested if requested in supported else supported[-1]]


def unsupported(requested: str, supported: tuple[str, ...] = SUPPORTED) -> McpError:
    """Make the modern answer to a version this side does not speak."""
    shown = brief(requested, 64)
    return McpError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version: {shown}",
        {"supported": list(supported), "requested": shown},
    )


def common(offered: list[str], wanted: tuple[str, ...] = SUPPORTED) -> Version | None:
    """Pick the newest version both sides speak, from a peer's list; None when there is none."""
    return next((VERSIONS[name] for name in wanted if name in offered), None)
