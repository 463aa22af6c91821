"""The descendants of a process that have left its process group, on Linux.

Killing a group does not reach a process that began a session of its own. While its parent lives, it is
found among the parent's children. Each is held by a descriptor, so that no other process is killed in its
place when its number is used again. A process that has also left its parent (a daemon) is not found.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

_MOST = 1000  # about the number of processes that are looked at


class Strays:
    """The descendants of a process that are outside of its group, as they are now.

    Args:
        pid: The process, which leads its group.
    """

    def __init__(self, pid: int) -> None:
        self._held: list[int] = []
        if not hasattr(os, "pidfd_open"):
            return
        for found in _descendants(pid):
            with suppress(OSError):  # it has ended
                held = os.pidfd_open(found)
                if os.getpgid(found) == pid:
                    os.close(held)
                else:
                    self._held.append(held)

    def kill(self) -> None:
        """Kill those that still run, and release the descriptors."""
        held, self._held = self._held, []
        for descriptor in held:
            with suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _MOST:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    numbers: list[int] = []
    with suppress(OSError):  # it has ended, or this is not Linux
        for thread in Path(f"/proc/{pid}/task").iterdir():
            numbers += map(int, (thread / "children").read_text().split())
    return numbers
