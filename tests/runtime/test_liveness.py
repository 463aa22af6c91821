"""Noticing silence, with times short enough to wait for."""

import asyncio
import time

from mcpearl import Client, Keepalive, Server
from mcpearl.runtime.liveness import Watch

TIMES = Keepalive(interval=0.05, patience=0.05)


class Peer:
    """A connection that says when it was asked, and answers or not."""

    def __init__(self, *, answers: bool = True) -> None:
        self.heard = False
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
            asyncio.get_running_loop().call_soon(setattr, self, "heard", True)
        return True

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
        peer.heard = True
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


async def test_none_is_wanted() -> None:
    app = Server("quiet", keepalive=None)
    async with Client(app, keepalive=None, protocol="2025-11-25") as client:
        await client.ping()
