"""Receives the browser's redirect after a login, with a server on loopback.

It accepts the one redirect that carries the `state` of this login, and shows a page with the outcome.
Everything else (other paths, other hosts, guesses, a second redirect) is refused and changes nothing.
Nothing that arrives is logged.
"""

import asyncio
import hmac
import html
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from mcpearl.protocol.errors import AuthorizationFailed

logger = logging.getLogger("mcpearl.auth")

_PATH = "/callback"
_MAX_HEAD = 16 * 1024
_MAX_CONNECTIONS = 16
_PATIENCE = 5.0  # seconds for a whole request to arrive
_LAST_WORDS = 60.0  # seconds that the browser waits for the outcome of the login
_PARTING = 2.0  # seconds for the page to reach the browser
_ONCE = ("code", "state", "iss", "error", "error_description")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d2433; --quiet: #5b6577; --ground: #f4f5f8; --card: #fff; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #eef1f6; --quiet: #a3adbd; --ground: #12151c; --card: #1c212b; }}
}}
body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--ground);
  color: var(--ink); font: 17px/1.5 system-ui, sans-serif; }}
main {{ background: var(--card); border-radius: 16px; padding: 40px 48px; max-width: 26rem; margin: 16px;
  text-align: center; box-shadow: 0 8px 40px rgb(0 0 0 / .12); }}
.sign {{ width: 56px; height: 56px; border-radius: 50%; margin: 0 auto 20px; display: grid;
  place-items: center; color: #fff; font-size: 28px; background: {colour}; }}
h1 {{ font-size: 1.4rem; margin: 0 0 8px; }}
p {{ margin: 0; color: var(--quiet); overflow-wrap: anywhere; }}
</style>
</head>
<body><main><div class="sign" aria-hidden="true">{sign}</div><h1>{title}</h1><p>{text}</p></main></body>
</html>
"""


class Arrival(NamedTuple):
    """The parameters of the redirect, and the outcome that the browser waits for."""

    parameters: dict[str, str]
    outcome: "asyncio.Future[tuple[bool, str]]"

    def tell(self, well: bool, text: str) -> None:
        """Show the outcome in the browser."""
        if not self.outcome.done():
            self.outcome.set_result((well, text))


class Loopback:
    """Waits for one redirect of the browser.

    >>> async with Loopback(state) as loopback:
    ...     arrival = await loopback.arrival()
    """

    def __init__(self, state: str, ports: Sequence[int] = (0,)) -> None:
        self._state = state
        self._ports = ports  # the first free one is used; 0 is any
        self._port = 0
        self._server: asyncio.Server | None = None
        self._arrived: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()
        self._taken: Arrival | None = None
        self._showing: asyncio.Task[Any] | None = None  # the request waiting for the outcome
        self._serving: set[asyncio.Task[Any]] = set()
        self._unread: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}  # no whole request yet
        self.redirect_uri = ""

    async def __aenter__(self) -> "Loopback":
        self._server = await self._listen()
        self._port = self._server.sockets[0].getsockname()[1]
        self.redirect_uri = f"http://127.0.0.1:{self._port}{_PATH}"
        return self

    async def _listen(self) -> asyncio.Server:
        for port in self._ports:
            try:
                return await asyncio.start_server(self._accept, "127.0.0.1", port, limit=_MAX_HEAD)
            except OSError as error:
                problem = error.strerror
        ports = ", ".join(map(str, self._ports))
        raise AuthorizationFailed(f"the browser cannot be redirected to port {ports}: {problem}")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        if self._taken is not None:
            self._taken.tell(False, "The login was cancelled.")
        for task in self._serving:
            if task is not self._showing:
                task.cancel()
        if self._showing is not None:
            await asyncio.wait([self._showing], timeout=_PARTING)

    async def arrival(self) -> Arrival:
        """Wait for the redirect."""
        return await self._arrived

    def give_up(self, reason: str) -> None:
        """Stop waiting, unless the redirect has arrived."""
        if not self._arrived.done():
            self._arrived.set_exception(AuthorizationFailed(reason))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._unread) >= _MAX_CONNECTIONS:
            # The connection that was silent for longest makes room: a browser sends at once.
            oldest, silent = next(iter(self._unread.items()))
            del self._unread[oldest]
            silent.transport.abort()
            oldest.cancel()
        elif len(self._serving) >= 2 * _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        self._unread[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._serving.discard(task)
        self._unread.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            task = asyncio.current_task()
            assert task is not None
            self._unread.pop(task, None)
            status, page = await self._answer(head.decode("latin-1"))
            writer.write(_response(status, page))
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, head: str) -> tuple[int, str]:
        lines = head.split("\r\n")
        words = lines[0].split(" ")
        target = _target(words[1]) if len(words) == 3 else None
        if target is None or words[0] != "GET" or target.path != _PATH:
            return 404, _page(False, "Nothing here", "This address is only used to finish a login.")
        if not self._is_our_host(lines[1:]):
            return 400, _page(
                False, "Wrong host", "The page was requested under another host name."
            )
        parameters = _parameters(target.query)
        if parameters is None or not self._is_our_login(parameters):
            logger.warning(
                "a redirect that does not belong to this login was refused at the loopback"
            )
            return 400, _page(
                False, "Not your login", "This answer does not belong to a login started here."
            )
        arrival = Arrival(parameters, asyncio.get_running_loop().create_future())
        self._taken, self._showing = arrival, asyncio.current_task()
        self._arrived.set_result(arrival)
        try:
            async with asyncio.timeout(_LAST_WORDS):
                well, text = await arrival.outcome
        except TimeoutError:
            well, text = False, "The authorization server took too long to answer."
        return 200, _page(well, "You are logged in" if well else "The login failed", text)

    def _is_our_host(self, lines: list[str]) -> bool:
        """Return whether the request names this host, and not a domain that resolves to it."""
        hosts = [line[5:].strip() for line in lines if line[:5].lower() == "host:"]
        return hosts == [f"127.0.0.1:{self._port}"]

    def _is_our_login(self, parameters: dict[str, str]) -> bool:
        given = parameters.get("state", "")
        return hmac.compare_digest(given.encode(), self._state.encode()) and (
            not self._arrived.done()
        )


def _target(text: str) -> SplitResult | None:
    """Parse the target of a request; None unless it is a path."""
    try:
        return urlsplit(text) if text.startswith("/") else None
    except ValueError:
        return None


def _parameters(query: str) -> dict[str, str] | None:
    """Parse a query. Return None if a relevant parameter is repeated."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return None
    names = [name for name, _ in pairs]
    if any(names.count(name) > 1 for name in _ONCE):
        return None
    return dict(pairs)


def _page(well: bool, title: str, text: str) -> str:
    colour, sign = ("#1f8a5b", "✓") if well else ("#b3382c", "!")
    return _PAGE.format(title=html.escape(title), text=html.escape(text), colour=colour, sign=sign)


def _response(status: int, page: str) -> bytes:
    body = page.encode()
    head = [
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Refused'}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
