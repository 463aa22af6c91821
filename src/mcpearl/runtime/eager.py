"""Starting a coroutine as a task that runs at once, so that short work never waits for the loop.

From Python 3.12 tasks can start eagerly by themselves. On 3.11 the same is done by hand: the step a
new task would schedule is caught and run in place, with the task as the current one. The task is
an ordinary one in every other way, so `asyncio.timeout`, task groups and anyio work in it.
"""

import asyncio
import sys
import types
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

Work = Coroutine[Any, Any, None]

if sys.version_info >= (3, 12):

    def spawn(
        loop: asyncio.AbstractEventLoop, work: Work, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Start a task for `work`: it runs up to its first wait now, and continues on the loop."""
        return asyncio.Task(work, loop=loop, context=context, eager_start=True)

    current_task = asyncio.current_task

else:
    from asyncio.tasks import _current_tasks  # type: ignore[attr-defined]

    current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None]
    current_task = _current_tasks.get  # what `asyncio.current_task` does after some checks

    class _Catcher:
        """Replaces `call_soon` while a task is created, and keeps what would have been scheduled."""

        __slots__ = ("context", "step")

        def __call__(self, step: Callable[[], Any], *, context: Context) -> None:
            self.step = step
            self.context = context

    def spawn(
        loop: asyncio.AbstractEventLoop, work: Work, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Start a task for `work`: it runs up to its first wait now, and continues on the loop."""
        caught = _Catcher()
        try:
            loop.call_soon = caught  # type: ignore[method-assign, assignment]
        except AttributeError:  # a loop with slots; the task starts in its next iteration
            return loop.create_task(work, context=context)
        try:
            # Generating a name takes time.
            task = asyncio.Task(work, loop=loop, name="mcpearl", context=context)
        finally:
            del loop.call_soon
        current = _current_tasks.get(loop)
        if current is not None:
            _leave_task(loop, current)
        try:
            caught.context.run(caught.step)
        finally:
            if current is not None:
                _enter_task(loop, current)
        return task


async def nothing() -> None:
    """Do nothing. A task that was spawned with it has ended."""


def run_through(
    loop: asyncio.AbstractEventLoop,
    work: Work,
    stand_in: "asyncio.Task[None]",
    context: Context | None = None,
) -> asyncio.Task[None] | None:
    """Run work that is expected to end without waiting, in a context of its own but without a task.

    A task costs a sixth of a short call. Work that waits after all continues in a task.

    Args:
        loop: The running loop.
        work: What is run.
        stand_in: A task that has ended: the current one, for code that asks.
        context: The context to run in; by default a copy of the current one.

    Returns:
        The task that continues the work; None if it has ended.
    """
    if context is None:
        context = copy_context()
    current = current_task(loop)
    if current is not None:
        _leave_task(loop, current)
    _enter_task(loop, stand_in)
    try:
        awaited = context.run(work.send, None)
    except StopIteration:
        return None
    finally:
        _leave_task(loop, stand_in)
        if current is not None:
            _enter_task(loop, current)
    return spawn(
        loop, _resumed(work, awaited), context
    )  # at once: one cancelled now was never begun


async def _resumed(work: Work, awaited: Any) -> None:
    await _continued(work, awaited)


@types.coroutine
def _continued(work: Work, awaited: Any) -> Generator[Any, None, None]:
    """Continue work that has yielded what it waits for."""
    while True:
        try:
            yield awaited
        except BaseException as error:
            try:
                awaited = work.throw(error)
            except StopIteration:
                return
        else:
            yield from work
            return
