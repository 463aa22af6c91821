"""What a process does to itself before it takes its first call: limits, and what it may reach."""

import os
import resource
from math import ceil
from pathlib import Path

from mcpearl.runtime.isolation import system
from mcpearl.runtime.isolation.profile import Isolate


class CannotConfine(Exception):
    """The system does not have, or does not allow, what the settings ask for."""


def confine(profile: Isolate) -> None:
    """Set the limits of this process.

    Raises:
        CannotConfine: Not all of them can be set.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not profile.network:
        _leave_network()
    if profile.files is not None:
        _keep_to_files(profile)
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
        pass  # that takes a privilege, which a user namespace has
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


def _keep_to_files(profile: Isolate) -> None:
    from mcpearl.runtime.isolation import landlock

    assert profile.files is not None
    try:
        landlock.restrict(profile.files)
    except OSError as error:
        raise CannotConfine(
            "cannot be kept to files: `files=…` needs Landlock, which this kernel does not have or "
            f"allow ({error}); leave `files` out"
        ) from None


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class ProcessorTime:
    """Limits the processor time of each call: one that uses more is ended by SIGXCPU.

    Args:
        seconds: Of one call.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = ceil(seconds)
        self._limit = 0

    def renew(self) -> None:
        """Let the next call have its time."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = ceil(used.ru_utime + used.ru_stime) + self._seconds
        if limit != self._limit:
            self._limit = limit
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
