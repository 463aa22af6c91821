"""Several processes behind one port: whose session is whose, and the way to its owner.

A connection lands at any of them, but a legacy session lives in one. Its id begins with the number of
its owner, and a request that lands elsewhere is passed on over a socket only these processes share. With
it goes what only the first can know: how the client came, and the certificate it showed. That is
believed at this socket (`Door`) and nowhere else.
"""

import asyncio
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.request import EVENTS, Peer, Request, Serving
from mcpearl.transports.http_server.gate import busy

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)
_ARRIVAL = b"mcpearl-arrival"


class _PassedOn(Struct, frozen=True):
    """How a request came to the process that passes it on."""

    scheme: str
    host: str
    client: tuple[str, int] | None
    certificate: str | None
    """The client's own, in PEM, which TLS has verified."""


class Siblings:
    """The processes, by number. Each has a socket at its path."""

    def __init__(self, number: int, paths: list[Path]) -> None:
        self.number = number
        self.paths = paths
        self._wires: dict[int, ConnectionPool] = {}

    @property
    def prefix(self) -> str:
        """How ids of sessions begin that live in this process."""
        return f"{self.number}."

    def owner_of(self, session: str) -> int | None:
        """The number of the other process a session lives in; None when it would be this one."""
        number, dot, _ = session.partition(".")
        if not dot or not (number.isascii() and number.isdigit()) or len(number) > 4:
            return None
        owner = int(number)
        return owner if owner != self.number and owner < len(self.paths) else None

    async def pass_on(self, owner: int, request: Request, body: bytes) -> None:
        """Let the owner answer a request, and give its response as it comes."""
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request.headers.items()
            if name.decode("latin-1") not in _HOP_BY_HOP
            and name not in (b"content-length", _ARRIVAL)
        ]
        headers.append((_ARRIVAL.decode(), _told(request)))
        query = request.query.decode("latin-1")
        target = request.path + (f"?{query}" if query else "")
        wire = self._wires.get(owner)
        if wire is None:
            wire = self._wires[owner] = _SocketWire(self.paths[owner])
        try:
            connection = await wire.acquire()
        except ExchangeFailed as error:
            raise busy(f"The process that has this session: {error.reason}", 1) from None
        connection.send(request.method, target, headers, body)
        copying = asyncio.ensure_future(_copy(connection, request))
        gone = asyncio.ensure_future(request.until_gone())
        try:
            await asyncio.wait((copying, gone), return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
        except ExchangeFailed as error:
            raise busy(f"The process that has this session: {error.reason}", 1) from None
        finally:
            gone.cancel()
            copying.cancel()
            connection.release()

    def close(self) -> None:
        """Close the ways to the others."""
        for wire in self._wires.values():
            wire.close()


async def _copy(connection: HttpExchange, request: Request) -> None:
    await connection.answered()
    headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in connection.headers.items()
        if name not in _HOP_BY_HOP
    )
    await request.start(connection.status, headers)
    if (b"content-type", EVENTS) in headers:
        await request.write(b"")  # the head leaves now; the first event may take long
    try:
        while chunk := await connection.chunk():
            await request.write(chunk)
    except ExchangeFailed:
        return  # the rest is lost; a response that stays incomplete says so
    await request.end()


def _told(request: Request) -> str:
    """Write down how a request came."""
    peer = request.peer
    arrival = _PassedOn(
        peer.scheme,
        request.headers.get(b"host", b"").decode("latin-1"),
        peer.address,
        peer.certificate,
    )
    return b64encode(msgspec.json.encode(arrival)).decode()


class Door:
    """The endpoint as the other processes reach it: a request is taken as it came to them."""

    def __init__(self, endpoint: Serving) -> None:
        self._endpoint = endpoint

    async def serve(self, request: Request) -> None:
        """Answer a request that was passed on."""
        told = request.headers.get(_ARRIVAL)
        if told is not None:
            assert isinstance(request, Http1Request)
            arrival = msgspec.json.decode(b64decode(told), type=_PassedOn)
            headers = {**request.headers, b"host": arrival.host.encode("latin-1")}
            del headers[_ARRIVAL]
            peer = Peer(arrival.scheme, arrival.client, arrival.certificate, passed_on=True)
            request.passed_on(peer, headers)
        await self._endpoint.serve(request)


class _SocketWire(ConnectionPool):
    """The way to a process at a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("http://localhost")
        self._path = path

    async def _open(self) -> Any:
        connection = Http1Connection(self, "localhost")
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: connection, str(self._path))
        return connection
