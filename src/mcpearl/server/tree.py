"""The supervision tree of a server: the bus, the functions in the background, the wires.

Parts that recover by themselves (the connections of upstreams, the process that writes receipts) are
shown in it. The tree exists while the server runs, on any wire. The table "Who restarts, what is lost" in
`docs/architecture.md` lists what is not in it, and what a failure of each part costs.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from mcpearl.runtime.child import Child, Restart
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.tree import Changes, Followers, Node, NodeChange

if TYPE_CHECKING:
    from mcpearl.stores.bus import Bus
    from mcpearl.stores.shared import SharedStore

_MARGIN = 5.0  # seconds that a supervisor adds to the time its parts have to stop
WATCHDOG = "watchdog of the event loop"
EXPORTER = "exporter"
DISPENSABLE = frozenset((WATCHDOG, EXPORTER))
"""Parts without which a server serves calls as well as with them."""


if TYPE_CHECKING:

    class ShownParts(Protocol):
        """Parts of a tree that recover by themselves, without a supervisor."""

        def nodes(self) -> Iterable[Node]:
            """Return them as they are now."""
            ...

        def kill(self, *path: str) -> bool:
            """End one as if it had failed; return False when none is up at this path."""
            ...
else:
    ShownParts = Any  # making a protocol takes time at each start


class ServerTree:
    """The parts of one server that live as long as it runs."""

    def __init__(self, name: str) -> None:
        self.root = Supervisor(name)
        self._background: list[Child] = []
        self._shown: list[ShownParts] = []
        self._followers = Followers()
        self.root.follow(self._followers.tell)
        self.crew: Callable[[], Node] | None = None
        """Returns the workers, in the parent of several; each of them has a tree of its own."""

    def tree(self) -> Node:
        """Return the parts as they are now."""
        tree = self.root.tree()
        if self.crew is not None:
            return replace(tree, state="running", children=(self.crew(),))
        if tree.state != "running":
            return tree
        more = (node for shown in self._shown for node in shown.nodes())
        return replace(tree, children=(*tree.children, *more))

    def show(self, shown: ShownParts) -> Callable[[], None]:
        """Include parts that recover by themselves in the tree; return a function that ends this."""
        self._shown.append(shown)
        return partial(self._shown.remove, shown)

    def kill(self, *path: str) -> bool:
        """End a part as if it had failed; return False when it is not running.

        Args:
            *path: The names from a child of the root down to the part.
        """
        return self.root.kill(*path) or any(shown.kill(*path) for shown in tuple(self._shown))

    # Changes

    def changes(self, limit: int) -> Changes:
        """Return an iterator over the changes from now on."""
        return self._followers.iterate(limit)

    def follow(self, callback: Callable[[NodeChange], None]) -> Callable[[], None]:
        """Call a function with every change; return a function that ends this."""
        return self._followers.call(callback)

    def worker_changed(self, node: Node) -> None:
        """Tell the followers in the parent of workers about one of them. Safe from any thread."""
        error = node.last_error if node.state == "waiting" else None
        path = (self.root.name, "workers", node.name)
        self._followers.tell(NodeChange(path, node.state, error))

    def forked(self) -> None:
        """Be the tree of a worker: the workers, and the loops that follow them, are the parent's."""
        self.crew = None
        self._followers.leave_to_parent()

    # Parts

    def add_background(
        self, run: Callable[[], Awaitable[Any]], name: str | None, restart: Restart, shutdown: float
    ) -> None:
        """Run a coroutine function while the server runs."""
        if self.root.tree().state == "running":
            raise RuntimeError("a function in the background is registered before the server runs")
        name = name or str(getattr(run, "__name__", type(run).__name__))
        if any(child.name == name for child in self._background):
            raise ValueError(f"there is a function in the background named {name!r} already")
        self._background.append(Child(name, run, restart=restart, shutdown=shutdown))

    async def start(self, bus: "Bus", missed: Callable[[], None]) -> None:
        """Start what handlers rely on; `missed` is called when the bus may have lost messages."""
        await self.root.start()
        try:
            await self.root.add(Child("bus", BusPart(bus, missed)))
        except BaseException:
            await self.root.stop()
            raise

    async def add_store(self, store: "SharedStore", **beside: Callable[[], Awaitable[Any]]) -> None:
        """Watch over a store that the server shares with other processes.

        Args:
            store: The store.
            **beside: What else has to run while the server shares it.
        """
        for name, run in {**store.parts(), **beside}.items():
            await self.root.add(Child(name, run))

    async def start_background(self) -> None:
        """Start the functions in the background: the lifespan has been entered."""
        if self._background:
            shutdown = sum(child.shutdown for child in self._background) + _MARGIN
            below = Supervisor("background", self._background)
            await self.root.add(Child("background", below, shutdown=shutdown, escalates=True))

    async def stop_background(self) -> None:
        """Stop them: the lifespan is about to be left."""
        await self.root.remove("background")

    async def add_wires(self, wires: Supervisor, shutdown: float) -> str:
        """Start wires, and return the name under which they are in the tree."""
        name, number = "wires", 1
        while name in self.root:
            number += 1
            name = f"wires {number}"
        shutdown += _MARGIN
        await self.root.add(
            Child(name, wires, restart="transient", shutdown=shutdown, escalates=True)
        )
        return name


class BusPart:
    """The bus as a part of the tree."""

    def __init__(self, bus: "Bus", missed: Callable[[], None]) -> None:
        self._bus = bus
        self._missed = missed
        self._was_up = False

    async def start(self) -> None:
        """Join the bus. After a failure, report that messages published meanwhile were missed."""
        await self._bus.start()
        if self._was_up:
            self._missed()
        self._was_up = True

    async def ended(self) -> None:
        """Wait until the bus fails."""
        await self._bus.ended()

    async def stop(self) -> None:
        """Leave the bus."""
        await self._bus.close()
