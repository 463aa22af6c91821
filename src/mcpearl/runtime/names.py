"""Names: what is found by name or by property, for as long as its owner holds it.

An owner is anything that lives and ends: a task, a connection, a child of a supervisor. It holds
names, each of which is its alone, and has properties, which it shares with others. Both go when it
goes. Every operation takes the same time however many names there are.

`Names` is what this process knows. `Directory` is what several machines agree on.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

logger = logging.getLogger("mcpearl.names")

Watcher = Callable[[Hashable, Any], None]


class NameTaken(KeyError):
    """Another owner holds this name."""

    def __init__(self, name: Hashable, owner: Any) -> None:
        super().__init__(name)
        self.owner = owner

    def __str__(self) -> str:
        return f"the name {self.args[0]!r} is held by {self.owner!r}"


class Directory(Protocol):
    """Names that several machines share: which of them lives where.

    Over a store such as Redis, `claim` is a write that succeeds once, renewed while its owner lives,
    and `machine_of` a read.
    """

    async def claim(self, name: Hashable, owner: Any) -> None:
        """Hold a name against the owners of all machines; raises `NameTaken`."""
        ...

    async def machine_of(self, name: Hashable) -> str | None:
        """Return the machine on which a name is held, or None."""
        ...

    def let_go(self, owner: Any) -> None:
        """Give up every name and property of an owner."""
        ...


class _Held:
    """What one owner has."""

    __slots__ = ("names", "properties")

    def __init__(self) -> None:
        self.names: dict[Hashable, None] = {}
        self.properties: dict[Hashable, None] = {}


class Names:
    """The names and properties of one process, and a `Directory` of this machine alone.

    >>> names = Names()
    >>> names.hold("session 7", connection)
    >>> names.lookup("session 7") is connection
    True

    Args:
        machine: What `machine_of` calls this machine; its host name by default.
    """

    __slots__ = ("_holders", "_machine", "_names", "_owners", "_watchers")

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine
        self._names: dict[Hashable, Any] = {}  # name → owner
        self._owners: dict[Any, _Held] = {}
        self._holders: dict[Hashable, dict[Any, None]] = {}  # property → its owners
        self._watchers: dict[Hashable, list[Watcher]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._names

    # Holding

    def hold(self, name: Hashable, owner: Any) -> None:
        """Have a name found as this owner, until it goes.

        Args:
            name: Anything hashable.
            owner: A task, which goes when it is done; or anything else, until `let_go`.

        Raises:
            NameTaken: Another owner holds it.
        """
        holder = self._names.get(name)
        if holder is owner and holder is not None:
            return
        if name in self._names:
            raise NameTaken(name, holder)
        self._of(owner).names[name] = None
        self._names[name] = owner
        if self._watchers:
            self._tell(name, owner)

    def mark(self, owner: Any, property: Hashable) -> None:
        """Give an owner a property, until it goes.

        Args:
            owner: The owner.
            property: Anything hashable.
        """
        self._of(owner).properties[property] = None
        self._holders.setdefault(property, {})[owner] = None

    def _of(self, owner: Any) -> _Held:
        held = self._owners.get(owner)
        if held is None:
            held = self._owners[owner] = _Held()
            if isinstance(owner, asyncio.Future):
                owner.add_done_callback(self.let_go)
        return held

    def release(self, name: Hashable) -> None:
        """Give up one name.

        Args:
            name: The name; one that is not held is passed over.
        """
        owner = self._names.pop(name, None)
        if owner is not None:
            held = self._owners[owner]
            del held.names[name]
            if not held.names and not held.properties:
                del self._owners[owner]
            if self._watchers:
                self._tell(name, None)

    def let_go(self, owner: Any) -> None:
        """Give up every name and property of an owner.

        Args:
            owner: The owner; one that has nothing is passed over.
        """
        held = self._owners.pop(owner, None)
        if held is None:
            return
        for property in held.properties:
            holders = self._holders[property]
            del holders[owner]
            if not holders:
                del self._holders[property]
        for name in held.names:
            del self._names[name]
        if self._watchers:
            for name in held.names:
                self._tell(name, None)

    # Finding

    def lookup(self, name: Hashable) -> Any:
        """Return the owner of a name, or None.

        Args:
            name: The name.
        """
        return self._names.get(name)

    def where(self, property: Hashable) -> Iterator[Any]:
        """Iterate over the owners that have a property, in the order in which they got it.

        Args:
            property: The property.
        """
        return iter(tuple(self._holders.get(property, ())))

    def count(self, property: Hashable) -> int:
        """Return how many owners have a property.

        Args:
            property: The property.
        """
        return len(self._holders.get(property, ()))

    def watch(self, name: Hashable, watcher: Watcher) -> Callable[[], None]:
        """Call a function whenever a name gets an owner or loses it; return a function that ends this.

        Args:
            name: The name; it need not be held.
            watcher: Called with the name and its owner, or None when it was given up.
        """
        watchers = self._watchers.setdefault(name, [])
        watchers.append(watcher)

        def unwatch() -> None:
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]

        return unwatch

    def _tell(self, name: Hashable, owner: Any) -> None:
        for watcher in tuple(self._watchers.get(name, ())):
            try:
                watcher(name, owner)
            except Exception:
                logger.exception("a watcher of the name %r failed", name)

    # As a directory

    async def claim(self, name: Hashable, owner: Any) -> None:
        """Hold a name: on a single machine that is all there is to it.

        Args:
            name: Anything hashable.
            owner: As for `hold`.
        """
        self.hold(name, owner)

    async def machine_of(self, name: Hashable) -> str | None:
        """Return this machine if the name is held, else None.

        Args:
            name: The name.
        """
        if name not in self._names:
            return None
        return self._machine or socket.gethostname()
