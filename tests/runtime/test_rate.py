"""Rates: bursts, refilling, memory that is bounded, and counting together with other processes."""

import os
import signal
import tracemalloc
import weakref
from pathlib import Path

import pytest

from mcpearl.runtime import clock as time
from mcpearl.runtime.rate import Meter, RateLimit
from mcpearl.testing.clock import MovableClock


@pytest.mark.parametrize("shared", [False, True])
def test_a_burst_goes_through_and_then_the_rate(clock: MovableClock, shared: bool) -> None:
    meter = Meter(RateLimit(10, per=1, burst=20))
    if shared:
        meter.share()
    assert [meter.take("a") for _ in range(20)] == [0.0] * 20
    wait = meter.take("a")
    assert 0 < wait <= 0.1
    assert meter.take("b") == 0.0, "keys do not share"
    clock.move(wait)
    assert meter.take("a") == 0.0
    assert meter.take("a") > 0
    clock.move(100)
    assert [meter.take("a") for _ in range(20)] == [0.0] * 20, "it does not save up more"
    assert meter.take("a") > 0


def test_refused_calls_do_not_count(clock: MovableClock) -> None:
    meter = Meter(RateLimit(1, per=10))
    assert meter.take("a") == 0.0
    waits = [meter.take("a") for _ in range(100)]
    assert all(0 < wait <= 10 for wait in waits)


@pytest.mark.parametrize("shared", [False, True])
def test_memory_does_not_grow_with_the_keys(shared: bool) -> None:
    meter = Meter(RateLimit(10, per=1), most=1000)
    if shared:
        meter.share()
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert meter.take(number * 7919) == 0.0
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(meter) <= 2000
    assert size < 1 << 20


class Key:
    """A caller with much about it."""


@pytest.mark.parametrize("shared", [False, True])
def test_of_a_key_nothing_is_kept(shared: bool) -> None:
    meter = Meter(RateLimit(10, per=1000))
    if shared:
        meter.share()
    key = Key()
    assert meter.take(key) == 0.0
    gone = weakref.ref(key)
    del key
    assert gone() is None


@pytest.mark.parametrize("shared", [False, True])
def test_a_million_principals_are_as_many_as_there_is_room_for(shared: bool) -> None:
    meter = Meter(RateLimit(10, per=1))
    if shared:
        meter.share()
    before = _resident()
    for number in range(1_000_000):
        assert meter.take(("issuer", f"user {number}")) == 0.0
    grown = _resident() - before
    assert grown < 64 << 20, "what docs/supervision.md says, and room for the allocator"
    if not shared:
        assert 100_000 <= len(meter) <= 200_000


def _resident() -> int:
    """Return the bytes of memory that this process has, those it shares included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_keys_seen_longest_ago_are_forgotten_first(clock: MovableClock) -> None:
    meter = Meter(RateLimit(1, per=1000), most=100)
    for number in range(199):
        meter.take(number)
        assert meter.take(0) > 0, "a key in use is never forgotten"


def forked(meter: Meter, calls: int, *, at_once: bool, key: str = "alice") -> list[int]:
    """Count calls in four processes, and return how many of each were allowed."""
    read, write = os.pipe()
    go, begin = os.pipe()
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            if at_once:
                os.read(go, 1)
            os.write(write, b"%06d" % sum(meter.take(key) == 0.0 for _ in range(calls)))
            os._exit(0)
        children.append(pid)
        if not at_once:
            os.waitpid(pid, 0)
    os.write(begin, b"    ")
    for pid in children if at_once else ():
        os.waitpid(pid, 0)
    allowed = [int(os.read(read, 6)) for _ in children]
    for end in (read, write, go, begin):
        os.close(end)
    return allowed


def test_forked_processes_count_together() -> None:
    meter = Meter(RateLimit(100, per=1000))
    meter.share()
    assert forked(meter, 30, at_once=False) == [30, 30, 30, 10]
    assert meter.take("alice") > 0


def test_forked_processes_that_count_at_once_count_together() -> None:
    meter = Meter(RateLimit(20_000, per=20_000 * 1000))  # one more after 1000 s
    meter.share()
    assert sum(forked(meter, 10_000, at_once=True)) == 20_000


def test_a_process_that_dies_while_it_counts_holds_up_the_others_once() -> None:
    meter = Meter(RateLimit(3, per=1000))
    meter.share()
    shared = meter._shared
    assert shared is not None
    pid = os.fork()
    if pid == 0:
        shared.take("bob", 0.0, Killer(), 1.0)
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert [meter.take("alice") == 0.0 for _ in range(4)] == [True, True, True, False]
    assert shared._acquire(False), "the next ones need not wait"
    shared._release()


def stopped_while_it_counts(meter: Meter) -> int:
    """Fork a process that is stopped while it counts a call of `alice`; return its id."""
    shared = meter._shared
    assert shared is not None
    pid = os.fork()
    if pid == 0:
        shared.take("alice", time.monotonic(), Stopper(meter.interval), meter._tolerance)
        os._exit(0)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return pid


def test_a_process_that_is_stopped_while_it_counts_undoes_nothing(clock: MovableClock) -> None:
    meter = Meter(RateLimit(3, per=3000))
    meter.share()
    pid = stopped_while_it_counts(meter)
    try:
        assert [meter.take(key) for key in ("alice", "alice", "bob")] == [0.0] * 3
    finally:
        os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    assert meter.take("alice") > 0, "it made one of the three calls"
    assert [meter.take("bob") == 0.0 for _ in range(3)] == [True, True, False]


def test_while_a_process_is_stopped_the_rate_holds_at_the_others(clock: MovableClock) -> None:
    meter = Meter(RateLimit(3, per=3000))
    meter.share()
    pid = stopped_while_it_counts(meter)
    try:
        assert [meter.take("bob") == 0.0 for _ in range(4)] == [True, True, True, False]
        clock.move(61)  # it is given up, and what was counted meanwhile is written
        assert meter.take("bob") > 0
        assert forked(meter, 3, at_once=False, key="bob") == [0] * 4
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Stopper(float):
    """Stops the process that adds it to something."""

    def __radd__(self, other: float) -> float:
        os.kill(os.getpid(), signal.SIGSTOP)
        return other + float(self)


class Killer(float):
    """Kills the process that adds it to something."""

    def __radd__(self, other: float) -> float:
        os.kill(os.getpid(), signal.SIGKILL)
        return other


@pytest.mark.parametrize(
    "wrong",
    [{"calls": 0}, {"calls": 1, "per": 0}, {"calls": 1, "burst": 0}, {"calls": 1, "by": "x"}],
)
def test_impossible_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="`RateLimit"):
        RateLimit(**wrong)  # type: ignore[arg-type]
