# Written by `make sync` from client/tasks/handle.py.
"""A task at a server, for programs without an event loop."""

from collections.abc import Iterator
from typing import Any

from mcpearl.client.tasks.handle import ClientTask
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.sync.portal import Portal
from mcpearl.types.tasks import Task


class SyncClientTask:
    """A tool call that runs as a task at the server; see `ClientTask`.

    Args:
        inner: the asynchronous handle.
        portal: the loop it lives on.
    """

    def __init__(self, inner: ClientTask, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def id(self) -> str:
        """What the server knows the task by; empty for a call that was answered at once."""
        return self._inner.id

    def __iter__(self) -> Iterator[Task]:
        """Yield each state of the task, the last one when it has ended."""
        return self._portal.iterate(self._inner.__aiter__())

    def __repr__(self) -> str:
        return repr(self._inner)

    def status(self) -> Task:
        """Ask the server for the task's state: its `status`, `status_message` and times."""
        return self._portal.run(self._inner.status())

    def result(self, timeout: float | None = None, *, cancel: bool = False) -> TypedToolResult[Any]:
        """Wait for the end of the task and return the tool's result.

        The client's callbacks answer the questions of the task, each once.

        Args:
            timeout: seconds to wait; None waits as long as the task takes. When they are over,
                `TaskTimeout` is raised and the task goes on.
            cancel: whether to cancel the task if the waiting ends before the task does.
        """
        return self._portal.run(self._inner.result(timeout, cancel=cancel))

    def cancel(self) -> None:
        """Ask the server to stop the task, which may complete or fail all the same."""
        self._portal.run(self._inner.cancel())
