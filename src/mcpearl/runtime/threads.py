"""A bounded pool of daemon threads for handlers that block.

Unlike those of the standard executor, its threads do not keep a process alive: a handler that never
returns costs one thread and does not delay the shutdown. The queue is bounded too. Jobs with a key get a
share of the threads: even if many jobs of one key never return, jobs of other keys find a thread.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.runtime.observer import Bound, Reached

_SHARE = 3  # a key may have this many threads for each that is left to the others
_Job = tuple["asyncio.Future[Any]", contextvars.Context, Callable[[], Any], Hashable]


class ThreadPool:
    """Runs functions off the loop, at most `size` at once and `backlog` waiting.

    >>> result = await pool.run(lambda: blocking(1, 2))

    Args:
        size: How many threads there may be.
        backlog: How many calls may wait for a thread.
        name: The name of the threads.
        refusal: The exception that `run` raises when the backlog is full or no thread can start.
        idle: Seconds after which a thread without work ends.
    """

    def __init__(
        self,
        size: int = 32,
        backlog: int = 10_000,
        name: str = "mcpearl",
        *,
        refusal: type[Exception] = RuntimeError,
        idle: float = 30.0,
    ) -> None:
        self.size = size
        self.backlog = backlog
        self._name = name
        self._refusal = refusal
        self._longest_idle = idle
        self.reached: Reached = _unobserved
        """Notified when the backlog is full: the name of the setting, and the reason."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0  # threads waiting for a job, minus jobs on their way to one
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}  # jobs of a key that run or are about to
        self._parked: dict[Hashable, deque[_Job]] = {}  # jobs of keys that have their share
        self._parked_count = 0

    @property
    def busy(self) -> int:
        """How many threads have a job."""
        return self._threads - max(self._idle, 0)

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread."""
        return self._jobs.qsize() + self._parked_count

    def counters(self) -> dict[str, int]:
        """Return how many threads there are, and how many jobs wait for one."""
        return {"threads": self._threads, "threads_waiting": self.waiting}

    async def run(self, function: Callable[[], Any], key: Hashable = None) -> Any:
        """Call `function` in a thread; return or raise what it does.

        Args:
            function: The function to call.
            key: The peer that the job is for; None for jobs that are not limited to a share.
        """
        if self.waiting >= self.backlog:
            reason = (
                f"all {self.size} threads are busy and {self.backlog} calls wait already; "
                "raise `threads`, or make the handlers `async`"
            )
            self.reached("threads", reason)
            raise self._refusal(reason)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        job = future, contextvars.copy_context(), function, key
        with self._lock:
            if key is not None and not self._may_have_another(key):
                self._parked.setdefault(key, deque()).append(job)
                self._parked_count += 1
            elif not self._start(job):
                future.cancel()  # so that it is not run later
                raise self._refusal("the system has no thread left to run this in")
        return await future

    def _start(self, job: _Job) -> bool:
        """Hand a job to the threads; False when there is no thread and none can be started."""
        key = job[3]
        if key is not None:
            self._held[key] = self._held.get(key, 0) + 1
        self._jobs.put(job)
        self._idle -= 1
        return self._idle >= 0 or self._threads >= self.size or self._add_thread()

    def _may_have_another(self, key: Hashable) -> bool:
        held = self._held.get(key, 0)
        free = self.size - (self._threads - self._idle)
        return held == 0 or held < _SHARE * free

    def _ended(self, key: Hashable) -> None:
        """Note the end of a job, and start parked jobs, keys in turn, as far as shares allow."""
        self._idle += 1
        if key is not None:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
        for waiting in list(islice(self._parked, self.size)) if self._parked else ():
            if self._threads - self._idle >= self.size:
                break
            jobs = self._parked[waiting]
            while jobs and jobs[0][0].cancelled():
                self._unpark(waiting)
            if jobs and self._may_have_another(waiting):
                self._start(self._unpark(waiting))

    def _unpark(self, key: Hashable) -> _Job:
        """Take the first job of a key; the key goes to the end of those that wait."""
        jobs = self._parked.pop(key)
        job = jobs.popleft()
        self._parked_count -= 1
        if jobs:
            self._parked[key] = jobs
        return job

    def _add_thread(self) -> bool:
        """Start a thread; return False when there is no thread and none can be started."""
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:  # the system has none left; one of the pool may become free
            return self._threads > 0
        self._threads += 1
        self._idle += 1
        return True

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._longest_idle)
            except Empty:
                if self._may_end():
                    return
                continue
            if job is None:
                return
            future, context, function, key = job
            if not future.cancelled():
                _run(future, context, function)
            del job, future, context, function
            with self._lock:
                self._ended(key)

    def _may_end(self) -> bool:
        """Whether the calling thread may end: no job is on its way to it."""
        with self._lock:
            if self._idle <= 0:
                return False
            self._idle -= 1
            self._threads -= 1
            return True

    def close(self) -> None:
        """End idle threads at once, and busy ones some time after their job."""
        with self._lock:
            idle = max(self._idle, 0)
            self._idle -= idle
            self._threads -= idle
        for _ in range(idle):
            self._jobs.put(None)


def _unobserved(bound: "Bound", detail: str) -> None:
    pass


def _run(
    future: "asyncio.Future[Any]", context: contextvars.Context, function: Callable[[], Any]
) -> None:
    loop = future.get_loop()
    result: Any = None
    error: BaseException | None = None
    try:
        result = context.run(function)
    except StopIteration as stop:  # which a future cannot carry
        error = RuntimeError(f"the handler raised StopIteration: {stop}")
    except (KeyboardInterrupt, GeneratorExit) as raised:  # the awaiting task must not raise these
        error = RuntimeError(f"the handler raised {type(raised).__name__}")
    except BaseException as raised:  # SystemExit too: the handler's exit does not end the process
        error = raised
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        pass  # the loop is closed, and with it every task that could wait for this


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
