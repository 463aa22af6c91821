"""What a tool declares about running as a task, and the bounds of all tasks of a server."""

from math import isfinite
from typing import Literal

from msgspec import Struct

from mcpearl.types.tools import ToolAnnotations, ToolExecution


class Tasks(Struct, frozen=True, kw_only=True):
    """How a tool runs as a task: `@app.tool(task=Tasks(after=2.0))`.

    Args:
        after: Seconds the tool runs as a plain call before it becomes a task, if the client leaves
            that to the server; up to a quarter more, since calls are checked at intervals.
            `math.inf` leaves it to `ctx.become_task()`. None makes it a task at once.
        required: Refuse clients that cannot take a task, instead of running the tool as a plain call.
        ttl: Seconds from its creation until a task and its result are deleted.
        max_ttl: The most that a client can ask for instead, in seconds.
        poll: Seconds a client should wait before it asks for a task's state again.
        restart: Whether a task may be run again if its worker dies in the middle of it. By default, if
            the tool is annotated as read-only or idempotent.
        park: Seconds a question to the client waits in place. After that the tool is stopped, and run
            again from its top when the answer comes, with its earlier answers and `ctx.once` values.
    """

    after: float | None = None
    required: bool = False
    ttl: float = 3600.0
    max_ttl: float = 86_400.0
    poll: float = 1.0
    restart: bool | None = None
    park: float = 60.0

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        for name in ("ttl", "max_ttl", "poll", "park"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise ValueError(
                    f"`Tasks.{name}` must be a positive number of seconds, not {value}"
                )
        if self.ttl > self.max_ttl:
            raise ValueError(f"`Tasks.ttl` is {self.ttl:g}, over `max_ttl`, {self.max_ttl:g}")
        if self.after is not None and not self.after >= 0:
            raise ValueError(f"`Tasks.after` must not be negative: {self.after}")

    def repeatable(self, annotations: ToolAnnotations | None) -> bool:
        """Return whether the tool may be run again after its worker died.

        Args:
            annotations: What the tool says about itself.
        """
        if self.restart is not None or annotations is None:
            return bool(self.restart)
        return bool(annotations.read_only_hint or annotations.idempotent_hint)


class TaskBounds(Struct, frozen=True, kw_only=True):
    """Bounds of the tasks of a server.

    Args:
        max_running: Tasks that run at once in one process; further ones wait for their turn.
        max_result: Bytes of a result; a task with a larger one fails.
        max_journal: Bytes of questions, answers and `ctx.once` values of one task.
        max_deaths: Workers that may die while they run one task; then it fails, even if repeatable.
        lease: Seconds after which a task is taken from a worker that does not report.
    """

    max_running: int = 1000
    max_result: int = 4 << 20
    max_journal: int = 1 << 20
    max_deaths: int = 3
    lease: float = 10.0


TaskOption = bool | Literal["required"] | Tasks | None


def tasks_of(option: TaskOption) -> Tasks | None:
    """Return what the option `task` of a tool means; None for a tool that never is a task."""
    if option is None or option is False:
        return None
    if option is True:
        return Tasks()
    if option == "required":
        return Tasks(required=True)
    if isinstance(option, Tasks):
        return option
    raise TypeError(f'`task` must be True, "required" or `Tasks(…)`, not {option!r}')


def execution_of(tasks: Tasks | None) -> ToolExecution | None:
    """Return the form of this setting in a tool's definition of 2025-11-25."""
    if tasks is None:
        return None
    return ToolExecution(task_support="required" if tasks.required else "optional")
