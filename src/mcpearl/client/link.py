"""The link from a client to its server, kept up over as many connections as it takes.

It owns the connection in use and the phase the client is in (the table is `protocol/lifecycle.py`).
When the connection is lost it opens the next one by itself, after growing delays; calls that need a
connection meanwhile wait here. `client/requests` decides what is sent, and what is sent again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from math import inf
from typing import Any

from mcpearl.client.connection import ClientConnection
from mcpearl.client.handshake import Handshake, Introduction
from mcpearl.client.opening import Opening
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
from mcpearl.runtime.backoff import Retries
from mcpearl.runtime.liveness import Keepalive
from mcpearl.runtime.ordered import OrderedCalls
from mcpearl.runtime.tree import Followers, Node, NodeChange, State
from mcpearl.transports.transport import Transport
from mcpearl.types.logging import LoggingLevel

logger = logging.getLogger("mcpearl.client")

StateCallback = Callable[[Phase], Any]
_STATES: dict[Phase, State] = {
    Phase.DISCONNECTED: "ended",
    Phase.CONNECTING: "starting",
    Phase.INITIALIZING: "starting",
    Phase.READY: "running",
    Phase.CLOSING: "stopping",
    Phase.CLOSED: "ended",
    Phase.FAILED: "waiting",
}
_MAX_WAITING_PHASES = 64  # that wait for `on_state` to be called; older ones are skipped


class Link:
    """One client's connections to its server, one after the other."""

    def __init__(
        self,
        target: Target,
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
        """The connection in use; None while there is none."""
        self.reconnect = reconnect
        self.followers = Followers()
        """The followers of this part of the client's tree."""
        self._restarts = 0  # how often the connection was replaced
        self._last_error: str | None = None  # why the last connection or attempt ended
        self._target = target
        self._limits = limits
        self._opening = Opening(target, handshake, limits, keepalive, begin, restore, self._step)
        self._given_up = given_up
        self._on_state = on_state
        self._states = OrderedCalls(_MAX_WAITING_PHASES, lambda full: None)
        self._lifecycle = Lifecycle("client")
        self._held: AsyncExitStack | None = None  # from `connect` to `close`, over all connections
        self._healing: asyncio.Task[None] | None = None
        self._lost: ConnectionLost | None = None  # why there is no connection
        self._changed = asyncio.Event()  # set while there is a connection, or if none will come
        self._fleeting: set[asyncio.Task[None]] = set()  # work that ends with this connection
        self._over = asyncio.Event()  # set when no connection will come any more
        self._waiting = 0  # calls that wait for a connection
        self._retries: Retries | None = None if reconnect is None else Retries(reconnect)
        self._up_since = 0.0

    @property
    def phase(self) -> Phase:
        """The phase the client is in."""
        return self._lifecycle.phase

    @property
    def is_over(self) -> bool:
        """Whether no connection will come any more."""
        return self._held is None or self._over.is_set()

    @property
    def healing(self) -> bool:
        """Whether the client is reconnecting."""
        return self._healing is not None

    @property
    def log_level(self) -> LoggingLevel | None:
        """The log level the client chose."""
        return self._opening.handshake.log_level

    def set_log_level(self, level: LoggingLevel) -> None:
        """Choose the log level of this connection, as far as requests carry it, and of later ones."""
        self._opening.handshake.set_log_level(level, self.connection)

    def listen_to_logs(self) -> None:
        """Ask a modern server for log messages, unless a level was chosen already."""
        self._opening.handshake.listen_to_logs(self.connection)

    def introduced(self) -> Introduction:
        """Return how the server described itself in the last handshake, also after closing."""
        if self._opening.introduction is None:
            raise self._not_connected()
        return self._opening.introduction

    @property
    def offered(self) -> frozenset[str]:
        """The capabilities the server announced in the last handshake; none after closing."""
        return self._opening.offered

    def check_open(self) -> None:
        """Raise if the client is closed, or was never connected."""
        if self._held is None:
            raise self._not_connected()

    def _not_connected(self) -> McpearlError:
        return McpearlError(
            f"the client of {self._target.name} is not connected; "
            "use `async with Client(…) as client:`"
        )

    def _step(self, step: Step) -> None:
        phase = self._lifecycle.take(step)
        if self.followers:
            error = self._last_error if phase is Phase.FAILED else None
            self.followers.tell(NodeChange((self._target.name,), self._state(), error))
        if self._on_state is not None:
            if len(self._states) >= _MAX_WAITING_PHASES:
                self._states.skip()
            self._states.put(self._on_state, phase)

    def node(self, children: tuple[Node, ...]) -> Node:
        """Return the state of the link, with the nodes of what depends on it."""
        connection = self.connection
        return Node(
            name=self._target.name,
            state=self._state(),
            restarts=self._restarts,
            last_error=self._last_error,
            uptime=0.0 if connection is None else connection.loop.time() - self._up_since,
            children=children,
        )

    def _state(self) -> State:
        if self._over.is_set() and self._held is not None:
            return "failed"
        return _STATES[self._lifecycle.phase]

    # Connecting

    async def connect(self) -> None:
        """Connect for the first time; every failure is raised at once."""
        if self._held is not None or self.phase not in (Phase.DISCONNECTED, Phase.CLOSED):
            raise RuntimeError(f"the client of {self._target.name} is connected already")
        self._lifecycle = Lifecycle("client")
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._retries = None if self.reconnect is None else Retries(self.reconnect)
        held = AsyncExitStack()
        try:
            self._step("connect")
            if self._target.server is not None:
                await held.enter_async_context(self._target.server.running())
            self._use(await self._opening.open())
        except BaseException:
            self._step("closed")
            await held.aclose()
            raise
        self._held = held

    def _use(self, connection: ClientConnection) -> None:
        self._step("initialized")
        self.connection = connection
        self._up_since = connection.loop.time()
        self._changed.set()

    async def ready(self, deadline: float) -> ClientConnection:
        """Wait for a connection until `deadline`, a time of the event loop that may be infinite."""
        while self.connection is None:
            if self._healing is None:
                raise self._not_sent("not sent")
            if self._waiting >= self._limits.max_pending:
                raise LimitReached(
                    f"{self._waiting} calls are already waiting for the connection to come back; "
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

    async def given_up(self) -> None:
        """Wait until the connection is lost for good, and raise the reason."""
        await self._over.wait()
        raise self._lost or ConnectionLost("the client was closed")

    async def while_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work on this connection only; it is cancelled if the connection is lost."""
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
        """Note that a connection ended. If it is still being opened, the opening fails instead."""
        if connection is self.connection and connection.lost_reason is not None:
            self._go_down(connection, connection.lost_reason)

    def doubt(self, connection: ClientConnection, lost: ConnectionLost) -> None:
        """Have a connection checked before it is used again: a request could not be sent on it."""
        if connection is self.connection and self.reconnect is not None:
            self._go_down(connection, lost)

    def _go_down(self, connection: ClientConnection, lost: ConnectionLost) -> None:
        self.connection = None
        self._lost = lost
        self._last_error = lost.reason
        self._changed.clear()
        for work in self._fleeting:
            work.cancel()
        self._step("lose")
        if self.reconnect is None:
            assert self._held is not None
            self._held.push_async_callback(connection.close)
            self._give_up(lost)
            return
        assert self._retries is not None
        self._retries.worked_for(connection.loop.time() - self._up_since)
        heal = self._heal(connection, self._retries, self.reconnect.max_attempts)
        self._healing = connection.loop.create_task(heal)

    async def _heal(
        self, former: ClientConnection, retries: Retries, max_attempts: int | None
    ) -> None:
        """Try until there is a connection again, or the attempts are used up."""
        logger.warning("%s: %s; reconnecting", self._target.name, self._reason())
        failures = 0
        try:
            while failures != max_attempts:
                await self._prepare(former, retries)
                try:
                    self._step("connect")
                    connection = await self._opening.reopen(former)
                except Exception as error:
                    failures += 1
                    self._failed(error, retries.attempts)
                    if isinstance(error, AuthorizationFailed):
                        break  # a person would be asked to log in over and over
                else:
                    self._healing = None
                    self._restarts += 1
                    self._use(connection)
                    logger.info("%s: connected again", self._target.name)
                    return
        finally:
            if former is not self.connection:
                await _release(former)
        self._healing = None
        self._give_up(ConnectionLost(f"gave up after {failures} attempts: {self._reason()}"))

    async def _prepare(self, former: ClientConnection, retries: Retries) -> None:
        """Wait before an attempt, and close the lost connection meanwhile."""
        at_once = isinstance(self._lost, SessionLost) and not retries.attempts
        delay = retries.next_delay()
        pause = asyncio.sleep(0 if at_once else delay)
        if former.lost_reason is None:
            await pause
            return
        closing = asyncio.ensure_future(_release(former))
        try:
            await pause
        finally:
            await asyncio.wait([closing])

    def _failed(self, error: Exception, attempt: int) -> None:
        if not isinstance(error, McpearlError | OSError):
            logger.error("reconnecting raised", exc_info=error)
        if isinstance(error, ConnectionLost):
            self._lost = error
        else:
            self._lost = ConnectionLost(str(error) or type(error).__name__)
        self._last_error = self._lost.reason
        logger.info("%s: attempt %d: %s", self._target.name, attempt, self._reason())
        self._step("lose")

    def _reason(self) -> str:
        return "" if self._lost is None else self._lost.reason

    def _give_up(self, lost: ConnectionLost) -> None:
        self._lost = lost
        self._over.set()
        self._step("close")
        self._changed.set()
        self._given_up(lost)

    # Closing

    async def close(self) -> None:
        """Close the connection, or stop reconnecting. Calls that wait for a connection fail."""
        held, self._held = self._held, None
        if held is None:
            return
        connection, self.connection = self.connection, None
        self._lost = ConnectionLost("the client was closed")
        if self._lifecycle.can("close"):
            self._step("close")
        try:
            await self._stop_healing()
            if connection is not None:
                await connection.close()
        finally:
            self._changed.set()
            try:
                await held.aclose()
            finally:
                self._lost = None
                self._opening.forget_offer()
                if self._lifecycle.can("closed"):
                    self._step("closed")

    async def _stop_healing(self) -> None:
        healing, self._healing = self._healing, None
        if healing is not None:
            healing.cancel()
            await asyncio.wait([healing])


async def _release(connection: ClientConnection) -> None:
    """Close a lost connection; an error in closing must not keep the client from reconnecting."""
    try:
        await connection.close()
    except Exception:
        logger.exception("closing a lost connection raised")
