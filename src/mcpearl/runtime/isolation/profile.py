"""The settings of isolated tools: `Isolate`, and `Files` as a part of it."""

import os
import re
import sys
from collections.abc import Sequence
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpearl.runtime.arguments import refuse_text

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([A-Za-z]*)")
AnyPath = str | PathLike[str]


class Files(Struct, frozen=True):
    """Which files an isolated tool may use. Below a folder that is named, everything may be used.

    >>> Files(write=["/var/lib/app"])                 # reads everything, writes there only
    >>> Files(read=["/srv/data"], write=[])           # reads there, and Python's own files
    """

    read: Sequence[AnyPath] | None = None
    """Files and folders it may read; None for all. The interpreter's own can always be read."""
    write: Sequence[AnyPath] | None = None
    """Files and folders it may also change; None for none."""

    def __post_init__(self) -> None:
        for name, paths in (("read", self.read), ("write", self.write)):
            refuse_text(name, paths)
            for path in paths or ():
                if not Path(path).exists():
                    raise ValueError(f"`Files({name}=…)`: there is no {os.fspath(path)!r}")


class Isolate(Struct, frozen=True):
    """How a tool is run in processes of its own. Tools with equal settings share the processes.

    >>> @app.tool(isolate=Isolate(processes=2, memory="512MB", cpu=30), timeout=60)
    ... def render(page: str) -> bytes: ...
    """

    processes: int | None = None
    """How many processes there are, each with one call at a time; as many as processors by default."""
    memory: int | str | None = None
    """Memory a process may use in addition to what it starts with: bytes, or text such as `512MB`."""
    cpu: float | None = None
    """Seconds of processor time that one call may use, rounded up to whole seconds."""
    reuse: int | None = None
    """After how many calls a process is replaced; None for never."""
    network: bool = True
    """Whether it may use the network. If not, it cannot reach this machine's own addresses either."""
    files: Files | None = None
    """Which files it may use; None for all that the server can."""
    signals: bool = True
    """Whether it may send signals to processes that it has not started, such as the server."""
    descendants: int | None = 100
    """How many processes that it started may exist at once; with more, all are killed. None for any
    number."""
    queue: int = 10_000
    """How many calls may wait for a process; one more is refused."""

    def __post_init__(self) -> None:
        for name in ("processes", "reuse"):
            _check(name, getattr(self, name), 1)
        _check("queue", self.queue, 0)
        _check("descendants", self.descendants, 0)
        if self.cpu is not None and not 0 < self.cpu < inf:
            raise ValueError(f"`Isolate(cpu=…)` is a number of seconds, not {self.cpu!r}")
        self.memory_bytes  # noqa: B018 - raises for what is not a size

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self.processes or len(os.sched_getaffinity(0))

    @property
    def memory_bytes(self) -> int | None:
        """The memory in bytes."""
        if self.memory is None or isinstance(self.memory, int):
            _check("memory", self.memory, 1)
            return self.memory
        found = _SIZE.fullmatch(self.memory.strip())
        unit = None if found is None else _UNITS.get(found[2].upper())
        if found is None or unit is None:
            raise ValueError(
                f"`Isolate(memory=…)` is a number of bytes or text such as '512MB', "
                f"not {self.memory!r}"
            )
        return int(float(found[1]) * unit)

    @property
    def memory_text(self) -> str:
        """The memory as it is written in messages."""
        if isinstance(self.memory, str):
            return self.memory
        return f"{(self.memory or 0) / 1e6:g} MB"


def _check(name: str, value: Any, least: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`Isolate({name}=…)` is a whole number from {least} on, not {value!r}")


def profile_of(option: "bool | Isolate | None") -> Isolate | None:
    """Return the settings for the option `isolate=`; None for a tool that is not isolated.

    Raises:
        RuntimeError: This system is not Linux, which isolation needs.
    """
    if option is None or option is False:
        return None
    if sys.platform != "linux":
        raise RuntimeError(
            "`isolate` needs Linux; leave it out to run the tool in the server itself"
        )
    if option is True:
        return Isolate()
    if not isinstance(option, Isolate):
        raise TypeError(f"`isolate` is True or `Isolate(…)`, not {option!r}")
    return option
