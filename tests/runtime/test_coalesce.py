"""Coalescing: often poked, seldom fired, the last poke always heard."""

import asyncio

from mcpearl.runtime.coalesce import Coalescer


class Bell:
    def __init__(self, interval: float = 0.03) -> None:
        self.rung = 0
        self.coalescer = Coalescer(self.ring, interval)

    def ring(self) -> None:
        self.rung += 1

    def poke(self, times: int = 1) -> None:
        for _ in range(times):
            self.coalescer.poke(asyncio.get_running_loop())


async def test_the_first_is_told_at_once() -> None:
    bell = Bell()
    bell.poke()
    assert bell.rung == 1


async def test_many_are_two() -> None:
    bell = Bell()
    bell.poke(1000)
    assert bell.rung == 1
    await asyncio.sleep(0.1)
    assert bell.rung == 2
    await asyncio.sleep(0.1)
    assert bell.rung == 2


async def test_after_a_quiet_interval_it_is_at_once_again() -> None:
    bell = Bell()
    bell.poke()
    await asyncio.sleep(0.1)
    bell.poke()
    assert bell.rung == 2


async def test_flushing_says_now_what_was_left() -> None:
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


async def test_a_poke_from_inside_is_a_poke() -> None:
    rung: list[int] = []

    def ring() -> None:
        rung.append(1)
        if len(rung) == 1:
            coalescer.poke(asyncio.get_running_loop())

    coalescer = Coalescer(ring, 0.02)
    coalescer.poke(asyncio.get_running_loop())
    await asyncio.sleep(0.1)
    assert len(rung) == 2
