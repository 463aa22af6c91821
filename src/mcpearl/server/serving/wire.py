"""What a wire is to a server, and the wire that most servers are started on: stdio.

The other wires are in `wires`, which such a server does not load.
"""

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from mcpearl.runtime.loading import Loading

if TYPE_CHECKING:
    from mcpearl.runtime.tree import Node
    from mcpearl.server.server import Server

    class Listener(Protocol):
        """One wire being served. It is started once, and drained if it was started."""

        @property
        def address(self) -> str | None:
            """The address a client connects to, once it is started; None if there is none."""
            ...

        def describe(self) -> str | None:
            """Return one line that says where the server is; None if another process logs it."""
            ...

        def nodes(self) -> tuple[Node, ...]:
            """Return the parts of the wire, for the tree of the server."""
            ...

        async def start(self) -> None:
            """Begin to accept clients; raises if that is not possible."""
            ...

        async def ended(self) -> None:
            """Wait until the wire ends by itself; most never do."""
            ...

        def stop_accepting(self) -> None:
            """Stop accepting clients."""
            ...

        async def drain(self, grace: float) -> None:
            """Let calls finish within `grace` seconds, cancel the rest, and release everything."""
            ...

    class ServableWire(Protocol):
        """What `Server.run` and `Server.serve` take beside names of wires."""

        @property
        def drain_delay(self) -> float:
            """Seconds between a signal to stop and the end of the wire."""
            return 0.0

        def listener(self, server: "Server") -> Listener:
            """Make what serves this wire.

            Args:
                server: The server to be served.
            """
            ...
else:
    # Loaded where they are made, not where they are named; making a protocol takes time.
    Listener = Node = ServableWire = Server = Any


class Stdio(Struct, frozen=True, kw_only=True):
    """The process's own standard input and output. Its end is the end of the server."""

    drain_delay: ClassVar[float] = 0.0

    def listener(self, server: "Server") -> Listener:
        """Make what serves this wire.

        Args:
            server: The server to be served.
        """
        return _StdioListener(server)


class _StdioListener:
    address = None

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._by_hand = False  # started in a terminal

    def describe(self) -> str:
        if not self._by_hand:
            return "serves on stdio"
        reads = "reads MCP messages from this terminal, one JSON object per line, until Ctrl-D"
        if not sys.argv[0].endswith(
            ".py"
        ):  # a command, which says itself how it is meant to be used
            return reads
        how = f"Usually a client starts it: Client({sys.argv[0]!r})"
        return f"{reads}. {how}. For clients elsewhere: app.run('http')"

    def nodes(self) -> tuple[Node, ...]:
        return ()

    async def start(self) -> None:
        self._by_hand = sys.stdin is not None and sys.stdin.isatty()
        with Loading():
            from mcpearl.transports.stdio import StdioTransport

        self._transport = StdioTransport(self._server.core.limits)
        self._connection = await self._server.connect(self._transport)

    async def ended(self) -> None:
        await self._connection.wait_closed()

    def stop_accepting(self) -> None:
        pass

    async def drain(self, grace: float) -> None:
        try:
            await self._connection.drain(grace)
            await self._connection.wait_closed()
        finally:
            await self._transport.close()
