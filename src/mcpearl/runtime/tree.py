"""What a supervision tree looks like at a moment, and how its changes are followed."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

logger = logging.getLogger("mcpearl.supervisor")

State = Literal["starting", "running", "waiting", "stopping", "ended", "failed"]
"""`waiting` is a child between its end and its restart; `failed` one that is not restarted any more."""


class Node(Struct, frozen=True, kw_only=True):
    """One part of a tree, as it is at a moment."""

    name: str
    """Its name, unique among its siblings."""
    state: State
    """What it is doing."""
    restarts: int = 0
    """How often it was started again."""
    last_error: str | None = None
    """Why it last ended, if that was a failure."""
    uptime: float = 0.0
    """Seconds since it last came up; 0 while it is down."""
    children: "tuple[Node, ...]" = ()
    """The parts it supervises, in the order in which they start."""

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
    if node.state == "running":
        text += f" for {node.uptime:.1f} s"
    if node.restarts:
        text += f", restarted {node.restarts} times"
    return text if node.last_error is None else f"{text} ({node.last_error})"


class Change(Struct, frozen=True):
    """A part of a tree that changed its state."""

    path: tuple[str, ...]
    """Its name, after the names of the supervisors above it."""
    state: State
    """The state it is in now."""
    error: str | None = None
    """Why it ended, if that was a failure."""


class Changes:
    """The changes of a tree, one after the other; use it with `async for`, and `close` it.

    Changes that are not taken in time wait up to a bound; then the oldest are dropped.

    Args:
        limit: How many changes may wait.
        closed: Called when no more changes are taken.
    """

    def __init__(self, limit: int, closed: "Callable[[Changes], None]") -> None:
        self.missed = 0
        """How many changes were dropped because they were not taken in time."""
        self._waiting: deque[Change] = deque(maxlen=limit)
        self._closed: Callable[[Changes], None] | None = closed
        self._news = asyncio.Event()

    def put(self, change: Change) -> None:
        """Add a change."""
        if len(self._waiting) == self._waiting.maxlen:
            self.missed += 1
        self._waiting.append(change)
        self._news.set()

    def close(self) -> None:
        """Take no more changes."""
        if self._closed is not None:
            self._closed(self)
            self._closed = None
            self._news.set()

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            if self._closed is None:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()


class Followers:
    """Those who follow the changes of one tree: callbacks, and iterators over changes."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[Change], None]] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def call(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call a function with every change; return a function that ends this."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    def iterate(self, limit: int) -> Changes:
        """Return an iterator over the changes from now on."""
        changes = Changes(limit, lambda each: self._callbacks.pop(each, None) and None)
        self._callbacks[changes] = changes.put
        return changes

    def tell(self, change: Change) -> None:
        """Tell all of them; a callback that raises is logged."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback(change)
            except Exception:
                logger.exception("a follower of the tree failed")
