"""Opens the connections of a client, one at a time: the transport, then the handshake.

`client/link` decides when a connection is opened, and what happens when that fails.
"""

from collections.abc import Awaitable, Callable

from mcpearl.client.connection import ClientConnection
from mcpearl.client.handshake import Handshake, Introduction
from mcpearl.client.targets import Target
from mcpearl.protocol.errors import ConnectionLost, SessionLost
from mcpearl.protocol.lifecycle import Step
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.offer import paths_of
from mcpearl.runtime.liveness import Keepalive
from mcpearl.transports.memory import memory_pair
from mcpearl.transports.transport import Transport


class Opening:
    """Opens connections to one server.

    Args:
        target: How the server is reached.
        handshake: Agrees on a version with the server.
        limits: Bounds of the connections.
        keepalive: When a silent server is pinged; None for never.
        begin: Makes a connection of a transport.
        restore: Restores log level and subscriptions on a new connection.
        step: Called with every step of the client's lifecycle.
    """

    def __init__(
        self,
        target: Target,
        handshake: Handshake,
        limits: Limits,
        keepalive: Keepalive | None,
        begin: Callable[[Transport], ClientConnection],
        restore: Callable[[ClientConnection], Awaitable[None]],
        step: Callable[[Step], None],
    ) -> None:
        self.handshake = handshake
        self.introduction: Introduction | None = None
        """How the server described itself in the last handshake."""
        self.offered: frozenset[str] = frozenset()
        """The capabilities that the server announced there; none after closing."""
        self._target = target
        self._limits = limits
        self._keepalive = keepalive
        self._begin = begin
        self._restore = restore
        self._step = step

    def forget_offer(self) -> None:
        """Forget the server's capabilities: the client was closed."""
        self.offered = frozenset()

    async def open(self) -> ClientConnection:
        """Return a new connection, with the handshake done."""
        try:
            return await self._open_once()
        except ConnectionLost:
            if not (self._target.restartable and self.handshake.ended_by_probe):
                self.handshake.forget_probe()  # a lost network says nothing about the server
                raise
        # The server ended the connection because of the probe; this time it is not probed.
        self._step("lose")
        self._step("connect")
        return await self._open_once()

    async def reopen(self, former: ClientConnection) -> ClientConnection:
        """Return a new connection for one that was lost; one that is only in doubt is checked first."""
        if former.lost_reason is not None:
            return await self.open()
        # The connection may still be good, with everything that belongs to it.
        self._step("initialize")
        try:
            await self.handshake.check(former)
            await self._restore(former)
            former.check()
        except SessionLost:
            self._step("lose")
            await former.close()
            self._step("connect")
            return await self.open()
        return former

    async def _open_once(self) -> ClientConnection:
        connection = self._begin(await self._transport())
        try:
            await self._reach(connection)
            self._step("initialize")
            introduction = await self.handshake.perform(connection)
            self.introduction = introduction
            self.offered = paths_of(introduction.capabilities)
            await self._restore(connection)
            connection.check()
        except BaseException:
            await connection.close()
            raise
        if self._keepalive is not None:
            connection.watch(self._keepalive)
        return connection

    async def _transport(self) -> Transport:
        transport: Transport
        server, tap = self._target.server, self._target.tap
        if server is not None:
            transport, far = memory_pair()
            await server.connect(far)
        else:
            assert self._target.transport is not None
            transport = self._target.transport(self._limits)
        return transport if tap is None else tap(transport)

    async def _reach(self, connection: ClientConnection) -> None:
        timeout = self.handshake.timeout
        try:
            await connection.open(timeout)
        except TimeoutError:
            raise ConnectionLost(
                f"cannot connect to {self._target.name}: no connection within {timeout:g} s"
            ) from None
