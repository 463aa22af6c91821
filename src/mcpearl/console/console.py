"""The console itself: which servers it can try, which pages are open, and what they may ask."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from mcpearl._version import __version__
from mcpearl.client.targets import Reachable
from mcpearl.console import actions
from mcpearl.console.actions import AnyAction
from mcpearl.console.outbox import PageEvents
from mcpearl.console.trial import Trial
from mcpearl.console.watching import Watching
from mcpearl.console.workers import FellowWorkers, NotOpen, WorkerLink, open_to_workers
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.runtime import clock
from mcpearl.server.server import Server

MAX_PAGES = 16


class Place(Struct, frozen=True):
    """A server that the console can connect to."""

    target: Reachable
    shown: str
    """What to write for it in Python, such as `server.py` or a URL; empty for an object."""
    url: str | None = None
    """Its address over HTTP, where it has one."""


class OpenPage:
    """One open page: what it is sent, and the client it tries a server with."""

    def __init__(self, id: str, console: "Console") -> None:
        self.id = id
        self.outbox = PageEvents()
        self._console = console
        self._links: list[WorkerLink] = []  # to the other workers
        self._trial: Trial | None = None
        self._opening = asyncio.Lock()
        self._roots: list[str] = []

    def watch_others(self, fellows: FellowWorkers) -> None:
        """Have the page told about the other workers too."""
        self._links = [
            WorkerLink(number, fellows.paths[number], self.outbox) for number in fellows.others
        ]

    async def do(self, action: AnyAction) -> None:
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
                self._console.watching.follow(self.outbox, action)
                for link in self._links:
                    link.follow(action)
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
        for link in self._links:
            await link.close()
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
        self.watching = Watching(server, payloads=payloads, operable=operable)
        self._is_live = server is not None
        self._payloads = payloads
        self._fellows: FellowWorkers | None = None
        self._pages: dict[str, OpenPage] = {}

    # Workers

    def use_workers(self, fellows: FellowWorkers, restarts: int) -> None:
        """Show all workers of the machine, of which this process is one.

        Args:
            fellows: The workers.
            restarts: How often this one was replaced.
        """
        self._fellows = fellows
        self.watching.worker, self.watching.restarts = fellows.number, restarts

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be open to the consoles of the other workers, if there are any, while a context lasts."""
        if self._fellows is None:
            yield
            return
        async with open_to_workers(self._fellows, self.watching, self):
            yield

    # Pages

    def open(self) -> OpenPage:
        """Make the console's side of a page. Raises `ValueError` if too many are open."""
        if len(self._pages) >= MAX_PAGES:
            raise ValueError(f"{MAX_PAGES} pages of this console are open; close one")
        token, fellows = clock.token(12), self._fellows
        page = OpenPage(token if fellows is None else f"{fellows.number}.{token}", self)
        self._pages[page.id] = page
        self._greet(page)
        self.watching.join(page.outbox)
        if fellows is not None:
            page.watch_others(fellows)
        return page

    async def leave(self, page: OpenPage) -> None:
        """Forget a page that was closed."""
        if self._pages.pop(page.id, None) is not None:
            self.watching.leave(page.outbox)
            await page.close()

    def close(self) -> None:
        """End the streams of all pages: the server stops."""
        self.watching.close()

    def _greet(self, page: OpenPage) -> None:
        places = {
            name: {"shown": each.shown, "url": each.url} for name, each in self.places.items()
        }
        page.outbox.put(
            "hello",
            page=page.id,
            version=__version__,
            places=places,
            protocols=list(SUPPORTED),
            live=self._is_live,
            operable=self.watching.operable,
            payloads=self._payloads,
            worker=self.watching.worker,
            workers=1 if self._fellows is None else len(self._fellows.paths),
        )

    # What pages ask

    async def do(self, page: str, action: AnyAction) -> None:
        """Do what an open page asks, in the worker that has the page.

        Raises:
            NotOpen: There is no such page.
            ValueError: What it asks is not possible.
        """
        found = self._pages.get(page)
        if found is not None:
            await found.do(action)
            return
        owner = None if self._fellows is None else self._fellows.owner_of(page)
        if owner is None or self._fellows is None:
            raise NotOpen(page)
        await self._fellows.pass_to_page(owner, page, action)

    async def operate(self, action: actions.Operation) -> None:
        """Stop a call, end a session or restart a part, in the worker that has it."""
        if action.worker is None or action.worker == self.watching.worker:
            self.watching.operate(action)
        elif self._fellows is None:
            raise ValueError("this server has no workers")
        else:
            await self._fellows.operate(action.worker, action)
