"""Limits that an isolated process sets for itself before its first call: memory, time, network, files."""

import os
import resource
from contextlib import suppress
from math import ceil
from pathlib import Path

from mcpearl.runtime.isolation import system
from mcpearl.runtime.isolation.profile import Isolate

_FIRST = 500  # added to the score by which the kernel picks a process to kill, out of 1000


class CannotConfine(Exception):
    """The system does not have, or does not allow, what the settings ask for."""


def confine(profile: Isolate) -> None:
    """Set the limits of this process.

    Raises:
        CannotConfine: Not all of them can be set.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _be_first_to_go()
    if not profile.network:
        _leave_network()
    if profile.files is not None or not profile.signals:
        _restrict(profile)
    memory = profile.memory_bytes
    if memory is not None:
        limit = _address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _leave_network() -> None:
    user, group = os.getuid(), os.getgid()
    try:
        system.unshare(system.CLONE_NEWNET)
        return
    except OSError:
        pass  # it needs a privilege, which the process has in a user namespace of its own
    try:
        system.unshare(system.CLONE_NEWUSER | system.CLONE_NEWNET)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(text)
    except OSError as error:
        raise CannotConfine(
            "cannot be cut off from the network: `network=False` needs a network namespace, which "
            f"this system refuses ({error}); allow user namespaces, or leave `network` out"
        ) from None


def _restrict(profile: Isolate) -> None:
    from mcpearl.runtime.isolation import landlock

    try:
        landlock.restrict(profile.files, signals=profile.signals)
    except OSError as error:
        if not profile.signals:
            raise CannotConfine(
                "cannot be kept from sending signals: `signals=False` needs Landlock as of Linux "
                f"6.12, which this kernel does not have or allow ({error}); leave `signals` out"
            ) from None
        raise CannotConfine(
            "cannot be kept to files: `files=…` needs Landlock, which this kernel does not have or "
            f"allow ({error}); leave `files` out"
        ) from None


def _be_first_to_go() -> None:
    """Make the kernel kill this process rather than the server when there is no memory left."""
    path = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        path.write_text(str(min(1000, int(path.read_text()) + _FIRST)))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class ProcessorTime:
    """Limits the processor time of each call: a process whose call uses more gets SIGXCPU.

    Args:
        seconds: Processor time that one call may use.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = ceil(seconds)
        self._limit = 0

    def renew(self) -> None:
        """Set the limit anew for the next call."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = ceil(used.ru_utime + used.ru_stime) + self._seconds
        if limit != self._limit:
            self._limit = limit
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
