"""Coalescing: many pokes are few calls, and the last poke is never lost."""

import asyncio

from mcpearl.runtime.coalesce import Coalescer
from mcpearl.testing.clock import MovableClock


class Bell:
    def __init__(self, interval: float = 10.0) -> None:
        self.rung = 0
        self.coalescer = Coalescer(self.ring, interval)

    def ring(self) -> None:
        self.rung += 1

    def poke(self, times: int = 1) -> None:
        for _ in range(times):
            self.coalescer.poke(asyncio.get_running_loop())


async def test_the_first_poke_fires_at_once() -> None:
    bell = Bell()
    bell.poke()
    assert bell.rung == 1


async def test_many_pokes_in_an_interval_fire_twice(clock: MovableClock) -> None:
    bell = Bell()
    bell.poke(1000)
    assert bell.rung == 1
    await clock.advance(9.0)
    assert bell.rung == 1
    await clock.advance(2.0)
    assert bell.rung == 2
    await clock.advance(100.0)
    assert bell.rung == 2


async def test_a_poke_after_a_quiet_interval_fires_at_once(clock: MovableClock) -> None:
    bell = Bell()
    bell.poke()
    await clock.advance(11.0)
    bell.poke()
    assert bell.rung == 2


async def test_flushing_fires_what_was_left() -> None:
    bell = Bell(60.0)
    bell.coalescer.flush()
    assert bell.rung == 0
    bell.poke(3)
    bell.coalescer.flush()
    assert bell.rung == 2
    bell.coalescer.flush()
    assert bell.rung == 2
    bell.poke()
    assert bell.rung == 3


async def test_a_poke_while_firing_fires_again(clock: MovableClock) -> None:
    rung: list[int] = []

    def ring() -> None:
        rung.append(1)
        if len(rung) == 1:
            coalescer.poke(asyncio.get_running_loop())

    coalescer = Coalescer(ring, 10.0)
    coalescer.poke(asyncio.get_running_loop())
    assert len(rung) == 1
    await clock.advance(100.0)
    assert len(rung) == 2
