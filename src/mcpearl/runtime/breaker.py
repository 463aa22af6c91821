"""Circuit breakers: a service that keeps failing is not called for a while, then tried once."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, TypeVar

from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Backoff, Retries, doubling

T = TypeVar("T")


class BreakerOpen(RuntimeError):
    """The call was not made, since such calls keep failing. `retry_after` is in seconds."""

    def __init__(self, name: str, retry_after: float, error: BaseException | None) -> None:
        super().__init__(
            f"{name} keeps failing ({type(error).__name__}: {error}); "
            f"it will be tried again in {retry_after:.1f} s"
        )
        self.retry_after = retry_after


class Breaker:
    """Counts failures in a row, and refuses calls while it is open.

    `closed`: calls go through. After `failures` in a row it is `open`: calls are refused with
    `BreakerOpen`. After a delay it is `half-open`: one call goes through, and closes it or opens it
    again for longer.

    >>> weather = Breaker("weather service")
    >>> async with weather:
    ...     await fetch()

    Args:
        name: What is called, for error messages.
        failures: Failures in a row that open it.
        delays: How long it stays open: the first time, the second time in a row, and so on.
        counts: The exceptions that count as failures; any other means that the call worked.
    """

    __slots__ = (
        "_counts",
        "_error",
        "_failed",
        "_failures",
        "_retries",
        "_trial",
        "_until",
        "name",
    )

    def __init__(
        self,
        name: str,
        failures: int = 5,
        delays: Backoff = Backoff(delays=doubling(1.0, 60.0)),  # noqa: B008 (it cannot be changed)
        counts: tuple[type[BaseException], ...] = (Exception,),
    ) -> None:
        if failures < 1:
            raise ValueError("a breaker opens after at least 1 failure")
        self.name = name
        self._failures = failures
        self._counts = counts
        self._retries = Retries(delays)
        self._failed = 0  # in a row
        self._until: float | None = None  # when the next trial may be made; None while closed
        self._trial: object = None  # the task that makes a trial, while it does
        self._error: BaseException | None = None  # the last failure, while not closed

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """Whether calls go through, are refused, or a single one is tried."""
        if self._until is None:
            return "closed"
        return "half-open" if self._is_tried() or clock.monotonic() >= self._until else "open"

    def enter(self) -> None:
        """Ask to make a call; the same task reports how it went, with `worked`, `failed` or `undecided`.

        Raises:
            BreakerOpen: It keeps failing.
        """
        if self._until is None:
            return
        left = self._until - clock.monotonic()
        if left > 0 or self._is_tried():
            raise BreakerOpen(self.name, max(left, 0.0), self._error)
        self._trial = _this_task()

    def _is_tried(self) -> bool:
        """Whether a trial is under way; one whose task ended without a report is not."""
        return self._trial is not None and not (
            isinstance(self._trial, asyncio.Future) and self._trial.done()
        )

    def worked(self) -> None:
        """Note that a call worked: the breaker is closed."""
        self._failed = 0
        self._trial = None
        if self._until is not None:
            self._until = self._error = None
            self._retries.start_over()

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; enough failures in a row, or a failed trial, open the breaker.

        Args:
            error: The error of the call.
        """
        self._failed += 1
        opens = self._until is None and self._failed >= self._failures
        if opens or (self._trial is not None and self._trial is _this_task()):
            self._trial = None
            self._error = error.with_traceback(None)
            self._until = clock.monotonic() + self._retries.next_delay()

    def undecided(self) -> None:
        """Note that a call was cancelled, which decides nothing: another may be tried."""
        if self._trial is _this_task():  # not a call that began before the breaker opened
            self._trial = None

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await what a function returns, inside the breaker.

        Args:
            function: Makes the call.
        """
        async with self:
            return await function()

    async def __aenter__(self) -> "Breaker":
        self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.worked()
        elif isinstance(error, self._counts):
            self.failed(error)
        elif isinstance(error, Exception):
            self.worked()
        else:
            self.undecided()


_NO_TASK = object()


def _this_task() -> object:
    """Return the running task; one object for all code that is not in a task."""
    try:
        return asyncio.current_task() or _NO_TASK
    except RuntimeError:  # there is no event loop
        return _NO_TASK
