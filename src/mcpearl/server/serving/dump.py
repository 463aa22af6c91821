"""What a server is doing, written to the log on SIGUSR2: its parts, calls, and tasks with stacks."""

import asyncio
import logging
import os
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any

from mcpearl.protocol.events import Call
from mcpearl.runtime import clock

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")

_MOST = 200  # calls and tasks that are written out
_FRAMES = 8  # of each stack, the innermost ones
_DEEPEST = 1000  # frames that are followed


def dump(server: "Server") -> None:
    """Write the tree, the calls in flight and the tasks of the running loop to the log."""
    process = f"process {os.getpid()}"  # workers write into one log, at the same time
    logger.warning("the parts of %s, %s:\n%s", server.name, process, server.tree())
    calls = [
        call for connection in server.connections for call in connection.end.in_flight.values()
    ]
    lines = [_line(call) for call in calls[:_MOST]]
    shown = "".join(lines) + _more(len(calls))
    logger.warning("%d calls in flight in %s%s", len(calls), process, shown)
    tasks = asyncio.all_tasks()
    stacks = [_stack(task) for task in list(tasks)[:_MOST]]
    shown = "".join(stacks) + _more(len(tasks))
    logger.warning("%d tasks in %s%s", len(tasks), process, shown)


def _line(call: Call) -> str:
    from mcpearl.telemetry.recent import name_of  # loaded only when it is needed

    name = name_of(call.params)
    since = call.noted if isinstance(call.noted, float) else None
    age = "" if since is None else f", for {clock.monotonic() - since:.1f} s"
    client = "" if call.caller.client is None else f" of {call.caller.client.name:.64}"
    return f"\n  {call.method}{f' {name!a}' if name else ''}, id {call.id!a:.64}{client}{age}"


def _stack(task: "asyncio.Task[object]") -> str:
    """Return the name of a task and where it waits, through everything it awaits."""
    frames: list[tuple[FrameType, int]] = []
    waits: Any = task.get_coro()
    while waits is not None and len(frames) < _DEEPEST:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    lines = traceback.StackSummary.extract(iter(frames[-_FRAMES:])).format()
    return f"\n  {task.get_name()}\n" + "".join(lines).rstrip()


def _more(count: int) -> str:
    return f"\n  and {count - _MOST} more" if count > _MOST else ""
