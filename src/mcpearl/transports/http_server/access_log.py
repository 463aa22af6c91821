"""The access log of an endpoint: one line for each request.

An endpoint without one does nothing for it: what serves, and the class of its requests, are chosen when
the endpoint is made. The lines go to the logger `mcpearl.access`, or to a file of their own, which takes
a tenth of the time: no record is made for a line, and a thread writes them.
"""

import logging
import time
from collections.abc import Callable
from os import PathLike
from typing import Any, Protocol

from mcpearl.net.http_server.request import Head, HeaderMap, Request, Serving, Work
from mcpearl.runtime import clock
from mcpearl.runtime.line_file import LineFile

logger = logging.getLogger("mcpearl.access")

_LONGEST = 128  # characters of anything that a client chose
_NAMED = (b"tools/call", b"prompts/get")  # names in other methods may contain arguments
_MAX_HEADS = 1024  # heads whose texts are remembered; when there are more, all are forgotten


class AccessLog(Protocol):
    """Serves requests, and logs each when it has been answered."""

    def serve(self, request: Request) -> Work | None:
        """Answer one request, as `Serving.serve` does."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


def access_log(serving: Serving, where: bool | str | PathLike[str]) -> AccessLog:
    """Make the access log of an endpoint.

    Args:
        serving: The endpoint.
        where: The path of a file, or True for the logger `mcpearl.access`.
    """
    return LoggedAccess(serving) if isinstance(where, bool) else FiledAccess(serving, where)


class LoggedAccess:
    """Logs to the logger, so that the application decides where records go and what they look like."""

    def __init__(self, serving: Serving) -> None:
        self._serve = serving.serve

    def serve(self, request: Any) -> Work | None:
        """Answer one request."""
        return _logged(self._serve, request, self._log)

    def _log(self, request: Any, began: float) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        milliseconds = (clock.monotonic() - began) * 1000
        address = request.peer.address
        logger.info(
            "%s %s %s %s %d bytes %.1f ms%s",
            "-" if address is None else address[0],
            request.method,
            _path(request.root + request.path),
            request.status or "unanswered",
            request.size,
            milliseconds,
            _what(request.headers),
        )

    def close(self) -> None:
        """Do nothing: handlers of the logger belong to the application."""


class FiledAccess:
    """Appends to a file. Lines begin with the time, and then look like those of the logger.

    Args:
        serving: The endpoint.
        path: The file.
    """

    def __init__(self, serving: Serving, path: str | PathLike[str]) -> None:
        self._serve = serving.serve
        self._file = LineFile(path)
        self._put = self._file.put
        self._heads: dict[Head, tuple[str, str]] = {}  # what heads say: the path, and the call
        self._second = self._next = 0.0  # where a second begins and ends, in monotonic time
        self._time = ""  # the text of that second

    def serve(self, request: Any) -> Work | None:
        """Answer one request."""
        return _logged(self._serve, request, self._log)

    def _log(self, request: Any, began: float) -> None:
        ended = clock.monotonic()
        if ended >= self._next:
            self._turn(ended)
        address = request.peer.address
        host = "-" if address is None else address[0]
        where, what = self._heads.get(request.head) or self._said(request)
        self._put(
            f"{self._time}.{int((ended - self._second) * 1000):03d}Z {host} {where} "
            f"{request.status or 'unanswered'} {request.size} bytes "
            f"{(ended - began) * 1000:.1f} ms{what}\n"
        )

    def _said(self, request: Any) -> tuple[str, str]:
        """Return what a head says, and remember it."""
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        path = f"{request.method} {_path(request.root + request.path)}"
        said = self._heads[request.head] = (path, _what(request.headers))
        return said

    def _turn(self, ended: float) -> None:
        """Begin another second. The time of day is read each time, since the clock may be set."""
        now = clock.now()
        self._second = ended - now % 1
        self._next = self._second + 1
        self._time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


def _logged(
    serve: Callable[[Request], Work | None], request: Request, log: Callable[[Request, float], None]
) -> Work | None:
    """Answer a request and log it, now or when it has been answered."""
    began, rest = clock.monotonic(), None
    try:
        rest = serve(request)
    finally:
        if rest is None:
            log(request, began)
    return None if rest is None else _logged_later(rest, request, log, began)


async def _logged_later(
    rest: Work, request: Request, log: Callable[[Request, float], None], began: float
) -> None:
    try:
        await rest
    finally:
        log(request, began)


def _path(path: str) -> str:
    return ascii(path[:_LONGEST])[1:-1]


def _what(headers: HeaderMap) -> str:
    """Return the method and the tool or prompt that a modern request names in its headers."""
    method = headers.get(b"mcp-method")
    if method is None:
        return ""
    name = headers.get(b"mcp-name") if method in _NAMED else None
    said = method if name is None else method + b" " + name
    return " " + ascii(said.decode("latin-1")[:_LONGEST])[1:-1]
