"""Noticing silence, with times short enough to wait for."""

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcpearl import Client, Keepalive, Server
from mcpearl.runtime.liveness import Watch

TIMES = Keepalive(interval=0.05, patience=0.05)


class Peer:
    """A connection that says when it was asked, and answers or not."""

    def __init__(self, *, answers: bool = True) -> None:
        self.heard_at = 0.0
        self.attentive = True
        self.can_ping = True
        self.answers = answers
        self.pings: list[float] = []
        self.dead = asyncio.Event()

    def ping(self, patience: float) -> bool:
        if not self.can_ping:
            return False
        self.pings.append(time.monotonic())
        if self.answers:
            asyncio.get_running_loop().call_soon(self.hear)
        return True

    def hear(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()

    def silent(self, patience: float) -> None:
        assert patience == TIMES.patience
        self.dead.set()


async def test_a_silent_peer_is_asked_again_and_again() -> None:
    peer = Peer()
    watch = Watch(asyncio.get_running_loop(), peer, TIMES)
    async with asyncio.timeout(30):
        while len(peer.pings) < 4:
            await asyncio.sleep(0.01)
    assert not peer.dead.is_set()
    watch.stop()
    asked = len(peer.pings)
    await asyncio.sleep(0.2)
    assert len(peer.pings) == asked


async def test_a_peer_that_does_not_answer_is_dead() -> None:
    peer = Peer(answers=False)
    Watch(asyncio.get_running_loop(), peer, TIMES)
    await asyncio.wait_for(peer.dead.wait(), 30)
    assert len(peer.pings) == 1


async def test_a_peer_that_talks_is_left_alone() -> None:
    peer = Peer(answers=False)
    watch = Watch(asyncio.get_running_loop(), peer, Keepalive(interval=1.0, patience=0.05))
    for _ in range(300):
        peer.hear()
        await asyncio.sleep(0.005)
    watch.stop()
    assert not peer.pings


async def test_a_peer_nobody_listens_to_is_not_blamed() -> None:
    peer = Peer(answers=False)
    peer.attentive = False
    watch = Watch(asyncio.get_running_loop(), peer, TIMES)
    await asyncio.sleep(0.3)
    watch.stop()
    assert not peer.pings
    assert not peer.dead.is_set()


async def test_nobody_is_blamed_for_our_own_sleep() -> None:
    peer = Peer(answers=False)
    times = Keepalive(interval=0.05, patience=0.2)
    watch = Watch(asyncio.get_running_loop(), peer, times)
    async with asyncio.timeout(30):
        while not peer.pings:
            await asyncio.sleep(0.005)
    time.sleep(0.5)  # the answer arrives meanwhile, and is read only after the timer ran
    await asyncio.sleep(0.02)
    assert not peer.dead.is_set()
    watch.stop()


# With a clock of the test's own, exactly


class Clock:
    """A loop of which only the time passes, as far as it is told."""

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
    """A peer on such a clock: it notes when it is asked and when it is given up."""

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
def test_the_dead_are_found_out_an_interval_and_an_answer_after_they_were_heard(
    last: float,
) -> None:
    clock, peer = watched()
    clock.pass_until(1000.0 + last)
    peer.hear()
    clock.pass_until(1200.0)
    assert peer.asked_at == [1000.0 + last + 30.0]
    assert peer.dead_at == 1000.0 + last + 40.0


def test_however_they_talked_before() -> None:
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


def test_one_that_answers_is_asked_once_in_an_interval() -> None:
    clock, peer = watched()
    for turn in range(1, 20):
        clock.pass_until(1000.0 + 32.0 * turn - 2.0)
        assert len(peer.asked_at) == turn
        clock.pass_until(1000.0 + 32.0 * turn)
        peer.hear()
    assert peer.dead_at is None


def test_one_that_could_not_be_asked_is_asked_soon_after_it_can_be() -> None:
    clock, peer = watched()
    peer.can_ping = False  # a request waits for its answer, which has a time of its own
    clock.pass_until(1095.0)
    assert not peer.asked_at
    peer.can_ping = True
    clock.pass_until(1200.0)
    assert peer.asked_at == [1100.0]
    assert peer.dead_at == 1110.0


def test_the_time_of_one_nobody_listened_to_begins_anew() -> None:
    clock, peer = watched()
    peer.attentive = False
    clock.pass_until(1095.0)
    assert not peer.asked_at
    peer.attentive = True
    clock.pass_until(1200.0)
    assert peer.asked_at == [1120.0]
    assert peer.dead_at == 1130.0


async def test_none_is_wanted() -> None:
    app = Server("quiet", keepalive=None)
    async with Client(app, keepalive=None, protocol="2025-11-25") as client:
        await client.ping()
