"""The access log of an endpoint: one line for each request.

An endpoint without one does nothing for it: what serves, and the class of its requests, are chosen when
the endpoint is made. The lines go to the logger `mcpearl.access`, or to a file of their own, which takes
a tenth of the time: no record is made for a line, and a thread writes them.
"""

import logging
import time
from collections.abc import Callable
from os import PathLike
from typing import Any

from mcpearl.net.http_server.request import Head, HeaderMap, Serving, Work
from mcpearl.runtime import clock, served
from mcpearl.runtime.line_file import LineFile
from mcpearl.runtime.tracing import ids_of
from mcpearl.transports.http_server.noted_post import NotedPost
from mcpearl.transports.http_server.post import PostOutlet

logger = logging.getLogger("mcpearl.access")

_LONGEST = 128  # characters of anything that a client chose
_NAMED = (b"tools/call", b"prompts/get")  # names in other methods may contain arguments
_MAX_HEADS = 1024  # heads whose texts are remembered; when there are more, all are forgotten
_MAX_ANSWERS = 4096  # bytes of an answer whose text is remembered
_SHORT = 1000  # tenths of a millisecond from which on their text is made anew
_MILLISECONDS = [f"{tenths / 10:.1f}" for tenths in range(_SHORT)]


class AccessLog:
    """Serves requests, and logs each when it has been answered.

    Args:
        serving: The endpoint.
    """

    outlet = PostOutlet
    """The class of the POSTs to the endpoint."""

    def __init__(self, serving: Serving) -> None:
        self._serve = serving.serve

    def serve(self, request: Any) -> Work | None:
        """Answer one request, as `Serving.serve` does, and log it, now or when it has been answered."""
        began, rest = clock.monotonic(), None
        try:
            rest = self._serve(request)
        finally:
            if rest is None:
                self._log(request, began)
        return None if rest is None else self._log_later(rest, request, began)

    async def _log_later(self, rest: Work, request: Any, began: float) -> None:
        try:
            await rest
        finally:
            self._log(request, began)

    def _log(self, request: Any, began: float) -> None:
        """Log a request that was answered, or will not be."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left."""


def access_log(serving: Serving, where: bool | str | PathLike[str]) -> AccessLog:
    """Make the access log of an endpoint.

    Args:
        serving: The endpoint.
        where: The path of a file, or True for the logger `mcpearl.access`.
    """
    return LoggedAccess(serving) if isinstance(where, bool) else FiledAccess(serving, where)


class LoggedAccess(AccessLog):
    """Logs to the logger, so that the application decides where records go and what they look like.

    A line is logged in the context of the call that the request carried, so that it has the call's ids.
    """

    def serve(self, request: Any) -> Work | None:
        """Answer one request, and log it; see `AccessLog`."""
        if not logger.isEnabledFor(logging.INFO):
            return self._serve(request)
        request.contexts = []
        token = served.contexts.set(request.contexts)
        try:
            return super().serve(request)
        finally:
            served.contexts.reset(token)

    async def _log_later(self, rest: Work, request: Any, began: float) -> None:
        served.contexts.set(request.contexts)
        await super()._log_later(rest, request, began)

    def _log(self, request: Any, began: float) -> None:
        milliseconds = (clock.monotonic() - began) * 1000
        address = request.peer.address
        contexts, request.contexts = request.contexts, None  # they refer to the request, too
        # A batch has several calls, whose ids are not those of the request.
        log = contexts[0].run if len(contexts) == 1 else _call
        log(
            logger.info,
            "%s %s %s %s %d bytes %.1f ms%s",
            "-" if address is None else address[0],
            request.method,
            _path(request.root + request.path),
            request.status or "unanswered",
            request.size,
            milliseconds,
            _what(request.headers),
        )


class FiledAccess(AccessLog):
    """Appends to a file. Lines begin with the time, and then look like those of the logger, with ids.

    What lines have in common is made once.

    Args:
        serving: The endpoint.
        path: The file.
    """

    outlet = NotedPost

    def __init__(self, serving: Serving, path: str | PathLike[str]) -> None:
        super().__init__(serving)
        self._file = LineFile(path)
        self._put = self._file.put
        self._heads: dict[Head, tuple[str, str]] = {}  # what heads say: the path, and the call
        self._answers: dict[int, str] = {}  # of short answers without an error, by their size
        self._next = 0.0  # when the next millisecond begins, in monotonic time
        self._second = -1  # the second that `_text` is of
        self._text = self._time = ""  # of this second, and of this millisecond

    def _log(self, request: Any, began: float) -> None:
        ended = clock.monotonic()
        if ended >= self._next:
            self._turn(ended)
        address = request.peer.address
        host = "-" if address is None else address[0]
        where, what = self._heads.get(request.head) or self._said(request)
        status, size = request.status, request.size
        answer = self._answers.get(size) if status == 200 else None
        tenths = int((ended - began) * 10_000 + 0.5)
        took = _MILLISECONDS[tenths] if tenths < _SHORT else f"{tenths / 10:.1f}"
        carried, request.carried = request.carried, ()  # they refer to the request, too
        ids = _named_ids(carried[0]) if len(carried) == 1 else ""
        self._put(
            f"{self._time} {host} {where} {answer or self._answer(status, size)} {took} ms"
            f"{ids}{what}\n"
        )

    def _said(self, request: Any) -> tuple[str, str]:
        """Return what a head says; remember it if its connection does, which is small and has no root."""
        head = request.head
        path = f"{request.method} {_path(request.root + request.path)}"
        said = (path, _what(request.headers))
        if head.raw:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[head] = said
        return said

    def _answer(self, status: int, size: int) -> str:
        """Return what is said of an answer, and remember it if it is short."""
        said = f"{status or 'unanswered'} {size} bytes"
        if status == 200 and size < _MAX_ANSWERS:
            self._answers[size] = said
        return said

    def _turn(self, ended: float) -> None:
        """Begin another millisecond. The time of day is read each time, since the clock may be set."""
        now = clock.now()
        second, milliseconds = int(now), now % 1 * 1000
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        self._time = f"{self._text}.{int(milliseconds):03d}Z"
        self._next = ended + (1 - milliseconds % 1) / 1000

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


def _named_ids(call: Any) -> str:
    """Return the id of a call, and that of the trace which its client says that it belongs to."""
    id, meta = call.id, getattr(call.params, "meta", None)
    said = f" id={str(id)[:_LONGEST]}" if id.__class__ is int else f" id={id[:_LONGEST]!a}"
    if meta and "traceparent" in meta:
        named = ids_of(meta["traceparent"])
        if named is not None:
            return f"{said} trace={named[0]}"
    return said


def _call(log: Callable[..., None], *arguments: object) -> None:
    log(*arguments)


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
