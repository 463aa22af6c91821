"""Redis and Valkey as several servers: a cluster of three, and a master that Sentinel names."""

import asyncio
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import redis.asyncio
from msgspec.structs import replace

from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.stores.redis_store import RedisStore
from mcpearl.stores.sessions import Identity, SessionRecord
from mcpearl.stores.tasks import TaskRecord
from tests.deployment.machines import Machine, text_of, two_machines
from tests.ports import free_port
from tests.redis_server import RedisServer, binary, running
from tests.stores.test_events import Listener
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
    state = EndSnapshot("2025-11-25", log_level="error")
    record = SessionRecord(id="", identity=ANN, state=state, revision=1)
    record = SessionRecord(
        id=one.sessions.new_id(record), identity=ANN, state=state, uris=("a://b",), revision=1
    )
    assert await one.sessions.save(record, 60.0)
    admitted = [await each.sessions.admit("id", "ann", 3) for each in (one, two)]
    assert admitted == [True, False]
    loaded = await two.sessions.load(record.id)
    assert loaded is not None and replace(loaded, since=0.0) == record
    assert await two.sessions.missed(loaded) == []
    one.events.append(record.id, "s", b"event")
    await one.events.stored(record.id, "s")
    assert (await two.events.after(record.id, "s", None)).events == [(1, b"event")]
    readers = {f"session {number}": Listener() for number in range(5)}  # at different nodes
    for session, reader in readers.items():
        two.events.follow(session, "s", reader)
        await two.events.after(session, "s", None)
    for session in readers:
        two.events.announce(session, "s", b"news", "1")
    await eventually(
        lambda: all(reader.heard_events == [(1, b"news")] for reader in readers.values())
    )
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


async def whole_cluster(nodes: list[RedisServer], ports: list[int]) -> None:
    """Make three nodes a cluster, and wait until it serves."""
    for number, node in enumerate(nodes):
        slots = range(16384 * number // 3, 16384 * (number + 1) // 3)
        await command(node, "CLUSTER", "ADDSLOTS", *slots)
        await command(nodes[0], "CLUSTER", "MEET", "127.0.0.1", ports[number])

    async def is_whole() -> bool:
        states = [await command(node, "CLUSTER", "INFO") for node in nodes]
        return all(b"cluster_state:ok" in _text(state) for state in states)

    await eventually(is_whole)


async def test_a_cluster_of_three() -> None:
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        ports = [_cluster_port() for _ in range(3)]
        nodes = [stack.enter_context(running("redis", *options, port=port)) for port in ports]
        await whole_cluster(nodes, ports)
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
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    program = [str(binary("valkey")), str(settings), "--sentinel"]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


# Failover while calls run


async def use_through(
    machines: tuple[Machine, Machine], fail_over: Callable[[], Awaitable[None]]
) -> None:
    """Use two machines while their store fails over; nothing acknowledged may be lost."""
    one, two = machines
    begun = await one.raw.initialize()
    stream = await begun.get()
    assert (await begun.ask("resources/subscribe", {"uri": "config://a"})).status == 200
    asking = await begun.use("ask", id=50)
    request = await asking.next()
    numbers = count()
    failing = asyncio.create_task(fail_over())
    while not failing.done():  # calls go on whatever happens to the store
        called = await two.raw.call("add", {"a": 1, "b": next(numbers)})
        assert "result" in called.json
        assert "result" in (await begun.use("add", {"a": 1, "b": 1}, id=next(numbers) + 100)).json
    await failing

    reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}}

    async def is_taken() -> bool:
        return (await two.take_up(begun).post(reply)).status == 202

    await eventually(is_taken)
    assert text_of((await asking.rest())[-1]) == "decline"
    two.app.notify_resource_updated("config://a")
    assert (await stream.next())["params"] == {"uri": "config://a"}
    stream.close()


async def test_sentinel_fails_over_to_the_replica_while_calls_run(tmp_path: Path) -> None:
    with ExitStack() as stack:
        master = stack.enter_context(running("valkey", port=free_port()))
        of = ("--replicaof", f"127.0.0.1 {master.port}")
        replica = stack.enter_context(running("valkey", *of, port=free_port()))

        async def replicates() -> bool:
            linked = await command(replica, "INFO", "replication")
            return bool(linked["master_link_status"] == "up")

        await eventually(replicates)
        port = stack.enter_context(watched(master, tmp_path))  # it asks for replicas at its start
        sentinel = redis.asyncio.Redis(port=port)

        async def knows() -> bool:
            try:
                return bool(await sentinel.execute_command("SENTINEL", "REPLICAS", "main"))
            except redis.exceptions.ConnectionError:
                return False

        await eventually(knows)
        await works(f"redis+sentinel://127.0.0.1:{port}/main")

        async def fail_over() -> None:
            await command(master, "WAIT", 1, 5000)
            master.kill()  # Sentinel has noticed nothing yet

            async def is_master() -> bool:
                return (await command(replica, "INFO", "replication"))["role"] == "master"

            await eventually(is_master)

        async with two_machines(f"redis+sentinel://127.0.0.1:{port}/main") as machines:
            await use_through(machines, fail_over)
        await sentinel.aclose()


async def test_a_cluster_fails_over_while_calls_run() -> None:
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        ports = [_cluster_port() for _ in range(4)]
        nodes = [stack.enter_context(running("valkey", *options, port=port)) for port in ports]
        await whole_cluster(nodes[:3], ports[:3])
        await command(nodes[3], "CLUSTER", "MEET", "127.0.0.1", ports[0])
        address = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        await works(address)
        # The node that has what belongs to the whole deployment gets the replica, and goes.
        slot = await command(nodes[0], "CLUSTER", "KEYSLOT", "{mcpearl:shared}:bus")
        lost = nodes[min(2, int(slot) * 3 // 16384)]
        id = await command(lost, "CLUSTER", "MYID")

        async def replicates() -> bool:
            try:
                await command(nodes[3], "CLUSTER", "REPLICATE", id)
            except redis.exceptions.ResponseError:
                return False  # it does not know the node yet
            linked = await command(nodes[3], "INFO", "replication")
            return linked.get("master_link_status") == "up"

        await eventually(replicates)

        async def fail_over() -> None:
            await command(lost, "WAIT", 1, 5000)
            lost.kill()

            async def is_master() -> bool:
                return (await command(nodes[3], "INFO", "replication"))["role"] == "master"

            await eventually(is_master)

        async with two_machines(address) as machines:
            await use_through(machines, fail_over)
