"""A supervision tree as it is at one moment, and how its changes are followed."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from mcpearl.runtime.feed import Audience, Feed

State = Literal["starting", "running", "waiting", "stopping", "ended", "failed"]
"""`waiting`: the part has ended and will be restarted. `failed`: it will not be restarted."""


class Node(Struct, frozen=True, kw_only=True):
    """One part of a tree, as it is at one moment."""

    name: str
    """Its name, unique among its siblings."""
    state: State
    """What it is doing."""
    restarts: int = 0
    """How often it was started again."""
    last_error: str | None = None
    """Why it last ended, if that was a failure."""
    uptime: float = 0.0
    """Seconds since it last started; 0 while it is not running, and for parts not started separately."""
    children: "tuple[Node, ...]" = ()
    """The parts it supervises, in the order in which they start."""
    fleeting: bool = False
    """Whether calls or clients make it come and go. Metrics have no series of such a part."""

    def find(self, *path: str) -> "Node | None":
        """Return the part at a path of names below this one, or None.

        Args:
            *path: Names, from a child of this part downwards.
        """
        found: Node | None = self
        for name in path:
            if found is not None:
                found = next((each for each in found.children if each.name == name), None)
        return found

    def walk(self, above: tuple[str, ...] = ()) -> "Iterator[tuple[tuple[str, ...], Node]]":
        """Yield every part below this one with its path.

        Args:
            above: Path of this part, which the paths begin with.
        """
        for child in self.children:
            path = (*above, child.name)
            yield path, child
            yield from child.walk(path)

    def __str__(self) -> str:
        lines = [_line(self)]
        lines += ["  " * len(path) + _line(node) for path, node in self.walk()]
        return "\n".join(lines)


def _line(node: Node) -> str:
    text = f"{node.name}: {node.state}"
    if node.state == "running" and node.uptime:
        text += f" for {node.uptime:.1f} s"
    if node.restarts:
        text += f", restarted {node.restarts} times"
    return text if node.last_error is None else f"{text} ({node.last_error})"


class NodeChange(Struct, frozen=True):
    """A change of the state of one part of a tree."""

    path: tuple[str, ...]
    """The name of the part, after the names of the supervisors above it."""
    state: State
    """The state it is in now."""
    error: str | None = None
    """Why it ended, if that was a failure."""


Changes = Feed[NodeChange]
"""The changes of a tree, one after the other; use it with `async for`, and `close` it."""

Followers = Audience[NodeChange]
"""The followers of one tree's changes."""
