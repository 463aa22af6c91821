"""The consoles of the workers of one machine, and how they reach each other.

A page is connected to one worker, and shows all. For each page, that worker opens a connection to each of
the others, on a Unix socket in the folder that only the workers have, and passes their events on as they
come. A request of a page may land at any worker, which hands it to the one that has the page. What
concerns a call, a session or a part goes from there to the worker that has it.

A connection begins with one line, which says what it is for (`WatchWorker`, `ForPage`, `ForWorker`). The
answer is a stream of events for the first, and one line for the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from mcpearl.console.actions import AnyAction, Follow, Operation
from mcpearl.console.outbox import MAX_LIVE, PageEvents
from mcpearl.console.watching import Watching, now_logged

logger = logging.getLogger("mcpearl.console")

_MAX_LINE = 16 * 1024 * 1024  # bytes of what a worker is asked: an action of a page, written again
_MAX_EVENT = 8 * 1024 * 1024  # bytes of one event
_RETRY = 0.5  # seconds until a worker that is not there is tried again
_PATIENCE = 10.0  # seconds for another worker to do what a page asks
_EVENT_END = b"\r\n\r\n"


class NotOpen(Exception):
    """There is no such page, at any worker."""


class WatchWorker(Struct, tag_field="for", tag="watch"):
    """A page of another worker wants to be told; further lines are what it follows."""

    follow: Follow


class ForPage(Struct, tag_field="for", tag="page"):
    """What a page of the receiving worker asks, and another worker was sent."""

    page: str
    action: AnyAction


class ForWorker(Struct, tag_field="for", tag="worker"):
    """Something to do in the receiving worker, for a page of another one."""

    action: Operation


class Done(Struct, omit_defaults=True):
    """Says that something was done, or why not."""

    error: str | None = None
    is_open: bool = True
    """Whether there is the page it was for."""


_decode = msgspec.json.Decoder(WatchWorker | ForPage | ForWorker).decode
_decode_follow = msgspec.json.Decoder(Follow).decode
_decode_done = msgspec.json.Decoder(Done).decode
_encode = msgspec.json.encode


class PageHolder(Protocol):
    """Does what pages of this worker ask."""

    async def do(self, page: str, action: AnyAction) -> None:
        """Do what an open page asks. Raises `NotOpen`, or `ValueError` when that is not possible."""
        ...


class FellowWorkers:
    """The workers, as one of them sees the others.

    Args:
        number: The number of this worker.
        paths: The sockets of the consoles of all workers.
    """

    def __init__(self, number: int, paths: list[Path]) -> None:
        self.number = number
        self.paths = paths

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers."""
        return [each for each in range(len(self.paths)) if each != self.number]

    def owner_of(self, page: str) -> int | None:
        """Return the number of the other worker that has a page; None if it would be this one."""
        number, dot, _ = page.partition(".")
        if not dot or not (number.isascii() and number.isdigit()) or len(number) > 4:
            return None
        owner = int(number)
        return owner if owner in self.others else None

    async def pass_to_page(self, owner: int, page: str, action: AnyAction) -> None:
        """Have the worker that has a page do what the page asks. Raises as `PageHolder.do`."""
        await self._ask(owner, ForPage(page, action))

    async def operate(self, worker: int, action: Operation) -> None:
        """Have another worker stop a call, end a session or restart a part. Raises `ValueError`."""
        if worker not in self.others:
            raise ValueError(f"there is no worker {worker}")
        await self._ask(worker, ForWorker(action))

    async def _ask(self, worker: int, request: ForPage | ForWorker) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_unix_connection(str(self.paths[worker]))
                try:
                    writer.write(_encode(request) + b"\n")
                    line = await reader.readline()
                finally:
                    writer.close()
            done = _decode_done(line)
        except (OSError, TimeoutError, msgspec.MsgspecError):
            raise ValueError(f"worker {worker} is gone, or does not answer") from None
        if not done.is_open:
            raise NotOpen(page_of(request))
        if done.error is not None:
            raise ValueError(done.error)


def page_of(request: ForPage | ForWorker) -> str:
    """Return the page that a request is for; empty if it is for none."""
    return request.page if isinstance(request, ForPage) else ""


class WorkerLink:
    """Tells a page about one other worker, and about its end and its replacement.

    Args:
        number: The worker.
        path: The socket of its console.
        page: What the page is sent.
    """

    def __init__(self, number: int, path: Path, page: PageEvents) -> None:
        self._number = number
        self._path = str(path)
        self._page = page
        self._follow = Follow()
        self._writer: asyncio.StreamWriter | None = None  # while it is connected
        self._was_up = False
        self._missing = False  # whether the page knows that the worker is not there
        self._task = asyncio.create_task(self._run())

    def follow(self, action: Follow) -> None:
        """Have the worker note calls of one session, trace or tool before others."""
        self._follow = action
        if self._writer is not None:
            self._writer.write(_encode(action) + b"\n")

    async def close(self) -> None:
        """End the connection."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
            except (OSError, asyncio.IncompleteReadError):
                pass  # it is being replaced, or stops
            except asyncio.LimitOverrunError:
                logger.warning("worker %d sent more than a page is shown at once", self._number)
            self._say_missing()
            await asyncio.sleep(_RETRY)

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=_MAX_EVENT)
        try:
            writer.write(_encode(WatchWorker(self._follow)) + b"\n")
            self._writer = writer
            while True:
                event = await reader.readuntil(_EVENT_END)
                if self._missing or not self._was_up:
                    self._say_up()
                self._page.add_live(event)
        finally:
            self._writer = None
            writer.close()

    def _say_up(self) -> None:
        if self._was_up:
            text = f"worker {self._number} is there again"
            self._page.put_live("logs", worker=self._number, rows=[now_logged("WARNING", text)])
        self._was_up, self._missing = True, False

    def _say_missing(self) -> None:
        if self._missing:
            return
        self._missing = True
        self._page.put("worker", worker=self._number, up=False)
        if self._was_up:
            text = f"worker {self._number} has ended"
            self._page.put_live("logs", worker=self._number, rows=[now_logged("ERROR", text)])


@asynccontextmanager
async def open_to_workers(
    fellows: FellowWorkers, watching: Watching, pages: PageHolder
) -> AsyncIterator[None]:
    """Let the other workers watch this one, and pass on what pages ask, while a context lasts.

    Args:
        fellows: The workers, with the socket of this one.
        watching: What is watched in this worker.
        pages: Does what pages of this worker ask.
    """
    path = fellows.paths[fellows.number]
    path.unlink(missing_ok=True)  # a worker that was killed leaves its socket behind
    served: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(reader, writer, watching, pages))
        served.add(task)
        task.add_done_callback(served.discard)

    server = await asyncio.start_unix_server(connected, str(path), limit=_MAX_LINE)
    try:
        yield
    finally:
        server.close()
        for task in served:
            task.cancel()
        if served:
            await asyncio.wait(served)
        path.unlink(missing_ok=True)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    watching: Watching,
    pages: PageHolder,
) -> None:
    try:
        request = _decode(await reader.readline())
        if isinstance(request, WatchWorker):
            await _show(reader, writer, watching, request.follow)
        else:
            writer.write(_encode(await _do(request, watching, pages)) + b"\n")
            await writer.drain()
    except (OSError, ValueError) as error:  # it is gone, or has another version of this code
        logger.debug("a connection of another worker's console ended: %s", error)
    finally:
        writer.close()


async def _do(request: ForPage | ForWorker, watching: Watching, pages: PageHolder) -> Done:
    try:
        if isinstance(request, ForPage):
            await pages.do(request.page, request.action)
        else:
            watching.operate(request.action)
    except NotOpen:
        return Done(is_open=False)
    except (ValueError, TypeError, OSError) as error:
        return Done(str(error))
    return Done()


async def _show(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    watching: Watching,
    follow: Follow,
) -> None:
    """Tell another worker what happens in this one, until it has heard enough."""
    viewer = PageEvents()
    watching.join(viewer)
    watching.follow(viewer, follow)
    hearing = asyncio.create_task(_hear(reader, lambda each: watching.follow(viewer, each)))
    hearing.add_done_callback(lambda _: viewer.close())
    try:
        writer.transport.set_write_buffer_limits(MAX_LIVE)
        while events := await viewer.take():
            writer.write(events)
            await writer.drain()
    finally:
        hearing.cancel()
        watching.leave(viewer)


async def _hear(reader: asyncio.StreamReader, follow: Callable[[Follow], None]) -> None:
    with suppress(OSError, ValueError):
        while line := await reader.readline():
            follow(_decode_follow(line))
