"""Keeping the processors awake while single calls are timed.

A processor that has nothing to do goes to sleep, and a virtual one is lent to others. On an idle
virtual machine, what one more process adds to a call took three to five times as long as with
processors that were kept awake, also where that process only passes bytes on: that measures the
machine. On a server that is busy nothing sleeps.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SPIN = "import os\nos.nice(19)\nwhile True: pass"


@contextmanager
def awake() -> Iterator[None]:
    """Have a process of the lowest priority spin for each processor; others run before it."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()
