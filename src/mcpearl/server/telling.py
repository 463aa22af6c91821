"""Notifications between a server and its clients, and functions for sessions that begin."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from mcpearl.runtime.coalesce import Coalescer
from mcpearl.server.attendants import NoticeListener, SessionListener
from mcpearl.server.broadcast import Broadcast
from mcpearl.server.core import ServerCore
from mcpearl.server.lifespan import Uptime
from mcpearl.server.registering import Registering

if TYPE_CHECKING:
    from mcpearl.server.composition.composition import Composition
    from mcpearl.stores.bus import Bus
else:
    Bus = Composition = Any


class Telling(Registering):
    """The part of a `Server` that notifies clients and hears what they notify."""

    core: ServerCore
    bus: Bus
    _broadcast: Broadcast
    _uptime: Uptime
    _composition: Composition | None
    _coalescers: dict[str, Coalescer]

    def on_session(self, function: SessionListener) -> SessionListener:
        """Call a function when a legacy client has connected, for as long as it stays.

        >>> @app.on_session
        ... async def visit(session):
        ...     await session.log("info", "welcome")
        ...     yield                                # until the client leaves
        ...     print(session.client.name, "left")

        Args:
            function: Gets the `Session`, on the event loop. It may be plain, async, in which case it is
                cancelled when the client leaves, or a generator, whose rest then runs.
        """
        self.core.attendants.on_session.append(function)
        return function

    @overload
    def on_notification(self, function: NoticeListener, /) -> NoticeListener: ...

    @overload
    def on_notification(self, method: str, /) -> Callable[[NoticeListener], NoticeListener]: ...

    def on_notification(self, which: NoticeListener | str, /) -> Any:
        """Call a function with the notifications of clients.

        >>> @app.on_notification("notifications/roots/list_changed")
        ... async def changed(notice, caller):
        ...     print(await caller.session.roots())

        Args:
            which: The method of the notifications; the decorator alone hears all of them. The function
                gets the notice (`method`, `params`) and the caller, on the event loop; it may be async.
        """
        if isinstance(which, str):
            return lambda function: self._add_listener(function, which)
        return self._add_listener(which, None)

    def _add_listener(self, function: NoticeListener, method: str | None) -> NoticeListener:
        registry = self._own_registry("on_notification")
        registry.listeners.append(self.core.attendants.guarded(function, method))
        return function

    def notify_resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource that it changed.

        Safe from any thread.

        Args:
            uri: The resource's URI.
        """
        self._uptime.on_loop(lambda: self._resource_updated(uri))

    def _resource_updated(self, uri: str) -> None:
        self._broadcast.resource_updated(uri)
        for outer in self.core.enclosing:
            outer.resource_updated(uri)

    def notify_list_changed(self, kind: str) -> None:
        """Notify clients that a list changed. The decorators do so themselves; a handler has to.

        Args:
            kind: `tools`, `resources` or `prompts`.
        """
        self._changed(kind)

    def _changed(self, kind: str) -> None:
        if self._composition is not None:
            self._composition.index.doubt()
        self.core.renew()
        for outer in self.core.enclosing:
            outer.list_changed(kind)
        coalescer = self._coalescers.get(kind)
        loop = self._uptime.loop
        if coalescer is not None and loop is not None:
            self._uptime.on_loop(lambda: coalescer.poke(loop))
