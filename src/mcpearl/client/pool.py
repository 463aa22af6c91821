"""Several clients of one target, supervised: each call borrows one, and waits when all are busy."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from mcpearl.client.client import Client
from mcpearl.client.targets import Reachable
from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpearlError
from mcpearl.protocol.lifecycle import Phase
from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.supervisor_errors import StartFailed
from mcpearl.runtime.tree import Node
from mcpearl.types.tool_calls import CallToolResult


class Pool:
    """Several clients of one server.

    Calls of different tasks run at the same time, each on a client of its own; with a command as the
    target, each in a process of its own. A client whose connection is gone for good is replaced.

    >>> async with Pool("http://127.0.0.1:8000/mcp", size=8) as pool:
    ...     result = await pool.call_tool("add", {"a": 1, "b": 2})

    Args:
        target: What each client connects to, as for `Client`.
        size: How many clients there are.
        queue: How many tasks may wait for a client.
        wait: Seconds a task waits for a client; None for no limit.
        make: Makes one client; by default `Client(target)`.
    """

    def __init__(
        self,
        target: Reachable,
        *,
        size: int = 8,
        queue: int = 1000,
        wait: float | None = 60.0,
        make: Callable[[Reachable], Client] = Client,
    ) -> None:
        if size < 1 or queue < 0:
            raise ValueError("a pool has at least 1 client, and its queue is not below 0")
        self._target = target
        self._make = make
        self._queue = queue
        self._wait = wait
        self._up: set[Client] = set()  # clients that can be borrowed
        self._idle: deque[Client] = deque()
        self._waiting: dict[asyncio.Future[Client], None] = {}
        self._supervisor = Supervisor(
            "pool",
            [Child(f"client {number}", _PoolPlace(self)) for number in range(1, size + 1)],
            stop_together=True,
        )

    async def connect(self) -> None:
        """Connect all clients; if one cannot connect, raise its error."""
        try:
            await self._supervisor.start()
        except StartFailed as error:
            raise error.__cause__ or error from None

    async def close(self) -> None:
        """Close all clients; tasks that wait for one fail."""
        await self._supervisor.stop()
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(ConnectionLost("the pool was closed"))
        self._waiting.clear()

    async def __aenter__(self) -> "Pool":
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def tree(self) -> Node:
        """Return the clients with their states, restarts, errors and uptimes."""
        return self._supervisor.tree()

    # Borrowing

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Borrow a client, for several requests to the same one.

        Raises:
            LimitReached: Too many tasks are waiting already, or no client became free in time.
        """
        client = await self._take()
        try:
            yield client
        finally:
            if client in self._up:
                self._offer(client)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        raise_on_error: bool = False,
    ) -> CallToolResult:
        """Call a tool on a client that is free.

        Args:
            name: The tool's name.
            arguments: The arguments by name.
            timeout: Seconds for the call, once there is a client.
            raise_on_error: Whether a tool that failed raises `ToolError`.
        """
        async with self.client() as client:
            return await client.call_tool(
                name, arguments, timeout=timeout, raise_on_error=raise_on_error
            )

    async def _take(self) -> Client:
        self._supervisor.check()
        if self._supervisor.tree().state != "running":
            raise McpearlError("the pool is not connected; use `async with Pool(…) as pool:`")
        if self._idle:
            return self._best()
        if len(self._waiting) >= self._queue:
            raise LimitReached(
                f"all {len(self._supervisor)} clients are busy and {self._queue} tasks wait already; "
                "raise `Pool.size` or `Pool.queue`"
            )
        turn: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            async with asyncio.timeout(self._wait):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._offer(turn.result())  # a client came just as the wait ended
            if isinstance(error, TimeoutError):
                message = f"no client of the pool was free within {self._wait:g} s"
                raise LimitReached(message) from None
            raise
        finally:
            self._waiting.pop(turn, None)

    def _best(self) -> Client:
        """Take an idle client: one that is connected, if there is one."""
        for _ in range(len(self._idle)):
            if self._idle[0].state is Phase.READY:
                break
            self._idle.rotate(-1)
        return self._idle.popleft()

    def _offer(self, client: Client) -> None:
        """Hand a client to the task that has waited longest, or keep it."""
        while self._waiting:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(client)
                return
        self._idle.append(client)

    # For the places of the pool

    def _fresh(self) -> Client:
        """Make a client."""
        return self._make(self._target)

    def _joined(self, client: Client) -> None:
        """Make a client available to be borrowed."""
        self._up.add(client)
        self._offer(client)

    def _left(self, client: Client) -> None:
        """Stop lending a client."""
        self._up.discard(client)
        if client in self._idle:
            self._idle.remove(client)


class _PoolPlace:
    """One place in the pool, and the client that has it at the moment."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._client: Client | None = None

    async def start(self) -> None:
        client = self._pool._fresh()
        await client.connect()
        self._client = client
        self._pool._joined(client)

    async def ended(self) -> None:
        assert self._client is not None
        await self._client.given_up()

    async def stop(self) -> None:
        client, self._client = self._client, None
        assert client is not None
        self._pool._left(client)
        await client.close()
