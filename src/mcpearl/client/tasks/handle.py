"""The application's handle of a task at a server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from math import inf
from typing import Any

from mcpearl.client.tasks.shapes import TaskShape
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.protocol.errors import McpearlError, TaskTimeout
from mcpearl.types.tasks import Task


class ClientTask:
    """A tool call that runs as a task at the server. Made by `start_task` and `task` of a client.

    The task goes on at the server whatever happens to this object. Its `id` is enough to get a new
    handle, even after a restart of the client.

    >>> task = await client.start_task("report", {"year": 2026})
    >>> async for state in task:
    ...     print(state.status, state.status_message)
    >>> result = await task.result()

    Args:
        id: the task's id at the server.
        shape: returns the shape of tasks at the connected server.
        check: refuses a result that breaks the tool's output schema.
        done: the result of a call that was answered at once.
    """

    def __init__(
        self,
        id: str,
        shape: Callable[[], TaskShape],
        check: Callable[[TypedToolResult[Any]], None] | None = None,
        done: TypedToolResult[Any] | None = None,
    ) -> None:
        self.id = id
        """The task's id at the server; empty for a call that was answered at once."""
        self._shape = shape
        self._check = check  # refuses results that break the tool's output schema
        self._done = done

    async def status(self) -> Task:
        """Ask the server for the task's state: its `status`, `status_message` and times."""
        if self._done is not None:
            return _ended_at_once()
        return await self._shape().get(self.id)

    async def result(
        self, timeout: float | None = None, *, cancel: bool = False
    ) -> TypedToolResult[Any]:
        """Wait for the end of the task and return the tool's result.

        The client's callbacks answer the questions of the task, each once.

        Args:
            timeout: seconds to wait; None waits as long as the task takes. When they are over,
                `TaskTimeout` is raised and the task goes on.
            cancel: whether to cancel the task if the waiting ends before the task does.
        """
        if self._done is None:
            self._done = await self._wait(timeout, cancel)
        return self._done

    async def _wait(self, timeout: float | None, cancel: bool) -> TypedToolResult[Any]:
        seconds = inf if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout) as limit:
                result = await self._shape().outcome(self.id, TypedToolResult, seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            if cancel:
                with suppress(McpearlError):
                    await self.cancel()
            if timeout is not None and limit.expired():
                raise TaskTimeout(self.id, timeout) from None
            raise error
        if self._check is not None:
            self._check(result)
        return result

    async def cancel(self) -> None:
        """Ask the server to stop the task, which may complete or fail all the same."""
        if self._done is None:
            await self._shape().cancel(self.id)

    async def __aiter__(self) -> AsyncIterator[Task]:
        """Yield each state of the task, the last one when it has ended."""
        if self._done is not None:
            yield _ended_at_once()
            return
        async for state in self._shape().states(self.id):
            yield state

    def __repr__(self) -> str:
        return f"<ClientTask {self.id[:64] or 'answered at once'}>"


def _ended_at_once() -> Task:
    return Task(task_id="", status="completed", created_at="", last_updated_at="", ttl=None)
