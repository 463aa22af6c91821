"""What an HTTP endpoint answers beside MCP: paths of the application's own, a site, and health checks."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct, field

from mcpearl.net.http_server.request import Request
from mcpearl.runtime.arguments import refuse_text
from mcpearl.transports.http_server.gate import Refused

logger = logging.getLogger("mcpearl.http")

MAX_BODY = 1024 * 1024  # bytes of the body of a request, unless the route sets another limit
_MAX_QUERY = 256  # fields of a query that are read


class HttpRequest(Struct, frozen=True):
    """A request for one of the application's own paths."""

    method: str
    """The HTTP method."""
    path: str
    """The path, decoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The fields of the query; if a field is repeated, the last one counts."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers by name, in lower case."""
    body: bytes = b""
    """The whole body."""
    client: str | None = None
    """The address of the client."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the body, decoded from JSON."""
        return msgspec.json.decode(self.body)


class HttpResponse(Struct, frozen=True):
    """The response to an `HttpRequest`. A function may return text, bytes or JSON data instead."""

    body: Any = b""
    """Bytes, text, or data with a JSON form."""
    status: int = 200
    """The HTTP status."""
    content_type: str | None = None
    """The type of the body; by default, it depends on what the body is."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""


RouteFunction = Callable[[HttpRequest], Any]


class PageRoute(Struct, frozen=True):
    """One path of the application's own."""

    path: str
    methods: frozenset[str]
    function: RouteFunction
    max_body: int


def make_route(
    path: str, methods: Iterable[str], function: RouteFunction, max_body: int = MAX_BODY
) -> PageRoute:
    """Check and make a route."""
    refuse_text("methods", methods)
    if not path.startswith("/") or "{" in path:
        raise ValueError(
            f"the path of a route begins with `/` and has no variables, unlike {path!r}"
        )
    return PageRoute(path, frozenset(method.upper() for method in methods), function, max_body)


class Site(Protocol):
    """Answers every path below its own: files, requests, streams. The console is such a site."""

    path: str
    """The path, without a slash at its end."""

    @property
    def address(self) -> str:
        """The path and fragment that a person opens."""
        ...

    def watch(self, usage: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        """Show from now on what `usage` returns: how much of each bound of the endpoint is in use."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context that lasts as long as the endpoint serves on a port of its own."""
        ...

    def is_public(self, path: str) -> bool:
        """Whether a path may be read without passing the endpoint's gate."""
        ...

    def is_stream(self, path: str) -> bool:
        """Whether a request for this path only waits for something to be sent."""
        ...

    async def serve(self, request: Request, read: Callable[[int], Awaitable[bytes]]) -> None:
        """Answer one request; `read` reads its body up to a limit. May raise `Refused`."""
        ...

    def end_streams(self) -> None:
        """End, in an orderly way, the streams that would stay open forever."""
        ...


class Pages:
    """The paths of one endpoint beside MCP.

    Args:
        routes: The application's own routes, by path; it may grow while the endpoint serves.
        in_thread: Runs a plain function in a thread.
        health: Returns status and body for a path of a health check; None for any other path.
        site: Answers all paths below its own.
    """

    def __init__(
        self,
        routes: Mapping[str, PageRoute],
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        health: "Callable[[str], Awaitable[tuple[int, bytes] | None]]",
        site: Site | None = None,
    ) -> None:
        self.site = site
        self._routes = routes
        self._in_thread = in_thread
        self._health = health

    def site_at(self, path: str) -> Site | None:
        """Return the site if a path is its own or below that; None for any other path."""
        site = self.site
        if site is None or not path.startswith(site.path):
            return None
        return site if path[len(site.path) :][:1] in ("", "/") else None

    def has(self, path: str) -> bool:
        """Whether a path is one of the application's own."""
        return path in self._routes

    async def show_health(self, request: Request) -> bool:
        """Answer a health check; return whether the request was one."""
        found = await self._health(request.path)
        if found is None:
            return False
        status, body = found
        await request.respond(status, body, ((b"cache-control", b"no-store"),))
        return True

    async def serve(self, request: Request, read: Callable[[int], Awaitable[bytes]]) -> None:
        """Answer a request for a path of the application's own; `read` reads a body up to a limit.

        May raise `Refused`.
        """
        route = self._routes[request.path]
        asked = "GET" if request.method == "HEAD" else request.method
        if asked not in route.methods:
            allow = ", ".join(sorted(route.methods))
            raise Refused(
                405, f"{route.path} is served for {allow}", headers=((b"allow", allow.encode()),)
            )
        body = await read(route.max_body)
        try:
            await _send(request, await self._answer(route, _made_of(request, body)))
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the route %s failed", route.path)
            await _send(request, HttpResponse("Internal error", 500))

    async def _answer(self, route: PageRoute, request: HttpRequest) -> HttpResponse:
        function = route.function
        if inspect.iscoroutinefunction(function):
            made = await function(request)
        else:
            made = await self._in_thread(lambda: function(request))
            if inspect.isawaitable(made):
                made = await made
        if isinstance(made, HttpResponse):
            return made
        return HttpResponse(status=204) if made is None else HttpResponse(made)


def _made_of(request: Request, body: bytes) -> HttpRequest:
    query = parse_qsl(
        request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY
    )
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }
    address = request.peer.address
    client = None if address is None else address[0]
    return HttpRequest(request.method, request.path, dict(query), headers, body, client)


async def _send(request: Request, response: HttpResponse) -> None:
    body, kind = _encoded(response.body)
    headers = [(b"content-type", (response.content_type or kind).encode("latin-1"))] if body else []
    for name, value in response.headers.items():
        line = f"{name}{value}"
        if "\r" in line or "\n" in line:
            raise ValueError(f"the header {name!r} has a line break")
        headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    headers.append((b"content-length", b"%d" % len(body)))
    await request.start(response.status, tuple(headers))
    await request.end(body)


def _encoded(body: Any) -> tuple[bytes, str]:
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), "application/octet-stream"
    return msgspec.json.encode(body), "application/json"
