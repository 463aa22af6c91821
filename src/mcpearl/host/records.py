"""What a host shows of its servers: their states, changes, and what they offer."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from msgspec import Struct

from mcpearl.types.base import Implementation
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

ServerState = Literal["idle", "connecting", "ready", "down", "disabled", "invalid"]
"""`idle` is a server that is not needed yet; `invalid` one whose entry cannot be used."""
Kind = Literal["tools", "resources", "resource_templates", "prompts"]

T = TypeVar("T")


class ServerStatus(Struct, frozen=True, kw_only=True):
    """How one server of a host stands."""

    name: str
    """The server's name."""
    state: ServerState
    """What the connection is doing."""
    reason: str | None = None
    """Why there is no connection."""
    since: float = 0.0
    """When the state began, in seconds since 1970."""
    tries: int = 0
    """Attempts to connect that failed, since there was last a connection."""
    server_info: Implementation | None = None
    """Name and version, as the server introduced itself last."""
    protocol_version: str | None = None
    """The protocol version of the last connection."""


class HostChange(Struct, frozen=True):
    """A server of a host that changed its state, or what it offers."""

    server: str
    """The server's name."""
    what: Literal["state", "tools", "resources", "prompts", "added", "removed"]
    """What changed; `state` also when a server is back."""
    status: ServerStatus
    """How the server stands now."""


class HostTool(Tool, kw_only=True):
    """A tool of one of a host's servers; `name` is unique over all of them."""

    server: str
    """The server that has it."""
    own_name: str
    """Its name at that server."""


class HostPrompt(Prompt, kw_only=True):
    """A prompt of one of a host's servers; `name` is unique over all of them."""

    server: str
    """The server that has it."""
    own_name: str
    """Its name at that server."""


class HostResource(Resource, kw_only=True):
    """A resource of one of a host's servers."""

    server: str
    """The server that has it."""


class HostResourceTemplate(ResourceTemplate, kw_only=True):
    """A resource template of one of a host's servers."""

    server: str
    """The server that has it."""


class Offers(Sequence[T], Generic[T]):
    """What the servers of a host offer: a sequence, with the names of servers that are not in it.

    Args:
        items: What there is, server by server.
        missing: Why servers are not in it, by name.
    """

    def __init__(self, items: list[T], missing: dict[str, str]) -> None:
        self._items = items
        self.missing = missing
        """Servers whose part is not here, each with the reason."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        missing = f", without {', '.join(self.missing)}" if self.missing else ""
        return f"<{len(self._items)} offers{missing}>"
