"""The server processes of the fault tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .world import ServerProcess, World

WIRES = ["stdio", "tcp", "tls", "unix", "http", "ws"]


@pytest.fixture(scope="session")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that no test ends."""
    yield from _serving(tmp_path_factory.mktemp("server"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One of the test's own, to be killed."""
    yield from _serving(tmp_path)


@pytest.fixture
def wary_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One that soon asks silent clients whether they are there."""
    yield from _serving(tmp_path, PING_INTERVAL="0.3", PING_PATIENCE="2")


@pytest.fixture(scope="session")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that holds little for clients that do not read, and no test ends."""
    # Over HTTP what is held is bounded likewise, and the connection goes with the time.
    bounds = {"MAX_OUTGOING": "4000000", "HTTP_STALLED": "1"}
    yield from _serving(tmp_path_factory.mktemp("server"), **bounds)


@pytest.fixture(scope="session")
def impatient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that does not wait long for clients that do not read, and no test ends."""
    times = {"STALL_TIMEOUT": "1", "HTTP_STALLED": "1"}
    yield from _serving(tmp_path_factory.mktemp("server"), **times)


def _serving(folder: Path, **environment: str) -> Iterator[ServerProcess]:
    process = ServerProcess(folder, **environment)
    process.start()
    try:
        yield process
    finally:
        process.close()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def world(wire: str, lasting_server: ServerProcess, tmp_path: Path) -> AsyncIterator[World]:
    """A network in front of the server that lasts."""
    async with World(wire, lasting_server, tmp_path).standing() as world:
        yield world


@pytest.fixture
async def fragile(wire: str, server: ServerProcess, tmp_path: Path) -> AsyncIterator[World]:
    """A network in front of a server of the test's own."""
    async with World(wire, server, tmp_path).standing() as world:
        yield world


@pytest.fixture
async def strict(wire: str, strict_server: ServerProcess, tmp_path: Path) -> AsyncIterator[World]:
    """A network in front of the server that holds little."""
    async with World(wire, strict_server, tmp_path).standing() as world:
        yield world


@pytest.fixture
async def impatient(
    wire: str, impatient_server: ServerProcess, tmp_path: Path
) -> AsyncIterator[World]:
    """A network in front of the server that does not wait long."""
    async with World(wire, impatient_server, tmp_path).standing() as world:
        yield world
