"""The family of an isolated process: how many processes it has, what they use together, and their end.

A family is an isolated process and all its descendants; the process is a subreaper, so that a descendant
that loses its parent stays in the family. The kernel limits each process by itself. The zygote looks at
families from outside, so a family that grows without end is stopped a moment later, not at once.
"""

import os
import signal
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from mcpearl.runtime.isolation.profile import Isolate

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MANY = 100_000  # most processes that are looked at if their number is not limited
_PASSES = 100  # most passes over a family that grows while it is being stopped


class Excess(IntEnum):
    """What a family has too much of."""

    CROWDED = 1
    """Half of the processes it may have: its process gets no more calls."""
    DESCENDANTS = 2
    MEMORY = 3
    CPU = 4
    OWN_CPU = 5
    """Processor time of the process itself, which has ignored SIGXCPU."""


def children(pid: int) -> list[int]:
    """Return the children of a process, those handed to it included, that it has not waited for."""
    # Not with `pathlib`: this is done many times a second.
    found: list[int] = []
    with suppress(OSError):  # it has ended meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children", "rb", 0) as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def descendants(pid: int, most: int = _MANY) -> list[int]:
    """Return all descendants of a process, including ended ones that were not waited for."""
    found = children(pid)
    for each in found:  # which grows meanwhile
        if len(found) >= most:
            break
        found += children(each)
    return found


def excess(pid: int, profile: Isolate, began_with: int) -> Excess | None:
    """Return which limit the family of a process exceeds; None if it is within all of them.

    Args:
        pid: The isolated process.
        profile: Its settings.
        began_with: Bytes of memory the process had from the start.
    """
    most = profile.descendants
    found = descendants(pid, _MANY if most is None else most + 1)
    if most is not None and len(found) > most:
        return Excess.DESCENDANTS
    if not found:
        return None
    if profile.cpu is not None and sum(map(processor_time, found)) > profile.cpu:
        return Excess.CPU
    memory = profile.memory_bytes
    if memory is not None and sum(map(_memory, (pid, *found))) > memory + began_with:
        return Excess.MEMORY
    return Excess.CROWDED if most is not None and len(found) * 2 > most else None


def end(pid: int) -> None:
    """Kill a process and everything below it.

    All are stopped first, from the top: a process that still runs could start more, and a process whose
    parent is stopped keeps its number until it is killed.
    """
    stopped: dict[int, None] = {}
    for _ in range(_PASSES):
        fresh = [each for each in (pid, *descendants(pid)) if each not in stopped]
        if not fresh:
            break
        for each in fresh:
            _signal(each, signal.SIGSTOP)
            stopped[each] = None
    for each in reversed(stopped):
        _signal(each, signal.SIGKILL)


def own_memory() -> int:
    """Return the bytes of memory that this process does not share with files."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * _PAGE


def processor_time(pid: int, *, alone: bool = False) -> float:
    """Return the processor time of a process, plus that of children it waited for unless `alone`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, text.rpartition(")")[2].split()[11 : 13 if alone else 15])) / _TICKS


def _memory(pid: int) -> int:
    """Return the memory of a process in bytes without files; shared memory is divided."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)
