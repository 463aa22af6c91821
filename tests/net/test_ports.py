"""Ports under pressure: many connections at once, and no file descriptor left for them."""

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mcpearl.net.ports import TcpPort, UnixPort
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.waiting import eventually

MANY = 300
SPARE = 5  # file descriptors that are left


@contextmanager
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        free = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + SPARE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Counted(asyncio.Protocol):
    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Counted.made += 1


async def test_many_connections_wait_to_be_accepted() -> None:
    Counted.made = 0
    number = free_port()
    port = TcpPort("127.0.0.1", number)
    await port.open(Counted)
    # Without a turn of the loop, nothing accepts them.
    clients = [socket.create_connection(("127.0.0.1", number), timeout=10) for _ in range(MANY)]
    await eventually(lambda: Counted.made == MANY)
    port.close()
    for client in clients:
        client.close()


async def test_without_descriptors_a_port_tries_again_and_does_not_flood_the_log(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    Counted.made = 0
    number = free_port()
    port = TcpPort("127.0.0.1", number)
    await port.open(Counted)
    clients = [socket.socket() for _ in range(MANY)]
    for client in clients:
        client.setblocking(False)
    with few_descriptors(), caplog.at_level(logging.ERROR, "asyncio"):
        for client in clients:
            with suppress(BlockingIOError):
                client.connect(("127.0.0.1", number))
        await eventually(lambda: caplog.records)
    assert 0 < len(caplog.records) < 100
    assert Counted.made < MANY
    await clock.advance(2)
    await eventually(lambda: Counted.made == MANY)
    port.close()
    for client in clients:
        client.close()


@pytest.mark.parametrize("turns", (0, 1))
@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_port_whose_opening_was_cancelled_can_be_opened_again(
    kind: str, turns: int, tmp_path: Path
) -> None:
    number = free_port()

    def port() -> TcpPort | UnixPort:
        return TcpPort("127.0.0.1", number) if kind == "tcp" else UnixPort(tmp_path / "s")

    opening = asyncio.ensure_future(port().open(Counted))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    again = port()
    await again.open(Counted)
    again.close()
    assert not list(tmp_path.iterdir())
