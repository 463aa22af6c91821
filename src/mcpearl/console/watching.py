"""What is watched in this process, for its viewers: pages, and other workers that have pages.

It costs a server its counters while there is no viewer. The first viewer starts what measures, the last
one stops it. An event is encoded once, however many viewers there are.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from mcpearl.console import actions
from mcpearl.console.actions import Follow, Operation
from mcpearl.console.live import LagMeter, Live, Usage
from mcpearl.console.logs import LogTap
from mcpearl.console.outbox import PageEvents, encode_event
from mcpearl.console.watch import LiveWatch
from mcpearl.protocol.errors import McpError
from mcpearl.runtime import clock
from mcpearl.runtime.tree import NodeChange
from mcpearl.server.server import Server
from mcpearl.types.jsonrpc import INTERNAL_ERROR

logger = logging.getLogger("mcpearl.console")

EVERY = 1.0  # seconds between two looks at the server
_LOG_ROOM = 200  # records shown in one interval
_AT_ONCE = 50  # kept calls in one event, which keeps events small


class Watching:
    """Looks at one process and tells its viewers.

    Args:
        server: The server of this process; None if there is none, and only its logs are shown.
        payloads: Whether arguments and results of other clients' calls are shown.
        operable: Whether viewers may stop calls, end sessions and restart parts.
    """

    def __init__(self, server: Server | None, *, payloads: bool, operable: bool) -> None:
        self.usages: list[Usage] = []  # of the wires of the server
        self.operable = operable
        self.worker: int | None = None  # which worker this process is; None without workers
        self.restarts = 0  # of this worker
        self.watch: LiveWatch | None = None
        self.logs = LogTap(self._logged)
        self._server = server
        self._viewers: dict[PageEvents, Follow | None] = {}  # and what each of them follows
        self._live: Live | None = None  # while there is a viewer
        if server is not None:
            self.watch = LiveWatch(payloads)
            server.core.observe(self.watch)
        self._lag = LagMeter()
        self._log_room = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unfollow: Callable[[], object] = bool  # stops following the tree
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: set[asyncio.Task[None]] = set()  # sessions that are being ended

    # Viewers

    def join(self, viewer: PageEvents) -> None:
        """Tell a viewer what there is, and from now on what happens."""
        if not self._viewers:
            self._begin()
        self._viewers[viewer] = None
        viewer.add(self._event("worker", up=True, pid=os.getpid(), restarts=self.restarts))
        viewer.add(self._event("logs", rows=list(self.logs.kept)))
        if self._live is None or self.watch is None:
            return
        viewer.add(self._event("tree", root=self._live.tree()))
        kept = list(self.watch.kept)
        for first in range(0, len(kept), _AT_ONCE):
            viewer.add(self._event("calls", rows=kept[first : first + _AT_ONCE], missed=0))
        for event in self._tables(self._live):
            viewer.add(event)

    def leave(self, viewer: PageEvents) -> None:
        """Tell a viewer nothing more; with the last one, measure nothing more."""
        if viewer not in self._viewers:
            return
        del self._viewers[viewer]
        self._choose_followed()
        if not self._viewers:
            self._end()

    def follow(self, viewer: PageEvents, action: Follow) -> None:
        """Note calls of one session, trace or tool before others, for a viewer."""
        if viewer in self._viewers:
            self._viewers[viewer] = action if action.by is not None and action.value else None
            self._choose_followed()

    def close(self) -> None:
        """End what all viewers are sent: the server stops."""
        for viewer in self._viewers:
            viewer.close()

    def _choose_followed(self) -> None:
        if self.watch is not None:
            wanted = [each for each in self._viewers.values() if each is not None]
            self.watch.follow({(each.by, each.value) for each in wanted if each.by is not None})

    def _event(self, kind: str, **members: Any) -> bytes:
        return encode_event(kind, worker=self.worker, **members)

    def _tell(self, event: bytes) -> None:
        for viewer in self._viewers:
            viewer.add_live(event)

    # Looking

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.logs.start()
        self._log_room = _LOG_ROOM
        if self._server is None or self.watch is None:
            return
        self._live = Live(self._server, self.watch, self.usages)
        self.watch.begin()
        self._lag.start()
        self._unfollow = self._server.parts.follow(self._changed)
        self._timer = self._loop.call_later(EVERY, self._tick)

    def _end(self) -> None:
        self.logs.stop()
        self._unfollow()
        self._lag.stop()
        self._live = None
        if self.watch is not None:
            self.watch.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(EVERY, self._tick)
        self._log_room = _LOG_ROOM
        try:
            self._look()
        except Exception:
            logger.exception("the console could not look at the server")

    def _look(self) -> None:
        live, watch = self._live, self.watch
        if live is None or watch is None:
            return
        fresh, missed = watch.take()
        self._tell(self._event("pulse", **live.pulse(self._lag.take())))
        if fresh or missed:
            self._tell(self._event("calls", rows=fresh, missed=missed))
        for event in self._tables(live):
            self._tell(event)

    def _tables(self, live: Live) -> Iterator[bytes]:
        """Make the events that are shown as tables."""
        yield self._event("sessions", **live.sessions())
        yield self._event("running", **live.calls_in_flight())
        yield self._event("bounds", rows=live.bounds())
        if (tasks := live.tasks()) is not None:
            yield self._event("tasks", **tasks)
        if upstreams := live.upstreams():
            yield self._event("upstreams", rows=upstreams)

    def _changed(self, change: NodeChange) -> None:
        if self._live is not None:
            self._tell(self._event("tree", root=self._live.tree(), changed=change))

    def _logged(self, record: dict[str, Any]) -> None:
        """Send a record to all viewers, from whichever thread it was logged on."""
        if self._log_room > 0 and self._loop is not None:
            self._log_room -= 1
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._show_log, record)

    def _show_log(self, record: dict[str, Any]) -> None:
        self._tell(self._event("logs", rows=[record]))

    # Operating

    def operate(self, action: Operation) -> None:
        """Stop a call, end a session or restart a part. Raises `ValueError` when it is gone."""
        live, server = self._live, self._server
        if live is None or server is None:
            raise ValueError("this console watches no server")
        if not self.operable:
            raise ValueError("this console only shows: it was started with `operable=False`")
        match action:
            case actions.StopCall(number=number):
                running = next((r for r in live.running.values() if r.number == number), None)
                error = McpError(INTERNAL_ERROR, "The call was stopped by the server's operator")
                if running is None or not running.connection.abort(running.call, error):
                    raise ValueError("the call is over already")
                logger.warning("a call of %s was stopped from the console", running.call.method)
            case actions.EndSession(number=number):
                connection = live.find_connection(number)
                session = None if connection is None else connection.session
                if session is None:
                    raise ValueError("the session has ended already")
                logger.warning("%r was ended from the console", session)
                task = asyncio.create_task(session.close())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            case actions.RestartChild(path=[]) if self.worker is not None:
                logger.warning("worker %d is restarted from the console", self.worker)
                os.kill(os.getpid(), signal.SIGTERM)  # it drains; its parent replaces it
            case actions.RestartChild(path=path):
                if not path or not server.parts.kill(*path):
                    raise ValueError("this part does not run")
                logger.warning("%s was restarted from the console", "/".join(path))


def now_logged(level: str, text: str) -> dict[str, Any]:
    """Return a record of the console's own, which is shown among the logs and logged nowhere else."""
    return {"at": clock.now(), "level": level, "logger": logger.name, "text": text}
