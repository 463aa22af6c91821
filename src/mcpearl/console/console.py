"""The console itself: which servers it can try, which server it watches, and which pages are open.

It costs a server its counters while no page is open. The first page starts what measures, the last
one stops it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from mcpearl._version import __version__
from mcpearl.client.targets import Reachable
from mcpearl.console import actions
from mcpearl.console.actions import AnyAction
from mcpearl.console.live import LagMeter, Live, Usage
from mcpearl.console.logs import LogTap
from mcpearl.console.outbox import PageEvents
from mcpearl.console.trial import Trial
from mcpearl.console.watch import LiveWatch
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.runtime import clock
from mcpearl.runtime.tree import NodeChange
from mcpearl.server.server import Server
from mcpearl.types.jsonrpc import INTERNAL_ERROR

logger = logging.getLogger("mcpearl.console")

MAX_PAGES = 16
EVERY = 1.0  # seconds between two looks at the server
_LOG_ROOM = 200  # records shown in one interval


class Place(Struct, frozen=True):
    """A server that the console can connect to."""

    target: Reachable
    shown: str
    """What to write for it in Python, such as `server.py` or a URL; empty for an object."""
    url: str | None = None
    """Its address over HTTP, where it has one."""


class OpenPage:
    """One open page: what it is sent, and the client it tries a server with."""

    def __init__(self, console: "Console") -> None:
        self.id = clock.token(12)
        self.outbox = PageEvents()
        self._console = console
        self._trial: Trial | None = None
        self._opening = asyncio.Lock()
        self._roots: list[str] = []

    async def do(self, action: AnyAction) -> Any:
        """Do what the page asks; raises `ValueError` when that is not possible."""
        match action:
            case actions.OpenServer():
                await self._open(action)
            case actions.SendRequest():
                self.trial.ask(action)
            case actions.CancelRequest(id=id):
                self.trial.cancel(id)
            case actions.AnswerQuestion():
                self.trial.answer(action)
            case actions.Send(text=text):
                self.trial.send(text)
            case actions.Roots(uris=uris):
                self._roots = uris
                if self._trial is not None:
                    self._trial.choose_roots(uris)
            case actions.Follow():
                self._console.follow(self, action)
            case actions.StopCall() | actions.EndSession() | actions.RestartChild():
                await self._console.operate(action)

    @property
    def trial(self) -> Trial:
        """The client of this page."""
        if self._trial is None:
            raise ValueError("the page is not connected to a server yet")
        return self._trial

    async def _open(self, action: actions.OpenServer) -> None:
        place = self._console.places.get(action.target)
        if place is None:
            raise ValueError(f"there is no server {action.target!r} here")
        if action.protocol not in ("auto", *SUPPORTED):
            raise ValueError(f"{action.protocol!r} is not a version of the protocol")
        async with self._opening:
            if self._trial is not None:
                await self._trial.close()
            self._trial = Trial(
                place.target, action.target, action.protocol, self._roots, self.outbox
            )

    async def close(self) -> None:
        """End what belongs to the page."""
        self.outbox.close()
        if self._trial is not None:
            await self._trial.close()


class Console:
    """One console, for one or several servers.

    Args:
        places: The servers that can be tried, by name.
        server: The server of this process that is watched; None if there is none.
        payloads: Whether arguments and results of other clients' calls are shown.
        operable: Whether the page may stop calls, end sessions and restart parts.
        key: What a page has to show to be answered; made up if not given.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        *,
        server: Server | None = None,
        payloads: bool = False,
        operable: bool = True,
        key: str | None = None,
    ) -> None:
        self.places = dict(places)
        self.key = key or clock.token(24)
        self.usages: list[Usage] = []  # of the wires of the server
        self._server = server
        self._operable = operable
        self._payloads = payloads
        self._pages: dict[str, OpenPage] = {}
        self._follows: dict[OpenPage, actions.Follow] = {}
        self._watch: LiveWatch | None = None
        self._live: Live | None = None
        if server is not None:
            self._watch = LiveWatch(payloads)
            server.core.observe(self._watch)
        self._lag = LagMeter()
        self._logs = LogTap(self._logged)
        self._log_room = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unfollow: Callable[[], object] = bool  # stops following the tree
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # Pages

    def open(self) -> OpenPage:
        """Make the console's side of a page. Raises `ValueError` if too many are open."""
        if len(self._pages) >= MAX_PAGES:
            raise ValueError(f"{MAX_PAGES} pages of this console are open; close one")
        page = OpenPage(self)
        if not self._pages:
            self._begin()
        self._pages[page.id] = page
        self._greet(page)
        return page

    def find(self, id: str) -> OpenPage | None:
        """Return the open page with this id."""
        return self._pages.get(id)

    async def leave(self, page: OpenPage) -> None:
        """Forget a page that was closed."""
        if self._pages.pop(page.id, None) is None:
            return
        self._follows.pop(page, None)
        self._choose_followed()
        if not self._pages:
            self._end()
        await page.close()

    def close(self) -> None:
        """End the streams of all pages: the server stops."""
        for page in self._pages.values():
            page.outbox.close()

    def _greet(self, page: OpenPage) -> None:
        outbox = page.outbox
        places = {
            name: {"shown": each.shown, "url": each.url} for name, each in self.places.items()
        }
        outbox.put(
            "hello",
            page=page.id,
            version=__version__,
            places=places,
            protocols=list(SUPPORTED),
            live=self._live is not None,
            operable=self._operable,
            payloads=self._payloads,
        )
        outbox.put("logs", rows=list(self._logs.kept))
        if self._live is not None and self._watch is not None:
            outbox.put("tree", root=self._live.tree())
            outbox.put("calls", rows=list(self._watch.kept), missed=0)
            self._look(page)

    # Watching

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._logs.start()
        self._log_room = _LOG_ROOM
        if self._server is None or self._watch is None:
            return
        self._live = Live(self._server, self._watch, self.usages)
        self._watch.begin()
        self._lag.start()
        self._unfollow = self._server.parts.root.follow(self._changed)
        self._timer = self._loop.call_later(EVERY, self._tick)

    def _end(self) -> None:
        self._logs.stop()
        self._unfollow()
        self._lag.stop()
        self._live = None
        if self._watch is not None:
            self._watch.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(EVERY, self._tick)
        self._log_room = _LOG_ROOM
        try:
            self._look_for_all()
        except Exception:
            logger.exception("the console could not look at the server")

    def _look_for_all(self) -> None:
        live, watch = self._live, self._watch
        if live is None or watch is None:
            return
        fresh, missed = watch.take()
        pulse = live.pulse(self._lag.take())
        for page in self._pages.values():
            page.outbox.put_live("pulse", **pulse)
            if fresh or missed:
                page.outbox.put_live("calls", rows=fresh, missed=missed)
            self._look(page)

    def _look(self, page: OpenPage) -> None:
        """Send a page what it shows as tables."""
        assert self._live is not None
        live = self._live
        page.outbox.put_live("sessions", **live.sessions())
        page.outbox.put_live("running", **live.calls_in_flight())
        page.outbox.put_live("bounds", rows=live.bounds())
        if (tasks := live.tasks()) is not None:
            page.outbox.put_live("tasks", **tasks)
        if upstreams := live.upstreams():
            page.outbox.put_live("upstreams", rows=upstreams)

    def _changed(self, change: NodeChange) -> None:
        if self._live is not None:
            root = self._live.tree()
            for page in self._pages.values():
                page.outbox.put_live("tree", root=root, changed=change)

    def _logged(self, record: dict[str, Any]) -> None:
        """Send a record to all pages, from whichever thread it was logged on."""
        if self._log_room > 0 and self._loop is not None:
            self._log_room -= 1
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._show_log, record)

    def _show_log(self, record: dict[str, Any]) -> None:
        for page in self._pages.values():
            page.outbox.put_live("logs", rows=[record])

    # Doing

    def follow(self, page: OpenPage, action: actions.Follow) -> None:
        """Note calls of one session, trace or tool before others, for a page."""
        if action.by is None or not action.value:
            self._follows.pop(page, None)
        else:
            self._follows[page] = action
        self._choose_followed()

    def _choose_followed(self) -> None:
        if self._watch is not None:
            wanted = self._follows.values()
            self._watch.follow({(each.by, each.value) for each in wanted if each.by is not None})

    async def operate(
        self, action: actions.StopCall | actions.EndSession | actions.RestartChild
    ) -> None:
        """Stop a call, end a session or restart a part. Raises `ValueError` when it is gone."""
        live, server = self._live, self._server
        if live is None or server is None:
            raise ValueError("this console watches no server")
        if not self._operable:
            raise ValueError("this console only shows: it was started with `operable=False`")
        match action:
            case actions.StopCall(number=number):
                running = next((r for r in live.running.values() if r.number == number), None)
                error = McpError(INTERNAL_ERROR, "The call was stopped by the server's operator")
                if running is None or not running.connection.abort(running.call, error):
                    raise ValueError("the call is over already")
                logger.warning("a call of %s was stopped from the console", running.call.method)
            case actions.EndSession(number=number):
                session = getattr(live.find_connection(number), "session", None)
                if session is None:
                    raise ValueError("the session has ended already")
                logger.warning("%r was ended from the console", session)
                task = asyncio.create_task(session.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            case actions.RestartChild(path=path):
                if not path or not server.parts.root.kill(*path):
                    raise ValueError("this part does not run")
                logger.warning("%s was restarted from the console", "/".join(path))
