"""A loop that is held up is noticed from a thread, which a supervisor restarts."""

import asyncio
import threading
import time
from types import FrameType

import pytest

from mcpearl.runtime import watchdog as watching
from mcpearl.runtime.backoff import Backoff
from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
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
    await watchdog.start()
    block(seen)
    await eventually(lambda: took)
    await watchdog.stop()
    assert "block" in found
    assert took[0] >= 0.05


async def test_a_loop_that_turns_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_GRACE", 30.0)  # for a machine that is held up itself
    found: list[FrameType] = []
    watchdog = Watchdog(0.02, found.append, lambda seconds: None)
    await watchdog.start()
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        await asyncio.sleep(0.005)
    await watchdog.stop()
    assert not found
    threads = [each for each in threading.enumerate() if each.name == "mcpearl-watchdog"]
    await eventually(lambda: not any(each.is_alive() for each in threads))
    await watchdog.ended()


async def test_a_thread_that_fails_is_shown_and_replaced() -> None:
    failed, again, took = threading.Event(), threading.Event(), list[float]()

    def held_up(frame: FrameType) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("the log is full")
        again.set()

    watchdog = Watchdog(0.05, held_up, took.append)
    soon = Backoff(delays=(0.0,))
    async with Supervisor("one", [Child("watchdog", watchdog, backoff=soon)]) as supervisor:
        block(failed)
        await eventually(lambda: supervisor.tree().children[0].restarts == 1)
        node = supervisor.tree().children[0]
        assert (node.state, node.last_error) == ("running", "OSError: the log is full")
        block(again)  # it is watched again
        await eventually(lambda: took)


async def test_a_system_without_threads_is_not_an_error_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watchdog = Watchdog(0.05, lambda frame: None, lambda seconds: None)
    soon = Backoff(delays=(0.0, 60.0))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        supervisor = Supervisor("one", [Child("watchdog", watchdog, backoff=soon)])
        await supervisor.start()
        await eventually(lambda: supervisor.tree().children[0].state == "waiting")
        node = supervisor.tree().children[0]
        assert node.last_error == "RuntimeError: can't start new thread"
    await supervisor.stop()


def test_no_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="needs some time"):
        Watchdog(0, lambda frame: None, lambda seconds: None)
