"""One server as three processes, forked from the test, behind a balancer without stickiness.

A fork has the functions that the test registered as tools, so a test of one server needs no other text
for three processes. What it shares with them is in `tests.across`. The test's own server joins the
deployment without a port: what it announces reaches clients through the store.

Forking needs a process without other threads that matter. So this is not used where several test
processes run together (pytest-xdist), but in a run of its own: `make wires-store`.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn

from mcpearl import Server
from tests.deployment.spread import MACHINES, Replicas, balancing_connections
from tests.ports import free_port
from tests.redis_server import end_with_parent
from tests.waiting import eventually

ASKED_FOR = "MCPEARL_TESTS_FORK"
"""The variable of the environment that asks for processes."""
_PATIENCE = 30.0  # seconds a process has to end

Beside = Callable[[], Coroutine[Any, Any, None]]


def is_asked_for() -> bool:
    """Whether servers that share a store are to be processes."""
    return bool(os.environ.get(ASKED_FOR))


class ForkedReplicas(Replicas):
    """Serves an application in three processes."""

    @asynccontextmanager
    async def serving(self, app: Server, **options: Any) -> AsyncIterator[int]:
        """Serve at three ports; the port of the balancer is returned."""
        ports = [free_port() for _ in range(MACHINES)]
        workers = [WorkerProcess(self.of(app), port, options) for port in ports]
        async with AsyncExitStack() as stack:
            stack.callback(kill_workers, workers)
            port = await stack.enter_async_context(balancing_connections(ports))
            for worker in workers:
                await worker.is_up()
            stack.push_async_callback(stop_workers, workers)
            async with app.running():
                yield port


class WorkerProcess:
    """A fork of this process that serves HTTP at a port.

    Args:
        server: What it serves.
        port: Where.
        options: Of the endpoint.
        beside: Run beside the server, until it ends.
    """

    def __init__(
        self, server: Server, port: int, options: dict[str, Any], beside: Beside | None = None
    ) -> None:
        self.port = port
        self.ended = False
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(_until_asked(server, port, options, beside))

    async def is_up(self) -> None:
        """Wait until it accepts connections."""

        async def is_open() -> bool:
            assert not self.has_ended(), "a worker did not start"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(is_open)

    def has_ended(self) -> bool:
        """Whether the process is gone; it is not waited for."""
        if not self.ended:
            self.ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return self.ended


async def stop_workers(workers: Sequence[WorkerProcess]) -> None:
    """Ask the processes to end, and wait until they have."""
    for worker in workers:
        if not worker.has_ended():
            os.kill(worker.pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        while not worker.has_ended():
            assert time.monotonic() < deadline, "a worker does not end"
            await asyncio.sleep(0.005)


def kill_workers(workers: Sequence[WorkerProcess]) -> None:
    """Make sure that none is left."""
    for worker in workers:
        if not worker.has_ended():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def _serve(serving: Coroutine[Any, Any, None]) -> NoReturn:
    """Serve, as a process that never returns to the test."""
    status = 1
    try:
        end_with_parent()
        asyncio.events._set_running_loop(None)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        asyncio.run(serving)
        status = 0
    finally:
        os._exit(status)


async def _until_asked(
    server: Server, port: int, options: dict[str, Any], beside: Beside | None
) -> None:
    """Serve until SIGTERM."""
    serving = asyncio.create_task(server.serve("http", port=port, **options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    watching = None if beside is None else asyncio.create_task(beside())
    await asyncio.wait([serving])
    if watching is not None:
        watching.cancel()
