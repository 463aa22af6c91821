"""What workers remember together of the proofs they saw, with real processes."""

import fcntl
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcpearl.auth import TokenRefused, VerifierUnavailable
from mcpearl.auth.server.proof_memory import OwnProofs
from mcpearl.auth.server.shared_proofs import SharedProofs
from mcpearl.runtime import clock


def forked(work: Callable[[], int]) -> int:
    """Do something in a process of its own, whose id this is; what it gives is its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    return pid


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def soon() -> float:
    return time.time() + 60


def test_one_of_many_processes_takes_it() -> None:
    proofs = SharedProofs(1000)
    until = soon()

    def race() -> int:
        taken = 0
        for number in range(50):
            try:
                proofs.note(f"key {number % 10}", f"{number}", until)
                taken += 1
            except TokenRefused:
                pass
        return taken

    assert sum(code_of(pid) for pid in [forked(race) for _ in range(4)]) == 50
    with pytest.raises(TokenRefused, match="used before"):
        proofs.note("key 1", "1", until)
    proofs.note("key 2", "1", until)  # another key's is another


def test_at_the_bound_none_is_forgotten() -> None:
    proofs = SharedProofs(32)  # one bucket of 64
    until = soon()
    for number in range(16):
        proofs.note("a", f"{number}", until)
    with pytest.raises(VerifierUnavailable, match="too many"):
        proofs.note("a", "one more", until)
    with pytest.raises(TokenRefused, match="used before"):
        proofs.note("a", "0", until)
    for key in "bcd":
        for number in range(16):
            proofs.note(key, f"{number}", until)
    with pytest.raises(VerifierUnavailable, match="too many"):
        proofs.note("e", "0", until)


def test_what_is_over_makes_room() -> None:
    proofs = SharedProofs(32)
    for number in range(16):
        proofs.note("a", f"{number}", time.time() - 1)
    for number in range(16):
        proofs.note("a", f"{number}", soon())
    with pytest.raises(VerifierUnavailable, match="too many"):
        proofs.note("a", "one more", soon())


def test_who_dies_inside_leaves_the_door_open() -> None:
    proofs = SharedProofs(32)

    def die() -> int:
        fcntl.lockf(proofs._locks, fcntl.LOCK_EX, 1, 0)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert code_of(forked(die)) == -signal.SIGKILL
    proofs.note("a", "1", soon())


def test_who_stops_inside_does_not_stop_the_others() -> None:
    proofs = SharedProofs(32)
    reading, writing = os.pipe()

    def stay() -> int:
        fcntl.lockf(proofs._locks, fcntl.LOCK_EX, 1, 0)
        os.write(writing, b"1")
        signal.pause()
        return 0

    pid = forked(stay)
    try:
        assert os.read(reading, 1) == b"1"
        with pytest.raises(VerifierUnavailable, match="locked by another worker"):
            proofs.note("a", "1", soon())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
    proofs.note("a", "1", soon())


@pytest.mark.parametrize("make", [OwnProofs, SharedProofs])
def test_a_wall_clock_that_is_set_forward_and_back_forgets_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, age = [1_000_000.0], [500.0]
    monkeypatch.setattr(clock, "now", lambda: wall[0])
    monkeypatch.setattr(clock, "monotonic", lambda: age[0])
    memory = make(100)
    memory.note("key", "one", wall[0] + 60)
    wall[0] += 3600
    memory.note("key", "two", wall[0] + 60)
    wall[0] -= 3600
    with pytest.raises(TokenRefused, match="used before"):
        memory.note("key", "one", wall[0] + 60)
    # Set back, it is good for longer than it would have been.
    wall[0] -= 3600
    age[0] += 1000
    memory.note("key", "three", wall[0] + 60)
    with pytest.raises(TokenRefused, match="used before"):
        memory.note("key", "one", wall[0] + 3660)
    # And is forgotten once it is over by both.
    wall[0] += 9000
    age[0] += 9000
    memory.note("key", "one", wall[0] + 60)
