"""Machines in network namespaces of their own, each on a cable to the process that runs the scene.

The scene enters a namespace of its own first (`enter`), so that nothing outside is touched; the kernel
removes cables and addresses with the processes. It takes Linux, `ip`, `unshare` and the rights.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.redis_server import end_with_parent
from tests.waiting import wait_until

_INSIDE = "MCPEARL_SCENE_INSIDE"


def are_possible() -> bool:
    """Whether this system lets the scene have namespaces."""
    if sys.platform != "linux" or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    tried = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"],
        capture_output=True,
    )
    return tried.returncode == 0


def enter() -> None:
    """Start this program again in a namespace of its own, unless it is in one."""
    if os.environ.get(_INSIDE) is None:
        os.environ[_INSIDE] = "1"
        own = [sys.executable, *sys.orig_argv[1:]]
        os.execvp("unshare", ["unshare", "-n", *own])
    _ip("link", "set", "lo", "up")


class Cabled:
    """A namespace for one machine, and the cable to it."""

    def __init__(self, number: int) -> None:
        self.near, self.host = f"10.77.{number}.1", f"10.77.{number}.2"
        self._cable = f"machine{number}"
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sleep", "infinity"], preexec_fn=end_with_parent
        )
        own = Path("/proc/self/ns/net").readlink()
        wait_until(lambda: Path(f"/proc/{self._holder.pid}/ns/net").readlink() != own)
        pid = str(self._holder.pid)
        self.prefix = ["nsenter", "-t", pid, "-n"]
        """What a command begins with that runs in there."""
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _ip("addr", "add", f"{self.near}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        for inside in (
            ["addr", "add", f"{self.host}/30", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):
            subprocess.run([*self.prefix, "ip", *inside], check=True)

    def cut(self) -> None:
        """Cut the cable: packets are lost both ways, and connections do not hear of it."""
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        """Join the cable again."""
        _ip("link", "set", self._cable, "up")

    def close(self) -> None:
        """Remove the namespace."""
        self._holder.kill()
        self._holder.wait()


def _ip(*command: str) -> None:
    subprocess.run(["ip", *command], check=True)
