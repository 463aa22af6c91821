"""What a host tells about its servers: their states, changes, and what they offer."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from msgspec import Struct

from mcpearl.types.base import Implementation
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

ServerState = Literal["idle", "connecting", "ready", "down", "disabled", "invalid"]
"""`idle`: the server is not needed yet; `invalid`: its entry cannot be used."""
OfferKind = Literal["tools", "resources", "resource_templates", "prompts"]

T = TypeVar("T")


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The status of one server of a host."""

    name: str
    """The server's name."""
    state: ServerState
    """The state of the connection."""
    reason: str | None = None
    """Why there is no connection."""
    since: float = 0.0
    """When the state began, in seconds since 1970."""
    tries: int = 0
    """Failed attempts to connect since the last connection."""
    server_info: Implementation | None = None
    """Name and version, as the server introduced itself last."""
    protocol_version: str | None = None
    """The protocol version of the last connection."""


class HostChange(Struct, frozen=True):
    """A server of a host that changed its state, or what it offers."""

    server: str
    """The server's name."""
    what: Literal["state", "tools", "resources", "prompts", "added", "removed"]
    """What changed; `state` also when a server is connected again."""
    status: ServerStatus
    """The server's status now."""


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
    """What the servers of a host offer: a sequence of items, and the servers that are missing from it.

    Args:
        items: The items, server by server.
        missing: The missing servers by name, each with the reason.
    """

    def __init__(self, items: list[T], missing: dict[str, str]) -> None:
        self._items = items
        self.missing = missing
        """Servers whose items are not in the sequence, each with the reason."""

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
