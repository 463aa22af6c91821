"""Time and chance: taken from the system, and from another source once one is put in place."""

import asyncio
import base64
import time
from collections.abc import Iterator

import pytest

from mcpearl.runtime import clock as clock_module
from mcpearl.runtime.clock import SystemSource, use
from mcpearl.testing.clock import MovableClock


class Fixed:
    """A source that always says the same."""

    def now(self) -> float:
        return 1_000.0

    def monotonic(self) -> float:
        return 5.0

    def random_bytes(self, count: int) -> bytes:
        return b"\xff" * count


@pytest.fixture
def fixed() -> Iterator[None]:
    use(Fixed())
    yield
    use(SystemSource)


def test_by_default_the_system_is_asked() -> None:
    before = time.time(), time.monotonic()
    said = clock_module.now(), clock_module.monotonic()
    after = time.time(), time.monotonic()
    assert before[0] <= said[0] <= after[0]
    assert before[1] <= said[1] <= after[1]
    assert len(clock_module.random_bytes(16)) == 16
    assert clock_module.random_bytes(16) != clock_module.random_bytes(16)


@pytest.mark.usefixtures("fixed")
def test_another_source_is_used_by_everything() -> None:
    assert (clock_module.now(), clock_module.monotonic()) == (1_000.0, 5.0)
    assert clock_module.random_bytes(2) == b"\xff\xff"
    assert clock_module.token(2) == "__8"
    assert clock_module.uniform(2.0, 4.0) == pytest.approx(4.0)


@pytest.mark.parametrize("count", [1, 16, 24, 32])
def test_a_token_is_its_bytes_in_base64(count: int) -> None:
    token = clock_module.token(count)
    padded = token + "=" * (-len(token) % 4)
    assert len(base64.urlsafe_b64decode(padded)) == count


def test_a_token_does_not_begin_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a task is pasted into `mcpearl tasks TARGET get ID`."""
    monkeypatch.setattr(clock_module, "random_bytes", lambda count: b"\xfb" * count)
    assert clock_module.token(3) == "A_v7"


def test_tokens_differ() -> None:
    assert clock_module.token(16) != clock_module.token(16)


def test_uniform_numbers_fill_their_range() -> None:
    numbers = [clock_module.uniform(-1.0, 3.0) for _ in range(1000)]
    assert min(numbers) >= -1.0
    assert max(numbers) <= 3.0
    assert min(numbers) < 0.0 < 2.0 < max(numbers)


# The clock of the tests


async def test_advancing_runs_each_timer_at_its_time(clock: MovableClock) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, round(loop.time() - began)))
        if name == "first":
            loop.call_later(10, note, "made by the first")

    loop.call_later(20, note, "second")
    loop.call_later(5, note, "first")
    loop.call_later(60, note, "too late")
    await clock.advance(30)
    assert ran == [("first", 5), ("made by the first", 15), ("second", 20)]
    assert round(loop.time() - began) == 30


async def test_all_clocks_move_together(clock: MovableClock) -> None:
    now, monotonic = clock_module.now(), clock_module.monotonic()
    await clock.advance(3600)
    assert 3600 <= clock_module.now() - now < 3700
    assert 3600 <= clock_module.monotonic() - monotonic < 3700


async def test_sockets_go_on_working(clock: MovableClock) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asyncio.get_running_loop().call_later(60, writer.write, b"it\n")
    await clock.advance(60)
    assert await reader.read() == b"got it\n"
    writer.close()
    server.close()
