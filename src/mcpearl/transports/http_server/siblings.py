"""Several processes behind one port: which one holds a session, and how a request gets there.

A connection lands at any worker, but a legacy session lives in one. Its id begins with the number of its
owner, and a request that lands elsewhere is passed on over a socket that only the workers share. With it
goes what only the first worker can know: how the client reached it, and the client's certificate. This is
trusted at that socket (`Door`) and nowhere else.
"""

import asyncio
import socket
import struct
from base64 import b64decode, b64encode
from pathlib import Path

import msgspec
from msgspec import Struct

from mcpearl.net.http_client.dial import Dialer
from mcpearl.net.http_client.exchange import ExchangeFailed, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.net.http_server.request import EVENTS, PeerInfo, Request, Serving, Work
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)
_ARRIVAL = b"mcpearl-arrival"


class _PassedOn(Struct, frozen=True):
    """How a request reached the worker that passes it on."""

    scheme: str
    host: str
    client: tuple[str, int] | None
    certificate: str | None
    """The client's own, in PEM, which TLS has verified."""


_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Sibling(Struct, frozen=True):
    """A worker that is up."""

    number: int
    pid: int | None
    """Its process; None where the system does not say."""


class Siblings:
    """The workers, by number. Each has a socket at its path."""

    def __init__(
        self, number: int, paths: list[Path], margin: float = 5.0, restarts: int = 0
    ) -> None:
        """Describe the workers to one of them.

        Args:
            number: The number of this worker.
            paths: The sockets of all workers.
            margin: Seconds beyond twice the keep-alive interval that an owner may be silent. A worker
                that works shows a sign of life in each interval.
            restarts: How often the worker of this number was replaced.
        """
        self.number = number
        self.restarts = restarts
        self.paths = paths
        self._margin = margin
        self._pools: dict[int, ConnectionPool] = {}

    # As members of a kind, for `Names`

    def get(self, number: int) -> Sibling | None:
        """Return a worker, if a process listens at its socket; else None."""
        if not 0 <= number < len(self.paths):
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self.paths[number]))
            except OSError:
                return None
            if not hasattr(socket, "SO_PEERCRED"):
                return Sibling(number, None)
            size = _CREDENTIALS.size
            found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return Sibling(number, _CREDENTIALS.unpack(found)[0])

    def values(self) -> list[Sibling]:
        """Return the workers that are up."""
        found = map(self.get, range(len(self.paths)))
        return [each for each in found if each is not None]

    def __len__(self) -> int:
        return len(self.values())

    # Sessions

    @property
    def prefix(self) -> str:
        """The beginning of the ids of sessions that live in this worker."""
        return f"{self.number}."

    def owner_of(self, session: str) -> int | None:
        """Return the number of the other worker that a session lives in; None if there is no other."""
        number, dot, _ = session.partition(".")
        if not dot or not (number.isascii() and number.isdigit()) or len(number) > 4:
            return None
        owner = int(number)
        return owner if owner != self.number and owner < len(self.paths) else None

    async def pass_on(self, owner: int, request: Request, body: bytes, keep_alive: float) -> None:
        """Have the owner answer a request, and copy its response as it comes.

        Args:
            owner: The number of the worker.
            request: The request.
            body: Its body.
            keep_alive: Seconds after which the owner shows a sign of life in any response.

        Raises:
            Refused: The owner is not there (503), or shows no sign of life (504).
        """
        patience = 2 * keep_alive + self._margin
        pool = self._pools.get(owner)
        if pool is None:
            pool = self._pools[owner] = _pool_at(self.paths[owner])
        try:
            async with asyncio.timeout(patience):
                connection = await pool.acquire()
        except ExchangeFailed as error:
            raise _not_there(error) from None
        except TimeoutError:
            raise _silent(patience) from None
        headers = _headers_of(request)
        connection.send(request.method, _target_of(request), headers, body)
        copying = asyncio.ensure_future(_copy(connection, request, patience))
        gone = asyncio.ensure_future(request.until_gone())
        try:
            await asyncio.wait((copying, gone), return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
        except ExchangeFailed as error:
            raise _not_there(error) from None
        finally:
            gone.cancel()
            copying.cancel()
            connection.release()

    def close(self) -> None:
        """Close the connections to the other workers."""
        for pool in self._pools.values():
            pool.close()


def _not_there(error: ExchangeFailed) -> Refused:
    return busy(f"The worker that holds this session: {error.reason}", 1)


def _silent(patience: float) -> Refused:
    reason = f"The worker that holds this session did not answer within {patience:g} s"
    return Refused(504, reason, INTERNAL_ERROR)


def _headers_of(request: Request) -> list[tuple[str, str]]:
    """Return the headers to pass on, with one that says how the request reached this worker."""
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in request.headers.items()
        if name.decode("latin-1") not in _HOP_BY_HOP and name not in (b"content-length", _ARRIVAL)
    ]
    headers.append((_ARRIVAL.decode(), _arrival_of(request)))
    return headers


def _target_of(request: Request) -> str:
    query = request.query.decode("latin-1")
    return request.path + (f"?{query}" if query else "")


async def _copy(connection: HttpExchange, request: Request, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await connection.answered()
    except TimeoutError:
        raise _silent(patience) from None
    headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in connection.headers.items()
        if name not in _HOP_BY_HOP
    )
    await request.start(connection.status, headers)
    if (b"content-type", EVENTS) in headers:
        await request.write(b"")  # the head leaves now; the first event may take long
    while True:
        try:
            async with asyncio.timeout(patience):
                chunk = await connection.chunk()
        except (ExchangeFailed, TimeoutError):
            return  # the rest is lost; the client sees that the response is incomplete
        if not chunk:
            break
        await request.write(chunk)
    await request.end()


def _arrival_of(request: Request) -> str:
    """Return a header value that says how a request reached this worker."""
    peer, host = request.peer, request.headers.get(b"host", b"").decode("latin-1")
    arrival = _PassedOn(peer.scheme, host, peer.address, peer.certificate)
    return b64encode(msgspec.json.encode(arrival)).decode()


class Door:
    """The endpoint as the other workers reach it: a request is served as it reached them."""

    def __init__(self, endpoint: Serving) -> None:
        """Open the way to an endpoint.

        Args:
            endpoint: What answers the requests.
        """
        self._endpoint = endpoint

    def serve(self, request: Request) -> Work | None:
        """Answer a request that was passed on."""
        arrival = request.headers.get(_ARRIVAL)
        if arrival is not None:
            assert isinstance(request, Http1Request)
            _describe(request, msgspec.json.decode(b64decode(arrival), type=_PassedOn))
        return self._endpoint.serve(request)


def _describe(request: Http1Request, arrival: _PassedOn) -> None:
    """Make a request look as it did to the worker that passed it on."""
    headers = {**request.headers, b"host": arrival.host.encode("latin-1")}
    del headers[_ARRIVAL]
    peer = PeerInfo(arrival.scheme, arrival.client, arrival.certificate, passed_on=True)
    request.passed_on(peer, headers)


class _SocketDialer(Dialer):
    """Connects to a worker at a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("http://localhost", None, None, False)
        self._path = path

    async def dial(self, pool: ConnectionPool) -> Http1Connection:
        connection = Http1Connection(pool, "localhost")
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: connection, str(self._path))
        return connection


def _pool_at(path: Path) -> ConnectionPool:
    return ConnectionPool("http://localhost", dialer=_SocketDialer(path))
