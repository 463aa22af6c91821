"""A loop that is held up is noticed from a thread."""

import asyncio
import threading
import time
from types import FrameType

import pytest

from mcpearl.runtime.watchdog import Watchdog
from tests.waiting import eventually


def block(until: threading.Event) -> None:
    until.wait()


async def test_what_holds_up_the_loop_is_named_and_its_end_is_told() -> None:
    seen = threading.Event()
    found: list[str] = []
    took: list[float] = []

    def held_up(frame: FrameType) -> None:
        each: FrameType | None = frame
        while each is not None:
            found.append(each.f_code.co_name)
            each = each.f_back
        seen.set()

    watchdog = Watchdog(0.05, held_up, took.append)
    watchdog.start()
    block(seen)
    await eventually(lambda: took)
    watchdog.stop()
    assert "block" in found
    assert took[0] >= 0.05


async def test_a_loop_that_turns_is_left_alone() -> None:
    found: list[FrameType] = []
    watchdog = Watchdog(0.02, found.append, lambda seconds: None)
    watchdog.start()
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        await asyncio.sleep(0.005)
    watchdog.stop()
    assert not found
    threads = [each for each in threading.enumerate() if each.name == "mcpearl-watchdog"]
    await eventually(lambda: not any(each.is_alive() for each in threads))


def test_no_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="needs some time"):
        Watchdog(0, lambda frame: None, lambda seconds: None)
