"""The upstreams of a server by name, as `Names` asks for them."""

from typing import Any

from mcpearl.runtime.tree import Node
from mcpearl.server.composition.mount import Mount


class Upstreams:
    """The parts of a server that are reached over a connection.

    Args:
        mounts: The parts by name.
    """

    __slots__ = ("_mounts",)

    def __init__(self, mounts: dict[str, Mount]) -> None:
        self._mounts = mounts

    def get(self, name: str) -> Any:
        """Return an upstream by the name it is mounted under."""
        mount = self._mounts.get(name)
        return mount.part if mount is not None and mount.part.is_upstream else None

    def values(self) -> list[Any]:
        """Return all upstreams."""
        return [mount.part for mount in self._mounts.values() if mount.part.is_upstream]

    def nodes(self) -> tuple[Node, ...]:
        """Return their connections as parts of a tree."""
        found = tuple(each.node() for each in self.values())
        return (Node(name="upstreams", state="running", children=found),) if found else ()

    def kill(self, *path: str) -> bool:
        """End a connection, or another part of an upstream, as if it had failed."""
        upstream = self.get(path[1]) if path[0] == "upstreams" and len(path) in (2, 3) else None
        return upstream is not None and upstream.kill(*path[2:])

    def __len__(self) -> int:
        return len(self.values())
