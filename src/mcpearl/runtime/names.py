"""Names: a registry in which running things are found by name or by property.

An owner is anything that exists for a while: a task, a connection, a child of a supervisor. It holds
names, which no other owner may hold at the same time, and has properties, which others may have too. When
the owner ends, both are released. Every operation takes the same time however many names there are.

Some parts of the program keep things by key anyway, such as sessions by id. These things form a kind:
their names are `(kind, key)`, and the lookup asks the part that keeps them (`serve`). They are not kept
twice.

`Names` is what this process knows. `Directory` is what several machines agree on.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Hashable, Iterable, Iterator
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
    """Names that several machines share, and the machine on which each is held.

    Over a store such as Redis, `claim` is a write that succeeds once and is renewed while its owner
    exists, and `machine_of` is a read.
    """

    async def claim(self, name: Hashable, owner: Any) -> None:
        """Hold a name against the owners of all machines; raises `NameTaken`."""
        ...

    async def machine_of(self, name: Hashable) -> str | None:
        """Return the machine on which a name is held, or None."""
        ...

    def let_go(self, owner: Any) -> None:
        """Release every name of an owner."""
        ...


class Members(Protocol):
    """All things of one kind, by key; for example a dictionary."""

    def get(self, key: Any, /) -> Any:
        """Return the thing with this key, or None."""
        ...

    def values(self) -> Iterable[Any]:
        """Return all things of the kind."""
        ...

    def __len__(self) -> int: ...


class _Holdings:
    """The names and properties of one owner."""

    __slots__ = ("claimed", "names", "properties")

    def __init__(self) -> None:
        self.claimed = False  # whether any of the names is in the directory
        self.names: dict[Hashable, None] = {}
        self.properties: dict[Hashable, None] = {}


class Names:
    """The names and properties of one process; also a `Directory` for this machine alone.

    >>> names = Names()
    >>> names.hold("session 7", connection)
    >>> names.lookup("session 7") is connection
    True

    Args:
        machine: What `machine_of` calls this machine; its host name by default.
    """

    __slots__ = ("_holders", "_kinds", "_machine", "_names", "_owners", "_watchers", "directory")

    def __init__(self, machine: str | None = None) -> None:
        self._machine = machine
        self._names: dict[Hashable, Any] = {}  # name → owner
        self._owners: dict[Any, _Holdings] = {}
        self._holders: dict[Hashable, dict[Any, None]] = {}  # property → its owners
        self._kinds: dict[Hashable, Members] = {}
        self._watchers: dict[Hashable, list[Watcher]] = {}
        self.directory: Directory | None = None
        """The names of all machines, if there are several."""

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Hashable) -> bool:
        return self.lookup(name) is not None

    # Holding

    def hold(self, name: Hashable, owner: Any) -> None:
        """Give an owner a name, until the owner ends.

        Args:
            name: Anything hashable.
            owner: An asyncio task, whose names are released when it is done; or any other object, whose
                names are held until `let_go`.

        Raises:
            NameTaken: Another owner holds the name.
            ValueError: The name belongs to a kind, so another part of the program provides it.
        """
        if type(name) is tuple and self._kind_of(name) is not None:
            raise ValueError(f"{name!r} cannot be held: it is the name of a {name[0]}")
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
        """Give an owner a property, until the owner ends.

        Args:
            owner: The owner.
            property: Anything hashable.
        """
        self._of(owner).properties[property] = None
        self._holders.setdefault(property, {})[owner] = None

    def _of(self, owner: Any) -> _Holdings:
        held = self._owners.get(owner)
        if held is None:
            held = self._owners[owner] = _Holdings()
            if isinstance(owner, asyncio.Future):
                owner.add_done_callback(self.let_go)
        return held

    def release(self, name: Hashable) -> None:
        """Release one name.

        Args:
            name: The name; nothing happens if it is not held.
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
        """Release every name and property of an owner.

        Args:
            owner: The owner; nothing happens if it has no names and properties.
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
        if held.claimed and self.directory is not None:
            self.directory.let_go(owner)

    # Kinds

    def serve(self, kind: str, members: Members) -> None:
        """Look up names `(kind, key)` in the part of the program that keeps the things of this kind.

        Args:
            kind: The kind, such as `session`; it is also a property of all its things.
            members: Finds the things; replaces what was passed for this kind before.
        """
        self._kinds[kind] = members

    def changed(self, kind: str, key: Hashable, owner: Any) -> None:
        """Tell watchers that a thing of some kind was added or is gone.

        Args:
            kind: The kind.
            key: The key of the thing.
            owner: The thing, which is now found by its name; None when it is gone.
        """
        if self._watchers:
            self._tell((kind, key), owner)

    def _kind_of(self, name: Hashable) -> Hashable:
        is_pair = type(name) is tuple and len(name) == 2
        kind: Hashable = name[0] if is_pair else None  # type: ignore[index]
        return kind if kind in self._kinds else None

    # Finding

    def lookup(self, name: Hashable) -> Any:
        """Return the owner of a name, or None.

        Args:
            name: The name.
        """
        found = self._names.get(name)
        if found is None and type(name) is tuple and len(name) == 2:
            members = self._kinds.get(name[0])
            return None if members is None else members.get(name[1])
        return found

    def where(self, property: Hashable) -> Iterator[Any]:
        """Iterate over the owners that have a property, in the order in which they got it.

        Args:
            property: The property, or a kind.
        """
        members = self._kinds.get(property)
        of_kind = () if members is None else tuple(members.values())
        return iter((*self._holders.get(property, ()), *of_kind))

    def count(self, property: Hashable) -> int:
        """Return how many owners have a property.

        Args:
            property: The property, or a kind.
        """
        return len(self._holders.get(property, ())) + len(self._kinds.get(property, ()))

    def watch(self, name: Hashable, watcher: Watcher) -> Callable[[], None]:
        """Call a function whenever a name gets an owner or loses it; return a function that ends this.

        Args:
            name: The name, which need not be held yet; or a kind, for all names of that kind.
            watcher: Called with the name and its owner, or None when it was released.
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
        watchers = (*self._watchers.get(name, ()), *self._watchers.get(self._kind_of(name), ()))
        for watcher in watchers:
            try:
                watcher(name, owner)
            except Exception:
                logger.exception("a watcher of the name %r failed", name)

    # As a directory

    async def claim(self, name: Hashable, owner: Any) -> None:
        """Hold a name against the owners of all machines; without a directory, of this process only.

        Args:
            name: Anything hashable; with a directory, text, a number, or a tuple of such.
            owner: As for `hold`.

        Raises:
            NameTaken: Another owner holds it.
        """
        if self.directory is not None and self._names.get(name) is not owner:
            if name in self._names:
                raise NameTaken(name, self._names[name])
            await self.directory.claim(name, owner)
        self.hold(name, owner)
        self._owners[owner].claimed = self.directory is not None

    async def machine_of(self, name: Hashable) -> str | None:
        """Return the machine on which a name is held, or None.

        Args:
            name: The name.
        """
        if name in self:
            return self._machine or socket.gethostname()
        return None if self.directory is None else await self.directory.machine_of(name)
