"""A request from an ASGI server: hides ASGI's scope and events behind the `Request` interface."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mcpearl.net.http_server.request import (
    JSON,
    BodyTooLarge,
    ClientLeft,
    Head,
    HeaderMap,
    HeaderPairs,
    PeerInfo,
    Waiter,
    gathered,
)
from mcpearl.runtime.budget import Holding
from mcpearl.runtime.late import LateWatch

_MAX_HEADS = 1024  # heads remembered; when there are more, all are forgotten
_LARGEST_HEAD = 2048  # bytes of a head that is remembered

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def path_of(scope: Scope) -> str:
    """Return the path of a scope, without the path the application is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def peer_of(scope: Scope) -> PeerInfo:
    """Return how the client of a scope reached the server; ASGI's `tls` extension has its certificate."""
    tls = (scope.get("extensions") or {}).get("tls") or {}
    chain = tls.get("client_cert_chain")
    certificate = chain[0] if chain and not tls.get("client_cert_error") else None
    client = scope.get("client")
    address = None if client is None else (client[0], client[1])
    return PeerInfo(scope.get("scheme", "http"), address, certificate)


class AsgiHeads:
    """The heads seen by one ASGI application. Clients repeat them, and what was noted on one is kept."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, Head] = {}

    def head_of(self, scope: Scope) -> Head:
        """Return the head of a request."""
        pairs = tuple(map(tuple, scope["headers"]))
        path = path_of(scope)
        key = scope["method"], path, scope.get("query_string", b""), pairs
        head = self._known.get(key)
        if head is None:
            headers = gathered(pairs)
            head = Head(scope["method"], path, scope.get("query_string", b""), headers)
            size = (
                len(path)
                + len(head.query)
                + sum(map(len, headers))
                + sum(map(len, headers.values()))
            )
            if b"dpop" in headers or size > _LARGEST_HEAD:
                return head
            if len(self._known) >= _MAX_HEADS:
                self._known.clear()
            self._known[key] = head
        return head


class AsgiRequest:
    """A request made of a scope, two callables, and its head."""

    __slots__ = (
        "_receive",
        "_send",
        "_stalls",
        "body",
        "extra",
        "head",
        "headers",
        "in_place",
        "method",
        "path",
        "peer",
        "query",
        "root",
        "waiter",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        head: Head,
        stalls: LateWatch | None = None,
    ) -> None:
        self.head = head
        self.method = head.method
        self.path = head.path
        self.root: str = scope.get("root_path", "")
        self.query = head.query
        self.headers: HeaderMap = head.headers
        self.peer = peer_of(scope)
        self.body: bytes | None = None
        self.extra: HeaderPairs = ()
        self.in_place = False  # ASGI does not say when a request first waits
        self.waiter: Waiter | None = None
        self._receive = receive
        self._send = send
        self._stalls = stalls  # finds the parts that the client takes too long to read

    async def read(self, limit: int, holding: Holding) -> bytes:
        """Wait for the whole body. Raises `BodyTooLarge`, `ClientLeft` or `NoRoom`."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise ClientLeft
            part = event.get("body", b"")
            size += len(part)
            if size > limit:
                raise BodyTooLarge
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts) if len(parts) > 1 else parts[0]
            holding.grow(size)

    async def until_gone(self) -> None:
        """Wait until the client has closed its connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def respond_now(self, status: int, body: bytes, headers: HeaderPairs = ()) -> bool:
        """Return False: in ASGI, sending may always have to wait."""
        return False

    async def respond(self, status: int, body: bytes, headers: HeaderPairs = ()) -> None:
        """Send a whole response. A body is JSON."""
        if status != 204:
            headers = (*headers, (b"content-length", b"%d" % len(body)))
        if body:
            headers = (*headers, (b"content-type", JSON))
        await self.start(status, headers)
        await self.end(body)

    async def start(self, status: int, headers: HeaderPairs) -> None:
        """Begin a response that is sent in parts."""
        whole = [*headers, *self.extra]
        await self._send({"type": "http.response.start", "status": status, "headers": whole})

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        await self._hand_over({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self, part: bytes = b"") -> None:
        """Send the last part of the body."""
        await self._hand_over({"type": "http.response.body", "body": part, "more_body": False})

    async def _hand_over(self, event: dict[str, Any]) -> None:
        """Hand a part to the ASGI server. Raises `ClientLeft` if the client does not read it in time.

        How much of it the client has read is not known here, only how long the server takes.
        """
        if self._stalls is None:
            await self._send(event)
            return
        part = _BodyPart()
        self._stalls.add(part)
        try:
            await self._send(event)
        except asyncio.CancelledError:
            if not part.is_late:
                raise
            part.task.uncancel()
            raise ClientLeft from None
        finally:
            self._stalls.discard(part)


class _BodyPart:
    """A part on its way to the client."""

    __slots__ = ("is_late", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.is_late = False

    def late(self) -> None:
        self.is_late = True
        self.task.cancel()
