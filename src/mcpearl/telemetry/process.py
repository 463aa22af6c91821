"""Memory, processor time and open files of this process, as the system reports them."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STATM, _FILES = Path("/proc/self/statm"), Path("/proc/self/fd")


def process_gauges() -> dict[str, dict[str, float]]:
    """Return the numbers of this process by metric, as far as the system reports them."""
    spent = os.times()
    found = {"process_cpu_seconds": spent.user + spent.system, "processes": 1.0}
    try:
        found["process_resident_memory_bytes"] = float(_STATM.read_text().split()[1]) * _PAGE
        found["process_open_fds"] = float(len(os.listdir(_FILES)))  # noqa: PTH208 (it is faster)
    except (OSError, ValueError, IndexError):
        pass  # not on Linux
    return {name: {"": number} for name, number in found.items()}
