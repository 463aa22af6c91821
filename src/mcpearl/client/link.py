"""The way from a client to its server, kept up over as many connections as it takes.

It owns the connection in use and the phase the client is in (the table is `protocol/lifecycle.py`).
When the connection is lost it opens the next one by itself, after growing delays; whoever needs a
connection meanwhile waits here. What is asked on it, and what is asked again, is not decided here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from math import inf
from typing import Any

from mcpearl.client.connection import ClientConnection
from mcpearl.client.handshake import Handshake, Introduction
from mcpearl.client.reconnect import Reconnect
from mcpearl.client.targets import Target
from mcpearl.protocol.errors import (
    AuthorizationFailed,
    ConnectionLost,
    LimitReached,
    McpearlError,
    SessionLost,
)
from mcpearl.protocol.lifecycle import Lifecycle, Phase, Step
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.offer import paths_of
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.ordered import OrderedCalls
from mcpearl.transports.memory import memory_pair
from mcpearl.transports.transport import Transport

logger = logging.getLogger("mcpearl.client")

StateCallback = Callable[[Phase], Any]
_MAX_UNTOLD = 64  # phases a callback may be behind; older ones are skipped then


class Link:
    """One client's way to its server."""

    def __init__(
        self,
        route: Target,
        handshake: Handshake,
        limits: Limits,
        reconnect: Reconnect | None,
        keepalive: Keepalive | None,
        begin: Callable[[Transport], ClientConnection],
        restore: Callable[[ClientConnection], Awaitable[None]],
        given_up: Callable[[ConnectionLost], None],
        on_state: StateCallback | None,
    ) -> None:
        self.connection: ClientConnection | None = None
        """The one in use; None while there is none."""
        self.offered: frozenset[str] = frozenset()
        """The capabilities the server announced when it was last met."""
        self.reconnect = reconnect
        self._route = route
        self._handshake = handshake
        self._limits = limits
        self._keepalive = keepalive
        self._begin = begin
        self._restore = restore
        self._given_up = given_up
        self._on_state = on_state
        self._states = OrderedCalls(_MAX_UNTOLD, lambda full: None)
        self._lifecycle = Lifecycle("client")
        self._held: AsyncExitStack | None = None  # from connecting to closing, over all connections
        self._healing: asyncio.Task[None] | None = None
        self._introduction: Introduction | None = None
        self._lost: ConnectionLost | None = None  # why there is no connection
        self._changed = asyncio.Event()  # set while there is a connection, or none will come
        self._fleeting: set[asyncio.Task[None]] = set()  # work that ends with this connection
        self._waiting = 0  # calls that wait for a connection
        self._attempt = 0  # attempts since a connection lasted
        self._up_since = 0.0

    @property
    def phase(self) -> Phase:
        """Where the client stands."""
        return self._lifecycle.phase

    @property
    def healing(self) -> bool:
        """Whether a connection is being looked for."""
        return self._healing is not None

    def introduced(self) -> Introduction:
        """What the server said of itself when it was last met."""
        if self._introduction is None:
            raise self._not_connected()
        return self._introduction

    def _not_connected(self) -> McpearlError:
        return McpearlError(
            f"the client of {self._route.name} is not connected; "
            "use `async with Client(…) as client:`"
        )

    def _step(self, step: Step) -> None:
        phase = self._lifecycle.take(step)
        if self._on_state is not None:
            if len(self._states) >= _MAX_UNTOLD:
                self._states.skip()
            self._states.put(self._on_state, phase)

    # Connecting

    async def connect(self) -> None:
        """Reach the server for the first time; what goes wrong is raised at once."""
        if self._held is not None or self.phase not in (Phase.DISCONNECTED, Phase.CLOSED):
            raise RuntimeError(f"the client of {self._route.name} is connected already")
        self._lifecycle = Lifecycle("client")
        self._changed = asyncio.Event()
        self._attempt = 0
        held = AsyncExitStack()
        try:
            self._step(Step.CONNECT)
            if self._route.server is not None:
                await held.enter_async_context(self._route.server.running())
            self._use(await self._open())
        except BaseException:
            self._step(Step.CLOSED)
            await held.aclose()
            raise
        self._held = held

    async def _open(self) -> ClientConnection:
        """Give a connection to a server that was met."""
        try:
            return await self._meet()
        except ConnectionLost:
            if not (self._route.restartable and self._handshake.ended_by_probe):
                raise
        # It went away over being asked what it speaks; this time it is not.
        self._step(Step.LOSE)
        self._step(Step.CONNECT)
        return await self._meet()

    async def _meet(self) -> ClientConnection:
        transport = await self._transport()
        connection = self._begin(transport)
        try:
            await self._reach(transport, connection)
            self._step(Step.INITIALIZE)
            introduction = await self._handshake.perform(connection)
            self._introduction = introduction
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
        server = self._route.server
        if server is not None:
            near, far = memory_pair()
            await server.connect(far)
            return near
        assert self._route.transport is not None
        return self._route.transport(self._limits)

    async def _reach(self, transport: Transport, connection: ClientConnection) -> None:
        patience = self._handshake.timeout
        try:
            async with asyncio.timeout(patience) as connection.opening:
                await transport.open(connection)
        except TimeoutError:
            raise ConnectionLost(
                f"cannot connect to {self._route.name}: no connection within {patience:g} s"
            ) from None

    def _use(self, connection: ClientConnection) -> None:
        self._step(Step.INITIALIZED)
        self.connection = connection
        self._up_since = connection.loop.time()
        self._changed.set()

    async def ready(self, deadline: float) -> ClientConnection:
        """Wait for a connection; `deadline` is a time of the loop, and may be infinite."""
        while self.connection is None:
            if self._healing is None:
                raise self._not_sent("not sent")
            if self._waiting >= self._limits.max_pending:
                raise LimitReached(
                    f"{self._waiting} calls wait for the connection to come back already; "
                    "raise `Limits.max_pending` or wait for some of them"
                )
            self._waiting += 1
            try:
                async with asyncio.timeout_at(None if deadline == inf else deadline):
                    await self._changed.wait()
            except TimeoutError:
                if self.connection is None:
                    raise self._not_sent("not sent in time") from None
            finally:
                self._waiting -= 1
            if self._held is None:
                raise ConnectionLost("not sent: the client was closed")
        return self.connection

    async def while_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what is not worth waiting for another connection: without this one it is given up."""
        task = asyncio.ensure_future(work)
        self._fleeting.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            self._fleeting.discard(task)
            task.cancel()
        if task.cancelled():
            raise self._not_sent("given up")
        task.result()

    def _not_sent(self, how: str) -> McpearlError:
        lost = self._lost
        if lost is None:
            return self._not_connected()
        return ConnectionLost(f"{how}: {lost.reason}", exit_code=lost.exit_code, stderr=lost.stderr)

    # Losing the connection, and coming back

    def lost(self, connection: ClientConnection) -> None:
        """Note that a connection ended. Of one that is not in use yet its opener hears."""
        if connection is self.connection and connection.lost_reason is not None:
            self._go_down(connection, connection.lost_reason)

    def doubt(self, connection: ClientConnection, lost: ConnectionLost) -> None:
        """Note that nothing gets through, though the connection stands; find out before more is sent."""
        if connection is self.connection and self.reconnect is not None:
            self._go_down(connection, lost)

    def _go_down(self, connection: ClientConnection, lost: ConnectionLost) -> None:
        self.connection = None
        self._lost = lost
        self._changed.clear()
        for work in self._fleeting:
            work.cancel()
        self._step(Step.LOSE)
        if self.reconnect is None:
            assert self._held is not None
            self._held.push_async_callback(connection.close)
            self._give_up(lost)
            return
        if connection.loop.time() - self._up_since > self.reconnect.nominal(self._attempt):
            self._attempt = 0  # it lasted: this is a new trouble, not the old one
        self._healing = connection.loop.create_task(self._heal(connection, self.reconnect))

    async def _heal(self, former: ClientConnection, reconnect: Reconnect) -> None:
        """Try until there is a connection again, or the attempts are used up."""
        logger.warning("%s: %s; reconnecting", self._route.name, self._reason())
        failures = 0
        try:
            while failures != reconnect.max_attempts:
                await self._prepare(former, reconnect)
                self._attempt += 1
                try:
                    self._step(Step.CONNECT)
                    connection = await self._reopen(former)
                except Exception as error:
                    failures += 1
                    self._failed(error)
                    if isinstance(error, AuthorizationFailed):
                        break  # it takes a person, who is not to be asked over and over
                else:
                    self._healing = None
                    self._use(connection)
                    logger.info("%s: connected again", self._route.name)
                    return
        finally:
            if former is not self.connection:
                await _release(former)
        self._healing = None
        self._give_up(ConnectionLost(f"gave up after {failures} attempts: {self._reason()}"))

    async def _prepare(self, former: ClientConnection, reconnect: Reconnect) -> None:
        """Let the time pass before an attempt; what is left of a dead connection goes meanwhile."""
        at_once = isinstance(self._lost, SessionLost) and not self._attempt
        pause = asyncio.sleep(0 if at_once else reconnect.delay(self._attempt))
        if former.lost_reason is None:
            await pause
            return
        closing = asyncio.ensure_future(_release(former))
        try:
            await pause
        finally:
            await asyncio.wait([closing])

    async def _reopen(self, former: ClientConnection) -> ClientConnection:
        if former.lost_reason is not None:
            return await self._open()
        # It may be as good as it was, with everything that belongs to it.
        self._step(Step.INITIALIZE)
        try:
            await self._handshake.check(former)
            await self._restore(former)
            former.check()
        except SessionLost:
            self._step(Step.LOSE)
            await former.close()
            self._step(Step.CONNECT)
            return await self._open()
        return former

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, McpearlError | OSError):
            logger.error("reconnecting raised", exc_info=error)
        if isinstance(error, ConnectionLost):
            self._lost = error
        else:
            self._lost = ConnectionLost(str(error) or type(error).__name__)
        logger.info("%s: attempt %d: %s", self._route.name, self._attempt, self._reason())
        self._step(Step.LOSE)

    def _reason(self) -> str:
        return "" if self._lost is None else self._lost.reason

    def _give_up(self, lost: ConnectionLost) -> None:
        self._lost = lost
        self._step(Step.CLOSE)
        self._changed.set()
        self._given_up(lost)

    # Closing

    async def close(self) -> None:
        """End what there is, also an attempt under way. Whoever waits for a connection is told."""
        held, self._held = self._held, None
        if held is None:
            return
        connection, self.connection = self.connection, None
        self._lost = ConnectionLost("the client was closed")
        if self._lifecycle.can(Step.CLOSE):
            self._step(Step.CLOSE)
        try:
            await self._stop_healing()
            if connection is not None:
                await connection.close()
        finally:
            self._changed.set()
            try:
                await held.aclose()
            finally:
                self._lost = self._introduction = None
                self.offered = frozenset()
                if self._lifecycle.can(Step.CLOSED):
                    self._step(Step.CLOSED)

    async def _stop_healing(self) -> None:
        healing, self._healing = self._healing, None
        if healing is not None:
            healing.cancel()
            await asyncio.wait([healing])


async def _release(connection: ClientConnection) -> None:
    """Close what is lost anyway; whatever that raises must not keep the client from coming back."""
    try:
        await connection.close()
    except Exception:
        logger.exception("closing a lost connection raised")
