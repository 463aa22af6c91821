"""The wires of a server as children of a supervisor: a wire that fails is opened again."""

import logging
from collections import Counter
from typing import TYPE_CHECKING

from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.supervisor_errors import StartFailed
from mcpearl.runtime.tree import Node
from mcpearl.server.serving.wire import Listener, ServableWire, Stdio

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")

DRAINING = 10.0  # seconds beside the server's grace that a wire has to close


def supervise_wires(
    server: "Server", wires: list[ServableWire]
) -> "tuple[Supervisor, list[WirePart]]":
    """Return the supervisor of these wires, and its parts. When one stops, all stop."""
    seen: Counter[str] = Counter()
    children = []
    parts = [WirePart(server, wire) for wire in wires]
    for wire, part in zip(wires, parts, strict=True):
        name = _name_of(wire)
        seen[name] += 1
        children.append(
            Child(
                name if seen[name] == 1 else f"{name} ({seen[name]})",
                part,
                # Standard input cannot be reopened: what the client wrote to it is lost.
                restart="temporary" if isinstance(wire, Stdio) else "transient",
                shutdown=server.core.grace + DRAINING,
                significant=True,
            )
        )
    return Supervisor("wires", children, stop_together=True), parts


def _name_of(wire: ServableWire) -> str:
    name: str | None = getattr(wire, "name", None)
    if name is not None:  # of a wire that users know by another name than that of its class
        return name
    kind = type(wire).__name__.lower()
    path, host, port = (getattr(wire, name, None) for name in ("path", "host", "port"))
    if host is not None:
        return f"{kind} {host}:{port}"
    return kind if path is None else f"{kind} {path}"


class WirePart:
    """One wire. Each start makes a new listener."""

    def __init__(self, server: "Server", wire: ServableWire) -> None:
        self._server = server
        self._wire = wire
        self._next: Listener | None = wire.listener(server)  # made now: it checks the options
        self._listener: Listener | None = None
        self.address: str | None = None  # where a client connects, once the wire was opened

    def tree(self) -> Node:
        """Return the parts of the wire, if it has any."""
        parts = () if self._listener is None else self._listener.nodes()
        return Node(name=_name_of(self._wire), state="running", children=parts)

    async def start(self) -> None:
        """Open the wire."""
        listener = self._next or self._wire.listener(self._server)
        self._next = None
        await listener.start()
        self._listener = listener
        self.address = listener.address
        if line := listener.describe():
            info = self._server.core.offer.info
            logger.info("%s %s %s", info.name, info.version, line)

    async def ended(self) -> None:
        """Wait until the wire ends by itself."""
        assert self._listener is not None
        await self._listener.ended()

    async def stop(self) -> None:
        """Accept nothing more, and let calls finish."""
        listener, self._listener = self._listener, None
        assert listener is not None
        listener.stop_accepting()
        await listener.drain(self._server.core.grace)


def cause_of(error: BaseException) -> BaseException:
    """Return the error that kept the first part from starting, without those of its supervisors."""
    while isinstance(error, StartFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error
