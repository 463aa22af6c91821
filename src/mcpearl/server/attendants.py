"""Functions of the application that are called when sessions begin and end, and for notifications.

They run on the event loop. An exception that one raises is logged and affects nothing else. The number
of functions that wait for something at once is bounded.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from mcpearl.protocol.events import Caller, Notice
from mcpearl.runtime.limited_log import LimitedLog

if TYPE_CHECKING:
    from mcpearl.server.session import Session
else:
    Session = Any  # loaded with the connections

logger = logging.getLogger("mcpearl.server")

MOST = 100_000  # functions that wait for something; more are not called

SessionListener = Callable[[Session], Any]
NoticeListener = Callable[[Notice, Caller | None], Any]


class Attendants:
    """Calls the application's functions, and owns the tasks of those that wait for something."""

    def __init__(self) -> None:
        self.on_session: list[SessionListener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        more = "%d more functions were not called within a second"
        self._uncalled = LimitedLog(logger, logging.WARNING, more)

    def attend(self, session: Session) -> None:
        """Tell every listener that a session has begun, and later that it has ended."""
        for function in self.on_session:
            self._start(function, _attend(function, session))

    def guarded(self, function: NoticeListener, method: str | None = None) -> NoticeListener:
        """Return a listener to one kind of notification, or to all, that raises nothing."""

        def listen(notice: Notice, caller: Caller | None) -> None:
            if method is not None and notice.method != method:
                return
            try:
                made = function(notice, caller)
            except Exception:
                logger.exception("%s failed on %s", _name(function), notice.method)
                return
            if inspect.iscoroutine(made) and not self._start(function, _finish(function, made)):
                made.close()

        return listen

    def _start(self, function: Any, work: Any) -> bool:
        """Start a task, if there are not too many; return whether it was started."""
        if len(self._tasks) >= MOST:
            work.close()
            self._uncalled.note("%s was not called: %d such functions wait", _name(function), MOST)
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def settle(self, seconds: float) -> None:
        """Wait a moment for the functions whose session has ended, then cancel the rest."""
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=seconds)
            for task in stuck:
                task.cancel()


async def _attend(function: SessionListener, session: Session) -> None:
    try:
        made: Any = function(session)
        if inspect.isasyncgen(made):
            await _around(made, session)
        elif inspect.isgenerator(made):
            await _around(_awaitable(made), session)
        elif inspect.iscoroutine(made):
            await _until_end(made, session)
    except Exception:
        logger.exception("%s failed on a session", _name(function))


async def _around(made: Any, session: Session) -> None:
    """Run a generator to its `yield` at the beginning of a session, and the rest at its end."""
    try:
        async for _ in made:
            await session.wait_closed()
    finally:
        await made.aclose()


async def _awaitable(made: Any) -> AsyncIterator[Any]:
    for each in made:
        yield each


async def _until_end(made: Any, session: Session) -> None:
    """Run a coroutine; cancel it if the client leaves before it is done."""
    work = asyncio.ensure_future(made)
    closing = asyncio.ensure_future(session.wait_closed())
    try:
        await asyncio.wait((work, closing), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        work.cancel()
        closing.cancel()


async def _finish(function: Any, made: Any) -> None:
    try:
        await made
    except Exception:
        logger.exception("%s failed", _name(function))


def _name(function: Any) -> str:
    return f"the function `{getattr(function, '__name__', type(function).__name__)}`"
