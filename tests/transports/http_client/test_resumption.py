"""Streams that end, and when they are opened again: servers cannot make a client ask in a loop."""

from collections.abc import AsyncIterator

import pytest

from mcpearl.testing.clock import MovableClock
from mcpearl.transports.http_client.resumption import Resumption, resume_delays
from tests.transports.http_peer import (
    HttpPeer,
    Request,
    http_peer,
    in_session,
    legacy,
    request,
    wired,
)
from tests.waiting import turns

JITTER = 0.25


@pytest.fixture
async def peer() -> AsyncIterator[HttpPeer]:
    async with http_peer() as peer:
        legacy(peer)
        yield peer


def silent(delays: list[float], expected: list[float]) -> bool:
    pairs = zip(delays, expected, strict=True)
    return all(each == pytest.approx(nominal, rel=JITTER) for each, nominal in pairs)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(0, 0.1), (99, 0.1), (100, 0.1), (150, 0.15), (60_000, 60.0), (999_999_999, 60.0)],
)
async def test_what_the_server_asks_for_has_bounds(asked: int, seconds: float) -> None:
    resumption = Resumption(resume_delays(1.0))
    for _ in range(3):  # a stream that carries events never counts as a failure
        resumption.opened()
        resumption.heard()
        assert resumption.next_delay(asked) == pytest.approx(seconds)


@pytest.mark.parametrize("asked", [None, 0])
async def test_streams_that_end_in_silence_are_failures(asked: int | None) -> None:
    resumption = Resumption(resume_delays(1.0))
    delays = []
    for _ in range(8):
        resumption.opened()
        delays.append(resumption.next_delay(asked))
    assert silent(delays, [1, 2, 4, 8, 16, 30, 30, 30])
    resumption.opened()
    resumption.heard()
    assert resumption.next_delay(None) == pytest.approx(1, rel=JITTER)


async def test_attempts_that_open_nothing_are_failures() -> None:
    resumption = Resumption(resume_delays(1.0))
    resumption.opened()
    resumption.heard()
    assert resumption.next_delay(200) == pytest.approx(0.2)
    delays = [resumption.next_delay(200) for _ in range(3)]
    assert silent(delays, [2, 4, 8])
    assert resumption.next_delay(50_000) == 50


async def test_a_silent_stream_that_stood_for_long_is_not_a_failure(clock: MovableClock) -> None:
    resumption = Resumption(resume_delays(1.0))
    for _ in range(5):
        resumption.opened()
        clock.move(100)
        assert resumption.next_delay(None) == pytest.approx(1, rel=JITTER)


async def test_a_stream_that_stood_for_a_moment_is_opened_again_soon(clock: MovableClock) -> None:
    resumption = Resumption(resume_delays(1.0))
    for _ in range(6):
        resumption.opened()
        resumption.next_delay(None)
    resumption.opened()
    clock.move(3)
    assert resumption.next_delay(None) == pytest.approx(1, rel=JITTER)


async def test_a_server_that_ends_every_standing_stream_at_once(
    peer: HttpPeer, clock: MovableClock
) -> None:
    @peer.on("GET")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk("retry: 0\n\n")
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await peer.until_asked("GET")
        for _ in range(60):
            await turns()
            await clock.advance(10)
        assert 5 < len(peer.asked("GET")) < 40  # in ten minutes


async def test_a_server_that_ends_every_resumed_stream_at_once(
    peer: HttpPeer, clock: MovableClock
) -> None:
    @peer.on("tools/call")
    async def stream(request: Request) -> None:
        await request.stream()
        await request.chunk("id: 1\nretry: 0\ndata:\n\n")
        await request.end()

    @peer.on("GET")
    async def resume(request: Request) -> None:
        if "last-event-id" not in request.headers:
            await request.respond(405)
            return
        await request.stream()
        await request.end()

    async with wired(peer) as (wire, heard):
        await in_session(wire, heard)
        await peer.until_asked("GET")
        wire.send(request(1, "tools/call", name="x"))
        await peer.until_asked("tools/call")
        for _ in range(60):
            await turns()
            await clock.advance(10)
        assert 5 < len(peer.asked("GET")) < 40
