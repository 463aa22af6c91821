"""The implementations every store test runs on. A new store is added here, and has to pass them all.

Each kind has a factory that is an async context manager. A bus factory returns members that are joined.
"""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from mcpearl.runtime import clock
from mcpearl.runtime.clock import SystemSource
from mcpearl.stores.bus import Bus
from mcpearl.stores.events import EventStore
from mcpearl.stores.memory_bus import MemoryBus
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.stores.memory_sessions import MemorySessionStore
from mcpearl.stores.memory_tasks import MemoryTaskStore
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_events import RedisEventStore
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_sessions import RedisSessionStore
from mcpearl.stores.redis_tasks import RedisTaskStore
from mcpearl.stores.sessions import SessionStore
from mcpearl.stores.sqlite_tasks import SqliteTaskStore
from mcpearl.stores.tasks import TaskStore
from mcpearl.stores.unix_bus import UnixBus
from tests.redis_server import fresh_address


class StillClock:
    """The time of the stores, which goes on when a test says so."""

    random_bytes = SystemSource.random_bytes

    def __init__(self) -> None:
        self._time = 1_000_000.0

    def now(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._time

    def advance(self, seconds: float) -> None:
        self._time += seconds


@asynccontextmanager
async def memory_sessions() -> AsyncIterator[SessionStore]:
    yield MemorySessionStore()


@asynccontextmanager
async def memory_events() -> AsyncIterator[EventStore]:
    store = MemoryEventStore()
    yield store
    await store.close()


@asynccontextmanager
async def memory_tasks() -> AsyncIterator[TaskStore]:
    yield MemoryTaskStore(max_tasks=20, max_per_owner=10)


@asynccontextmanager
async def sqlite_tasks() -> AsyncIterator[TaskStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteTaskStore(Path(folder) / "tasks.db", max_tasks=20, max_per_owner=10)
        await store.start()
        yield store
        await store.close()


@asynccontextmanager
async def redis_tasks(kind: str) -> AsyncIterator[TaskStore]:
    link = RedisLink(parse(fresh_address(kind)))
    store = RedisTaskStore(link, max_tasks=20, max_per_owner=10, now=lambda: clock.now())
    await store.start()
    yield store
    await store.close()


@asynccontextmanager
async def memory_bus(count: int) -> AsyncIterator[list[Bus]]:
    first = MemoryBus()
    yield [first, *(first.join() for _ in range(count - 1))]


@asynccontextmanager
async def unix_bus(count: int) -> AsyncIterator[list[Bus]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.bus" for number in range(count)]
        yield [UnixBus(number, paths) for number in range(count)]


@asynccontextmanager
async def redis_bus(count: int, kind: str = "redis") -> AsyncIterator[list[Bus]]:
    address = parse(fresh_address(kind))
    links = [RedisLink(address) for _ in range(count)]
    yield [RedisBus(link, RedisMembers(link)) for link in links]


@asynccontextmanager
async def redis_sessions(kind: str) -> AsyncIterator[SessionStore]:
    link = RedisLink(parse(fresh_address(kind)))
    bus = RedisBus(link, RedisMembers(link))
    await bus.start()
    store = RedisSessionStore(link, bus, now=lambda: clock.now())
    store.use_keys([b"k" * 32])
    yield store
    await bus.close()


@asynccontextmanager
async def redis_events(kind: str) -> AsyncIterator[EventStore]:
    link = RedisLink(parse(fresh_address(kind)))
    members = RedisMembers(link)
    bus = RedisBus(link, members)
    await bus.start()
    store = RedisEventStore(link, bus, members)
    store.start()
    yield store
    await store.close()
    await bus.close()


SESSION_STORES: dict[str, Callable[[], AbstractAsyncContextManager[SessionStore]]] = {
    "memory": memory_sessions,
    "redis": lambda: redis_sessions("redis"),
    "valkey": lambda: redis_sessions("valkey"),
}
EVENT_STORES: dict[str, Callable[[], AbstractAsyncContextManager[EventStore]]] = {
    "memory": memory_events,
    "redis": lambda: redis_events("redis"),
    "valkey": lambda: redis_events("valkey"),
}
TASK_STORES: dict[str, Callable[[], AbstractAsyncContextManager[TaskStore]]] = {
    "memory": memory_tasks,
    "sqlite": sqlite_tasks,
    "redis": lambda: redis_tasks("redis"),
    "valkey": lambda: redis_tasks("valkey"),
}
BUSES: dict[str, Callable[[int], AbstractAsyncContextManager[list[Bus]]]] = {
    "memory": memory_bus,
    "unix": unix_bus,
    "redis": redis_bus,
}
