"""Redis and Valkey as several servers: a cluster of three, and a master that Sentinel names."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from msgspec.structs import replace

from mcpearl.protocol.snapshot import Snapshot
from mcpearl.stores.redis_store import RedisStore
from mcpearl.stores.sessions import Identity, SessionRecord
from mcpearl.stores.tasks import TaskRecord
from tests.ports import free_port
from tests.redis_server import RedisServer, binary, running
from tests.waiting import eventually

ANN: Identity = ("issuer", "ann", None)


async def works(address: str) -> None:
    """Use every kind of store of two processes at an address."""
    stores = [RedisStore(address, "test") for _ in range(2)]
    for store in stores:
        await store.start([b"k" * 32])
        await store.bus.start()
        await store.tasks.start()
        await store.members.report()
    one, two = stores
    task = await one.tasks.create(TaskRecord(id="t", owner=ANN, ttl=60.0), "w", 30.0)
    assert await two.tasks.get("t", ANN) == task
    assert await two.tasks.update(task, 1) is not None
    heard: list[bytes] = []
    two.bus.subscribe("topic", heard.append)
    one.bus.publish("topic", b"a")
    await eventually(lambda: heard == [b"a"])
    state = Snapshot("2025-11-25", log_level="error")
    record = SessionRecord(id="", identity=ANN, state=state, revision=1)
    record = SessionRecord(
        id=one.sessions.new_id(record), identity=ANN, state=state, uris=("a://b",), revision=1
    )
    assert await one.sessions.save(record, 60.0)
    loaded = await two.sessions.load(record.id)
    assert loaded is not None and replace(loaded, since=0.0) == record
    assert await two.sessions.missed(loaded) == []
    one.events.append(record.id, "s", b"event")
    await one.events.stored(record.id, "s")
    assert (await two.events.after(record.id, "s", None)).events == [(1, b"event")]
    await one.names.claim("name", one)
    assert await two.names.machine_of("name") is not None
    assert await one.proofs.note("key", "id", 60.0) and not await two.proofs.note("key", "id", 60.0)
    for store in stores:
        await store.tasks.close()
        await store.bus.close()
        await store.close()


async def command(server: RedisServer, *words: Any) -> Any:
    client = redis.asyncio.Redis(unix_socket_path=str(server.socket))
    try:
        return await client.execute_command(*words)
    finally:
        await client.aclose()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_cluster_of_three(kind: str) -> None:
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        ports = [_cluster_port() for _ in range(3)]
        nodes = [stack.enter_context(running(kind, *options, port=port)) for port in ports]
        for number, node in enumerate(nodes):
            slots = range(16384 * number // 3, 16384 * (number + 1) // 3)
            await command(node, "CLUSTER", "ADDSLOTS", *slots)
            await command(nodes[0], "CLUSTER", "MEET", "127.0.0.1", ports[number])

        async def is_whole() -> bool:
            states = [await command(node, "CLUSTER", "INFO") for node in nodes]
            return all(b"cluster_state:ok" in _text(state) for state in states)

        await eventually(is_whole)
        await works("redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports))


def _text(info: Any) -> bytes:
    if isinstance(info, dict):
        return " ".join(f"{name}:{value}" for name, value in info.items()).encode()
    return bytes(info)


def _cluster_port() -> int:
    """A port whose cluster's bus, 10,000 above, is free and not among those the system hands out."""
    while True:
        port = free_port()
        if port + 10_000 >= 32_768:
            continue
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port + 10_000))
            return port


@contextmanager
def watched(master: RedisServer, tmp_path: Path) -> Iterator[int]:
    """Run a Sentinel that watches a master."""
    port = free_port()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master.port} 1\n"
    )
    program = [str(binary("valkey")), str(settings), "--sentinel"]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


async def test_a_master_that_sentinel_names(tmp_path: Path) -> None:
    with running("valkey", port=free_port()) as master, watched(master, tmp_path) as port:

        async def answers() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(answers)
        await works(f"redis+sentinel://127.0.0.1:{port}/main")
