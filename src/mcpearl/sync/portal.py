"""An event loop in a thread of its own, and the way into it from other threads."""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")

_THREADS = 8  # for plain functions that are called back
_UNWINDING = 10.0  # seconds a call has to end once it was interrupted


class Portal:
    """A loop in a thread. It starts with its first use, and ends with `finish`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._finishing = threading.Lock()

    def _running(self) -> asyncio.AbstractEventLoop:
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "this was called on the thread of the client's own event loop, which would wait for "
                "itself; call it from a plain function, or from another thread"
            )
        with self._starting:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                loop.set_default_executor(ThreadPoolExecutor(_THREADS, "mcpearl-sync-callback"))
                self._thread = threading.Thread(
                    target=loop.run_forever, name="mcpearl-sync", daemon=True
                )
                self._thread.start()
            return self._loop

    # Calling

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for it. An interrupt (Ctrl-C) cancels it.

        Args:
            work: The coroutine.
        """
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        done: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(functools.partial(_settle, done))

        loop.call_soon_threadsafe(begin, context=contextvars.copy_context())
        try:
            return done.result()
        except BaseException:
            if not done.done():
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                wait([done], _UNWINDING)
            raise

    def call(self, function: Callable[..., T], *given: Any) -> T:
        """Call a function on the loop's thread, and wait for it.

        Args:
            function: A plain function.
            *given: Its arguments.
        """

        async def work() -> T:
            return function(*given)

        return self.run(work())

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator.

        Args:
            items: The iterator.
        """
        close = getattr(items, "aclose", None)
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            # What is left of an iterator after its loop has ended was closed with the loop.
            if close is not None and self._loop is not None:
                self.run(close())

    # Ending

    def finish(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `closing`, then end the loop and its thread. Another use starts them again.

        Args:
            closing: Makes the coroutine that closes what lives on the loop.
        """
        if threading.current_thread() is self._thread:  # the last reference went away here
            assert self._loop is not None
            self._loop.create_task(_end(closing, self._loop))
            return
        with self._finishing:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            try:
                self.run(closing())
            finally:
                self._loop = self._thread = None
                asyncio.run_coroutine_threadsafe(_end(None, loop), loop)
                thread.join(_UNWINDING)
                if not thread.is_alive():
                    loop.close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


def _settle(done: "Future[T]", task: "asyncio.Task[T]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def _end(
    closing: Callable[[], Coroutine[Any, Any, None]] | None, loop: asyncio.AbstractEventLoop
) -> None:
    """Close, cancel what is left, and stop the loop."""
    if closing is not None:
        with contextlib.suppress(Exception):
            await closing()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        if task is not None:
            task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
    executor: ThreadPoolExecutor = loop._default_executor  # type: ignore[attr-defined]
    executor.shutdown(wait=False, cancel_futures=True)
    loop.stop()


def threaded(callback: Any) -> Any:
    """Return a callback that runs a plain function in a thread, where it may wait and use the client.

    Args:
        callback: A function of the application, or None; one that is async is returned as it is.
    """
    if callback is None or not callable(callback) or inspect.iscoroutinefunction(callback):
        return callback

    @functools.wraps(callback, updated=())
    async def call(*given: Any) -> Any:
        value = await asyncio.to_thread(callback, *given)
        return await value if inspect.isawaitable(value) else value

    return call
