"""What can be mounted in a server: another server of this process, a handler, or a remote server.

A `Part` answers calls as a dispatcher does, and is started and stopped. Servers at addresses and server
processes are parts too; `mcpearl.gateway` makes them, since it knows clients.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, UnsetType

from mcpearl.runtime import doors
from mcpearl.server.context import Context
from mcpearl.server.dispatch import Answering, Dispatch, Dispatcher, HandlerDispatcher
from mcpearl.server.handler import Handler
from mcpearl.server.registry.registry import Registry
from mcpearl.stores.bus import Bus
from mcpearl.types.capabilities import TASKS_EXTENSION
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore
    from mcpearl.server.server import Server
    from mcpearl.server.tasks.options import Tasks


ToolFunction = Callable[[Raw | UnsetType, Context], Answering]
"""Runs one tool with raw arguments."""


class Enclosing(Protocol):
    """The outer server, as a server mounted in it sees it. Safe from any thread."""

    def list_changed(self, kind: str) -> None:
        """Note that the lists of a kind changed: `tools`, `prompts`, `resources`, `completions`."""
        ...

    def entrance_changed(self) -> None:
        """Note that something else than before answers the server's calls."""
        ...

    def resource_updated(self, uri: str) -> None:
        """Note that a resource changed."""
        ...

    def failed(self, error: BaseException) -> None:
        """Note that the server's lifespan ended by itself. Called on the event loop of the server."""
        ...

    def is_followed(self, uri: str) -> bool:
        """Whether a client is subscribed to a resource."""
        ...

    @property
    def bus(self) -> Bus:
        """What connects the processes of the server."""
        ...

    @property
    def core(self) -> "ServerCore":
        """What the server's connections share."""
        ...


class Catalog(Protocol):
    """What a part offers, as far as that is known without asking it; None where it is not."""

    def tools(self) -> Sequence[Tool] | None:
        """Return the tools."""
        ...

    def prompts(self) -> Sequence[Prompt] | None:
        """Return the prompts."""
        ...

    def resources(self) -> Sequence[Resource] | None:
        """Return the resources."""
        ...

    def templates(self) -> Sequence[ResourceTemplate] | None:
        """Return the resource templates."""
        ...


class Entrance(Protocol):
    """Where the calls of a part go in."""

    @property
    def dispatch(self) -> Dispatch:
        """The function that currently answers calls, with the part's own middleware around it."""
        ...


class Part(Protocol):
    """Something mounted in a server."""

    @property
    def dispatcher(self) -> Dispatcher:
        """The part's current dispatcher, which knows capabilities, scopes and methods."""
        ...

    @property
    def entrance(self) -> Entrance:
        """What answers calls; it stays the same as long as the part is mounted."""
        ...

    @property
    def catalog(self) -> Catalog:
        """What the part offers, as far as that is known."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it may have more than its catalog says: names it does not list are passed to it."""
        ...

    @property
    def reads_raw(self) -> bool:
        """Whether it looks at `Call.raw`, which then has to have its own names too."""
        ...

    @property
    def is_upstream(self) -> bool:
        """Whether it is a server that is reached over a connection."""
        ...

    def core(self, outer: "ServerCore") -> "ServerCore":
        """Return the core for contexts inside the part."""
        ...

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Keep the part running inside the block."""
        ...

    def join(self, outer: Enclosing) -> None:
        """Report changes to an outer server from now on."""
        ...

    def leave(self, outer: Enclosing) -> None:
        """Report no more changes."""
        ...

    def upstream_states(self) -> Iterable[str]:
        """Return the state of each connection to a remote server that the part has."""
        ...

    def tool_function(self, name: str) -> ToolFunction | None:
        """Return what runs a tool, if a call comes to it with nothing else in between; None otherwise.

        Asked again when the tools change, or what is in front of them.
        """
        ...

    def at_once(self, name: str) -> bool:
        """Whether that function returns without waiting; see `Dispatcher.at_once`."""
        ...

    def tasks_of(self, name: str) -> "Tasks | None":
        """Return how a tool runs as a task of the outer server; None for one that does not."""
        ...

    @property
    def tasked(self) -> bool:
        """Whether a tool can run as a task of the outer server."""
        ...


class ReachPart(Protocol):
    """Makes a part for a remote server, from its address or command; behind the door `server.mount`."""

    def __call__(self, name: str, other: Any) -> Part:
        """Return the part. Raises `TypeError` or `ValueError` if it does not name a server."""
        ...


class RegistryCatalog:
    """The catalog of the registry behind a server's decorators."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self) -> list[Tool]:
        """Return the tools."""
        return [entry.definition for entry in self._registry.tools.values()]

    def prompts(self) -> list[Prompt]:
        """Return the prompts."""
        return [entry.definition for entry in self._registry.prompts.values()]

    def resources(self) -> list[Resource]:
        """Return the resources."""
        return [entry.definition for entry in self._registry.resources.values()]

    def templates(self) -> list[ResourceTemplate]:
        """Return the resource templates."""
        return [entry.definition for entry in self._registry.templates.values()]


class UnknownCatalog:
    """The catalog of a handler, which may offer different things to each caller."""

    def tools(self) -> None:
        """Return None: only the handler knows."""

    def prompts(self) -> None:
        """Return None: only the handler knows."""

    def resources(self) -> None:
        """Return None: only the handler knows."""

    def templates(self) -> None:
        """Return None: only the handler knows."""


class ServerPart:
    """Another server of this process."""

    is_open = False
    is_upstream = False

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.entrance: Entrance = self
        self.reads_raw = not isinstance(server.handler, Handler)

    @property
    def dispatch(self) -> Dispatch:
        """The function that answers calls, with the middleware and limits of the server around it.

        The server's observer has no part in it: only that of the outer server sees a call begin and end.
        """
        return self._server.core.mounted

    @property
    def dispatcher(self) -> Dispatcher:
        """The server's dispatcher."""
        return self._server.core.dispatcher

    @property
    def catalog(self) -> Catalog:
        """The server's registry, and what is mounted in it."""
        return self._server.catalog

    def core(self, outer: "ServerCore") -> "ServerCore":
        """Return the mounted server's core."""
        return self._server.core

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Hold the server up, with its lifespan."""
        return self._server.running()

    def join(self, outer: Enclosing) -> None:
        """Report what changes in the server."""
        self._server.core.enclosing.append(outer)

    def leave(self, outer: Enclosing) -> None:
        """Stop reporting."""
        self._server.core.enclosing.remove(outer)

    def upstream_states(self) -> Iterable[str]:
        """Return the states of the remote servers that are mounted in the server."""
        return self._server.upstream_states()

    def tool_function(self, name: str) -> ToolFunction | None:
        """Return the registered function, unless it needs scopes, or something is in front of it."""
        dispatcher = self.dispatcher
        if not isinstance(dispatcher, HandlerDispatcher) or self.dispatch != dispatcher.dispatch:
            return None
        registry = dispatcher.handler
        entry = registry.compiled_tool(name) if isinstance(registry, Registry) else None
        return None if entry is None or entry.scopes else entry.call

    def at_once(self, name: str) -> bool:
        """Whether the registered function returns without waiting."""
        return name in self.dispatcher.at_once

    def tasks_of(self, name: str) -> "Tasks | None":
        """Return how a tool of the server runs as a task."""
        return self._server.tools_known.tasks_of(name)

    @property
    def tasked(self) -> bool:
        """Whether a tool of the server can be a task."""
        return TASKS_EXTENSION in (self.dispatcher.capabilities().extensions or ())


class HandlerPart:
    """A handler, or a dispatcher, without a server of its own."""

    is_open = True
    is_upstream = False
    catalog: Catalog = UnknownCatalog()

    def __init__(self, handler: Handler | Dispatcher) -> None:
        self._handler = handler
        self.dispatcher: Dispatcher = (
            HandlerDispatcher(handler) if isinstance(handler, Handler) else handler
        )
        self.entrance: Entrance = self.dispatcher
        self.reads_raw = not isinstance(handler, Handler)

    def core(self, outer: "ServerCore") -> "ServerCore":
        """Return the outer server's core."""
        return outer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing: a handler has no lifespan."""
        yield

    def join(self, outer: Enclosing) -> None:
        """Do nothing: a handler reports through `Server.notify_list_changed`."""

    def leave(self, outer: Enclosing) -> None:
        """Do nothing."""

    def upstream_states(self) -> Iterable[str]:
        """Return nothing: connections of a handler are its own."""
        return ()

    def tool_function(self, name: str) -> None:
        """Return None: the handler sees every call."""

    def at_once(self, name: str) -> bool:
        """Return False: the handler may wait."""
        return False

    def tasks_of(self, name: str) -> "Tasks | None":
        """Return how a tool of the handler runs as a task."""
        return self._handler.tasks_of(name) if isinstance(self._handler, Handler) else None

    @property
    def tasked(self) -> bool:
        """Whether a tool of the handler can be a task."""
        return isinstance(self._handler, Handler) and self._handler.tasked


def part_of(name: str, other: Any) -> Part:
    """Return the part for what is mounted; the gateway makes those outside of this process.

    Raises:
        TypeError: It cannot be mounted.
    """
    if hasattr(other, "core") and hasattr(other, "running"):
        return ServerPart(other)
    if isinstance(other, Handler):
        return HandlerPart(other)
    if hasattr(other, "dispatcher") and hasattr(other, "catalog"):
        made: Part = other
        return made
    if hasattr(other, "dispatch") and hasattr(other, "capabilities"):
        return HandlerPart(other)
    # The layer above has clients; a server without remote parts does not load it.
    reach: ReachPart = doors.behind("server.mount")
    return reach(name, other)
