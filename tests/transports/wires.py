"""Every wire, opened the same way: a server on it, and what a client needs to reach that server."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Client, Http, Limits, Server, Tcp, Tls, Transport, Unix, WebSocket
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.transports.memory import memory_pair
from tests.across import SharedFlag, SharedNotes
from tests.deployment.forked import WorkerProcess, is_asked_for, kill_workers, stop_workers
from tests.deployment.round_robin import balancing
from tests.ports import free_port
from tests.redis_server import fresh_address
from tests.transports.certificates import Authority
from tests.transports.custom_transport import queue_pair
from tests.transports.suite_server import (
    Growth,
    Happenings,
    make_app,
    make_machine,
    make_machines,
)
from tests.waiting import eventually

OVER_HTTP = ("http", "machines")
STREAMS = ("memory", "stdio", "tcp", "tls", "unix", "ws", "wss", "mounted", "custom")
"""Where messages keep one order."""
WIRES = (*OVER_HTTP, *STREAMS)
MACHINES = 3
HERE = Path(__file__).parent


class Place:
    """A server that is up, and how to reach it."""

    def __init__(
        self,
        wire: str,
        app: Server | None,
        reach: Callable[[], Awaitable[Any]],
        stop: Callable[[], Awaitable[None]],
        **options: Any,
    ) -> None:
        self.wire = wire
        self.app = app  # None when it is in another process
        self._reach = reach
        self.stop = stop
        self.options = options

    async def client(self, **options: Any) -> Client:
        """A client that has yet to connect, and connects once: the wire is what is looked at."""
        return Client(await self._reach(), **{"reconnect": False, **self.options, **options})

    async def transport(self) -> Transport:
        """The client's side of the wire alone, to say on it whatever one likes."""
        target = await self._reach()
        route = find_target(target, ReachOptions(**self.options))
        assert route.transport is not None
        return route.transport(Limits())


def _local(make: Callable[[], tuple[Any, Any]]) -> Callable[..., Any]:
    """A wire that is two objects of this process."""

    @asynccontextmanager
    async def open_place(wire: str, folder: Path, app: Server) -> AsyncIterator[Place]:
        served: list[Any] = []

        async def reach() -> Any:
            near, far = make()
            served.append(await app.connect(far))
            return near

        async def stop() -> None:
            await asyncio.gather(*(connection.drain(app.core.grace) for connection in served))

        async with app.running():
            yield Place(wire, app, reach, stop)
            await stop()

    return open_place


@asynccontextmanager
async def _stdio(wire: str, folder: Path, app: Server) -> AsyncIterator[Place]:
    """A process per client; the server is the same, from its own file."""
    started: list[Any] = []

    async def reach() -> Any:
        command = [sys.executable, str(HERE / "suite_server.py")]
        options = ReachOptions(env={"PYTHONPATH": os.pathsep.join(sys.path)})
        route = find_target(command, options)
        assert route.transport is not None
        started.append(route.transport(Limits()))
        return started[-1]

    async def stop() -> None:
        process = psutil.Process(started[-1].pid)
        process.send_signal(signal.SIGTERM)
        with suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.01)

    yield Place(wire, None, reach, stop)


def _listening(make: Callable[[Path, int], tuple[Any, str, dict[str, Any]]]) -> Callable[..., Any]:
    """A wire with an address."""

    @asynccontextmanager
    async def open_place(wire: str, folder: Path, app: Server) -> AsyncIterator[Place]:
        spec, url, options = make(folder, free_port())
        async with serving(app, spec) as task:

            async def reach() -> str:
                return url

            async def stop() -> None:
                task.cancel()
                await asyncio.wait([task])

            yield Place(wire, app, reach, stop, **options)

    return open_place


@asynccontextmanager
async def serving(app: Server, *wires: Any) -> AsyncIterator["asyncio.Task[None]"]:
    """Serve until the end of the block, and not before every wire is open."""
    task = asyncio.create_task(app.serve(*wires))
    try:
        for wire in wires:
            await _until_open(wire, task)
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def _until_open(wire: Any, task: "asyncio.Task[None]") -> None:
    while not task.done():
        try:
            if isinstance(wire, Unix):
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(wire.path))
            else:
                port = wire.port
                socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            await asyncio.sleep(0.01)
        else:
            return


@asynccontextmanager
async def _machines(wire: str, folder: Path, app: Server) -> AsyncIterator[Place]:
    """Three servers that share a Redis, behind a balancer: every request lands at the next one."""
    opened = _three_processes if is_asked_for() else _three_servers
    async with opened(wire) as found:
        yield found


class ForkedGrowth(Growth):
    """Adds a tool at every one of some processes."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._wanted = SharedFlag()
        self._done = SharedNotes()

    async def watch(self) -> None:
        """Add the tool here when any process wants it."""
        await self._wanted.wait()
        self.add()
        self._done.append(str(os.getpid()))

    async def everywhere(self) -> None:
        self._wanted.set()
        await eventually(lambda: len(self._done) == self._count)


@asynccontextmanager
async def _three_processes(wire: str) -> AsyncIterator[Place]:
    happenings, growth = Happenings(SharedNotes()), ForkedGrowth(MACHINES)
    server = make_machine(happenings, growth, store=fresh_address())
    growth.machines.append(server)
    ports = [free_port() for _ in range(MACHINES)]
    workers = [WorkerProcess(server, port, {}, growth.watch) for port in ports]
    try:
        for worker in workers:
            await worker.is_up()
        async with balancing(ports) as balancer:

            async def reach() -> str:
                return f"http://127.0.0.1:{balancer.port}/mcp"

            yield Place(wire, None, reach, lambda: stop_workers(workers))
            await stop_workers(workers)
    finally:
        kill_workers(workers)


@asynccontextmanager
async def _three_servers(wire: str) -> AsyncIterator[Place]:
    ports = [free_port() for _ in range(MACHINES)]
    async with AsyncExitStack() as stack:
        tasks = [
            await stack.enter_async_context(serving(machine, Http(port=port)))
            for machine, port in zip(
                make_machines(MACHINES, store=fresh_address()), ports, strict=True
            )
        ]
        balancer = await stack.enter_async_context(balancing(ports))

        async def reach() -> str:
            return f"http://127.0.0.1:{balancer.port}/mcp"

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        yield Place(wire, None, reach, stop)


def _tcp(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    return Tcp(port=port), f"tcp://127.0.0.1:{port}", {}


def _tls(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    authority = Authority(folder)
    own = authority.vouch("server")
    spec = Tcp(port=port, certificate=own.certificate, key=own.key)
    return spec, f"tls://127.0.0.1:{port}", {"tls": Tls(ca=authority.ca)}


def _unix(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    path = folder / "s"
    return Unix(path=path), f"unix://{path}", {}


def _ws(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    return WebSocket(port=port), f"ws://127.0.0.1:{port}", {}


def _wss(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    authority = Authority(folder)
    own = authority.vouch("server")
    spec = WebSocket(port=port, certificate=own.certificate, key=own.key)
    return spec, f"wss://127.0.0.1:{port}", {"tls": Tls(ca=authority.ca)}


def _http(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    return Http(port=port), f"http://127.0.0.1:{port}/mcp", {}


def _mounted(folder: Path, port: int) -> tuple[Any, str, dict[str, Any]]:
    return Http(port=port, websocket="/ws"), f"ws://127.0.0.1:{port}/ws", {}


_PLACES: dict[str, Any] = {
    "memory": _local(memory_pair),
    "custom": _local(queue_pair),
    "stdio": _stdio,
    "http": _listening(_http),
    "machines": _machines,
    "tcp": _listening(_tcp),
    "tls": _listening(_tls),
    "unix": _listening(_unix),
    "ws": _listening(_ws),
    "wss": _listening(_wss),
    "mounted": _listening(_mounted),
}


@asynccontextmanager
async def place(wire: str, folder: Path, app: Server | None = None) -> AsyncIterator[Place]:
    """Open a wire with the suite's server on it."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(_PLACES[wire](wire, folder, app or make_app()))
