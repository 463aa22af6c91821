"""Telling an observer that may block: in a thread of its own, behind a bounded queue."""

import logging
import queue
import threading
from typing import Any

from mcpearl.runtime import clock
from mcpearl.runtime.observer import AnsweredMessage, Counters, Observer, Outcome

logger = logging.getLogger("mcpearl.observer")


class Behind(Observer):
    """Tells another observer in a thread, so that it may block: on a network, on a disk.

    What does not fit into the queue is dropped and counted. The observer must not change what it is
    given, and `call_entered` and `call_meta` are not passed on, since calls would have to wait for them.

    >>> app = Server("weather", observer=Behind(Exporter()))

    Args:
        observer: The observer that may block.
        limit: Events that may wait for it.
    """

    def __init__(self, observer: Observer, limit: int = 10_000) -> None:
        self._observer = observer
        self._events: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue(limit)
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """How many events did not fit."""

    def started(self, counters: Counters) -> None:
        """Pass it on."""
        self._put("started", counters)

    def call_began(self, call: Any) -> list[Any]:
        """Pass it on; what the observer returns is put into the list that the end is told with."""
        noted = [clock.monotonic()]
        self._put("call_began", call, noted)
        return noted

    def call_ended(
        self, began: list[Any], call: Any, outcome: Outcome, size: int, answer: Any
    ) -> None:
        """Pass it on."""
        self._put("call_ended", began, call, outcome, size, answer)

    def message_answered(self, message: AnsweredMessage) -> None:
        """Pass it on."""
        self._put("message_answered", message)

    def connection_began(self, connection: object) -> None:
        """Pass it on."""
        self._put("connection_began", connection)

    def connection_ended(self, connection: object, reason: Exception | None) -> None:
        """Pass it on."""
        self._put("connection_ended", connection, reason)

    def bound_reached(self, bound: str, detail: str) -> None:
        """Pass it on."""
        self._put("bound_reached", bound, detail)

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Pass it on."""
        self._put("loop_blocked", what, seconds)

    def _put(self, event: str, *details: Any) -> None:
        try:
            self._events.put_nowait((event, details))
        except queue.Full:
            self.dropped += 1
            return
        if self._thread is None or not self._thread.is_alive():  # the first time, and after a fork
            self._thread = threading.Thread(target=self._work, name="mcpearl-observer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            event, details = self._events.get()
            try:
                self._tell(event, details)
            except Exception:
                logger.exception("the observer %r failed on `%s`", self._observer, event)
            del event, details

    def _tell(self, event: str, details: tuple[Any, ...]) -> None:
        if event == "call_began":
            call, noted = details
            noted[0] = self._observer.call_began(call)
        elif event == "call_ended":
            began, *rest = details
            self._observer.call_ended(began[0], *rest)
        else:
            getattr(self._observer, event)(*details)
