"""The console over HTTP: the page's files, one stream of events, and what a page asks."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import msgspec

from mcpearl.console import files
from mcpearl.console.actions import AnyAction
from mcpearl.console.console import Console, OpenPage
from mcpearl.console.guard import Guard
from mcpearl.console.live import Usage
from mcpearl.console.workers import NotOpen
from mcpearl.net.http_server.request import EVENTS, ClientLeft, Request
from mcpearl.transports.http_server.gate import Refused, busy

PAGE = b"x-console-page"
MAX_BODY = 8 * 1024 * 1024  # bytes of what a page asks
_SIGN_OF_LIFE = 15.0  # seconds of silence after which a stream carries a comment
_decode = msgspec.json.Decoder(AnyAction).decode
_EVENTS_HEADERS = ((b"content-type", EVENTS), *files.SAFE)

Read = Callable[[int], Awaitable[bytes]]


class ConsoleSite:
    """Answers all requests below one path.

    Args:
        console: What is shown.
        path: The path, such as `/console`.
        only_local: Whether requests may only come from this machine.
    """

    def __init__(self, console: Console, path: str, *, only_local: bool) -> None:
        self.path = path.rstrip("/")
        self.console = console
        self._guard = Guard(console.key, only_local=only_local)
        self._events = f"{self.path}/events"
        self._do = f"{self.path}/do"

    @property
    def address(self) -> str:
        """The path and fragment that a person opens; the fragment never leaves the browser."""
        return f"{self.path}/#key={self.console.key}"

    def watch(self, usage: Usage) -> None:
        """Show how near the bounds of the endpoint are."""
        self.console.watching.usages[:] = [usage]

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which the other workers can reach this console."""
        return self.console.running()

    def is_public(self, path: str) -> bool:
        """Whether a path is one of the page's files, which say nothing about the server."""
        return path not in (self._events, self._do)

    def is_stream(self, path: str) -> bool:
        """Whether a request for this path only waits for something to be sent."""
        return path == self._events

    def end_streams(self) -> None:
        """End the streams of all pages."""
        self.console.close()

    async def serve(self, request: Request, read: Read) -> None:
        """Answer one request; `read` reads its body up to a limit. Raises `Refused`."""
        path, method = request.path, request.method
        if self.is_public(path):
            await self._file(request)
            return
        if method != ("GET" if path == self._events else "POST"):
            raise Refused(405, f"{method} is not a method of {path}")
        self._guard.check(request)
        if path == self._events:
            await self._stream(request)
        else:
            await self._act(request, await read(MAX_BODY))

    async def _file(self, request: Request) -> None:
        self._guard.check_address(request)
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, f"{request.method} is not a method of {request.path}")
        if request.path == self.path:  # what the page loads is relative to the folder
            there = (request.root + self.path + "/").encode()
            await request.start(307, ((b"location", there), (b"content-length", b"0"), *files.SAFE))
            await request.end()
            return
        found = files.find(request.path.removeprefix(f"{self.path}/") or "index.html")
        if found is None:
            raise Refused(404, f"There is nothing at {request.path[:128]!r}")
        kind, content = found
        length = (b"content-length", b"%d" % len(content))
        await request.start(200, ((b"content-type", kind), length, *files.SAFE))
        await request.end(b"" if request.method == "HEAD" else content)

    async def _stream(self, request: Request) -> None:
        try:
            page = self.console.open()
        except ValueError as error:
            raise busy(str(error), 5) from None
        left = asyncio.create_task(request.until_gone())
        left.add_done_callback(lambda _: page.outbox.close())
        try:
            await request.start(200, _EVENTS_HEADERS)
            with suppress(ClientLeft):
                await self._write_events(request, page)
        finally:
            left.cancel()
            await self.console.leave(page)

    async def _write_events(self, request: Request, page: OpenPage) -> None:
        while not page.outbox.closed:
            try:
                async with asyncio.timeout(_SIGN_OF_LIFE):
                    events = await page.outbox.take()
            except TimeoutError:
                events = b":\r\n\r\n"
            if events:
                await request.write(events)
        await request.end()

    async def _act(self, request: Request, body: bytes) -> None:
        page = request.headers.get(PAGE, b"").decode("latin-1")
        try:
            action = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(
                400, f"The page asked something the console does not know: {error}"
            ) from None
        try:
            await self.console.do(page, action)
        except NotOpen:
            raise Refused(409, "The page is not connected any more; load it again") from None
        except (ValueError, TypeError, OSError) as error:
            await request.respond(422, msgspec.json.encode({"error": str(error)}), files.SAFE)
            return
        await request.respond(200, b"{}", files.SAFE)
