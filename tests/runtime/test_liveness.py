"""Noticing a peer that has fallen silent."""

import asyncio
import heapq
import random
from collections.abc import Callable
from typing import Any

import pytest

from mcpearl import Client, Keepalive, Server
from mcpearl.runtime.liveness import Watch
from mcpearl.testing.clock import MovableClock
from tests.transports.custom_transport import QueueTransport

TIMES = Keepalive(interval=30.0, patience=10.0)


class Peer:
    """A connection on a real loop that notes its pings, and answers them or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.heard_at = 0.0
        self.attentive = True
        self.answers = answers
        self.pings = 0
        self.dead = False

    def ping(self, patience: float) -> bool:
        assert patience == TIMES.patience
        self.pings += 1
        if self.answers:
            asyncio.get_running_loop().call_soon(self.hear)
        return True

    def hear(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()

    def silent(self, patience: float) -> None:
        assert patience == TIMES.patience
        self.dead = True


def watch(peer: Peer) -> Watch:
    return Watch(asyncio.get_running_loop(), peer, TIMES)


async def test_a_silent_peer_is_pinged_until_the_watch_is_stopped(clock: MovableClock) -> None:
    peer = Peer(answers=True)
    watching = watch(peer)
    await clock.advance(31.0 * 4 + 10.0)
    assert peer.pings == 4
    assert not peer.dead
    watching.stop()
    await clock.advance(300.0)
    assert peer.pings == 4


async def test_a_peer_that_does_not_answer_is_dead(clock: MovableClock) -> None:
    peer = Peer(answers=False)
    watch(peer)
    await clock.advance(39.0)
    assert not peer.dead
    await clock.advance(2.0)
    assert peer.dead
    assert peer.pings == 1


async def test_a_peer_that_talks_is_left_alone(clock: MovableClock) -> None:
    peer = Peer(answers=False)
    watching = watch(peer)
    for _ in range(20):
        peer.hear()
        await clock.advance(25.0)
    watching.stop()
    assert peer.pings == 0


async def test_a_peer_that_is_not_read_is_not_blamed(clock: MovableClock) -> None:
    peer = Peer(answers=False)
    peer.attentive = False
    watching = watch(peer)
    await clock.advance(300.0)
    watching.stop()
    assert peer.pings == 0
    assert not peer.dead


async def test_a_peer_is_not_blamed_for_the_sleep_of_this_process(clock: MovableClock) -> None:
    peer = Peer(answers=False)
    watch(peer)
    await clock.advance(31.0)
    assert peer.pings == 1
    clock.move(60.0)  # at once, as for a process that was suspended
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not peer.dead, "the answer may have come meanwhile"
    await clock.advance(11.0)
    assert peer.dead


# With a loop of which there is only the time, to the exact second


class Clock:
    """A loop that has nothing but timers, and a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, what: Callable[[], None]) -> "Timer":
        self._made += 1
        timer = Timer(what)
        heapq.heappush(self._timers, (when, self._made, timer))
        return timer

    def pass_until(self, when: float) -> None:
        while self._timers and self._timers[0][0] <= when:
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.what()
        self.now = when


class Timer:
    def __init__(self, what: Callable[[], None]) -> None:
        self.what = what
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timed:
    """A peer on such a loop: it notes when it is pinged and when it is taken for dead."""

    def __init__(self, clock: Clock) -> None:
        self.heard_at = 0.0
        self.attentive = True
        self.can_ping = True
        self.asked_at: list[float] = []
        self.dead_at: float | None = None
        self._clock = clock

    def hear(self) -> None:
        self.heard_at = self._clock.now

    def ping(self, patience: float) -> bool:
        if self.can_ping:
            self.asked_at.append(self._clock.now)
        return self.can_ping

    def silent(self, patience: float) -> None:
        self.dead_at = self._clock.now


def watched(**times: float) -> tuple[Clock, Timed]:
    clock: Any = Clock()
    peer = Timed(clock)
    Watch(clock, peer, Keepalive(**times))
    return clock, peer


@pytest.mark.parametrize("last", [0.0, 0.1, 1.0, 15.0, 29.0, 29.9])
def test_a_dead_peer_is_found_an_interval_and_an_answer_after_it_was_heard(
    last: float,
) -> None:
    clock, peer = watched()
    clock.pass_until(1000.0 + last)
    peer.hear()
    clock.pass_until(1200.0)
    assert peer.asked_at == [1000.0 + last + 30.0]
    assert peer.dead_at == 1000.0 + last + 40.0


def test_a_dead_peer_is_found_however_it_talked_before() -> None:
    chance = random.Random(7)
    for _ in range(200):
        clock, peer = watched()
        for _ in range(chance.randrange(1, 30)):
            clock.pass_until(clock.now + chance.uniform(0.0, 39.0))
            peer.hear()
        assert peer.dead_at is None
        last = clock.now
        clock.pass_until(last + 39.9)
        assert peer.dead_at is None
        clock.pass_until(last + 40.0)
        assert peer.dead_at == pytest.approx(last + 40.0)


def test_a_peer_that_answers_is_pinged_once_per_interval() -> None:
    clock, peer = watched()
    for turn in range(1, 20):
        clock.pass_until(1000.0 + 32.0 * turn - 2.0)
        assert len(peer.asked_at) == turn
        clock.pass_until(1000.0 + 32.0 * turn)
        peer.hear()
    assert peer.dead_at is None


def test_a_peer_that_could_not_be_pinged_is_pinged_soon_after() -> None:
    clock, peer = watched()
    peer.can_ping = False  # a request waits for its answer, which has a time of its own
    clock.pass_until(1095.0)
    assert not peer.asked_at
    peer.can_ping = True
    clock.pass_until(1200.0)
    assert peer.asked_at == [1100.0]
    assert peer.dead_at == 1110.0


def test_the_interval_begins_anew_once_the_peer_is_read_again() -> None:
    clock, peer = watched()
    peer.attentive = False
    clock.pass_until(1095.0)
    assert not peer.asked_at
    peer.attentive = True
    clock.pass_until(1200.0)
    assert peer.asked_at == [1120.0]
    assert peer.dead_at == 1130.0


class Overheard(QueueTransport):
    """A transport that leaves noticing a lost peer to pings, and keeps what it was given to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def send(self, message: bytes, about: object = None) -> None:
        self.sent.append(message)
        super().send(message, about)

    def pings(self) -> int:
        return sum(b'"ping"' in message for message in self.sent)


@pytest.mark.parametrize("wanted", [True, False])
async def test_sessions_are_pinged_only_where_a_keepalive_is_wanted(
    clock: MovableClock, wanted: bool
) -> None:
    keepalive = TIMES if wanted else None
    app = Server("quiet", keepalive=keepalive)
    ours, theirs = Overheard(), Overheard()
    ours.peer, theirs.peer = theirs, ours
    async with app.running():
        await app.connect(theirs)
        async with Client(ours, keepalive=keepalive, protocol="2025-11-25"):
            await clock.advance(200.0)
            assert bool(ours.pings() + theirs.pings()) is wanted
