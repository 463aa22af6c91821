"""Where servers listen: TCP ports and Unix sockets, opened and closed. Errors name the address.

Only the owner of a Unix socket may connect to it. The socket file of a server that died is replaced;
that of a running server is not.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcpearl.net.addresses import CannotListen, TcpAddress, UnixAddress, tune
from mcpearl.net.systemd import inherited
from mcpearl.net.tls_front import TlsFront
from mcpearl.runtime.arguments import Unusable

_BACKLOG = 4096  # connections that may wait to be accepted
_AT_ONCE = 32  # accepted before the loop looks for other work
_LONGEST_PATH = 107  # bytes the system allows for the path of a Unix socket
# From Python 3.13 on, loops remove the file of a Unix socket. `UnixPort.close` does it here, since it
# first checks that the file is still its own.
_STAYS: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}

MakeProtocol = Callable[[], asyncio.Protocol]


class TcpPort:
    """A TCP port.

    Args:
        host: The address to listen on.
        port: The port to listen on.
        tls: The TLS context, if the port speaks TLS.
        handshake_timeout: Seconds a client has for the TLS handshake.
        reuse_port: Whether several processes may open the port and share its clients.
        listening: A socket that is bound to the port already, shared with other processes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        handshake_timeout: float = 30.0,
        reuse_port: bool = False,
        listening: socket.socket | None = None,
    ) -> None:
        self._listening = listening
        self._address = TcpAddress(host, port, tls)
        self._handshake_timeout = handshake_timeout
        self._reuse_port = reuse_port
        self._front: asyncio.Server | TlsFront | None = None

    def __str__(self) -> str:
        return str(self._address)

    @property
    def speaks_tls(self) -> bool:
        """Whether TLS is spoken on the port."""
        return self._address.tls is not None

    @property
    def place(self) -> str:
        """Host and port for a client to connect to; the port is known once it is open."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(
            self._address.host, self._address.host
        )
        return f"{f'[{host}]' if ':' in host else host}:{self._address.port}"

    async def open(self, make: MakeProtocol) -> None:
        """Begin to accept connections."""
        place = self._address
        listening = self._listening
        if listening is None:
            listening = bind_port(place.host, place.port, reuse_port=self._reuse_port)
        self._address = TcpAddress(place.host, listening.getsockname()[1], place.tls)
        if place.tls is not None:
            _widen(listening)
            listening.setblocking(False)
            self._front = TlsFront(listening, place.tls, make, self._handshake_timeout)
            return
        self._front = await _begin(
            asyncio.get_running_loop().create_server(
                make, sock=listening, backlog=_AT_ONCE, start_serving=False
            )
        )
        _widen(listening)

    async def ended(self) -> None:
        """Wait until connections can no longer be accepted."""
        if isinstance(self._front, TlsFront):
            await self._front.ended()
        await asyncio.Event().wait()

    def close(self) -> None:
        """Stop accepting connections."""
        if self._front is not None:
            self._front.close()


class UnixPort:
    """A Unix socket, which only its owner may connect to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._address = UnixAddress(path)
        self._path = Path(path)
        self._front: asyncio.Server | None = None
        self._file: os.stat_result | None = None  # of the socket file, to recognize it

    def __str__(self) -> str:
        return str(self._address)

    async def open(self, make: MakeProtocol) -> None:
        """Begin to accept connections."""
        listening = inherited.take(path=str(self._path))
        if listening is None:
            listening = self.bind()
        loop = asyncio.get_running_loop()
        try:
            self._front = await _begin(
                loop.create_unix_server(
                    make, sock=listening, backlog=_AT_ONCE, start_serving=False, **_STAYS
                )
            )
        except BaseException:
            self.close()  # the socket file
            raise
        _widen(listening)

    async def ended(self) -> None:
        """Wait: the loop accepts connections until it ends."""
        await asyncio.Event().wait()

    def close(self) -> None:
        """Stop accepting connections, and remove the socket file if it is still this one."""
        if self._front is not None:
            self._front.close()
        if self._file is None:
            return  # it was never opened, or the process that opened it removes it
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.lstat(), self._file):
                self._path.unlink()

    def bind(self) -> socket.socket:
        """Make the socket and its file, which `close` removes."""
        length = len(os.fsencode(self._path))
        if length > _LONGEST_PATH:
            raise Unusable(
                f"cannot listen on {self}: the path has {length} bytes, and a Unix socket's may "
                f"have {_LONGEST_PATH}; choose a shorter one"
            )
        self._clear()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Set the mode before the file exists, so that no other user can connect at any moment.
            # For systems that ignore this, the mode is set again afterwards.
            with suppress(OSError):
                os.fchmod(listening.fileno(), 0o600)
            listening.bind(str(self._path))
            self._path.chmod(0o600)
        except OSError as error:
            listening.close()
            raise CannotListen(
                error.errno, f"cannot listen on {self}: {error.strerror}; choose another path"
            ) from None
        self._file = self._path.lstat()
        return listening

    def _clear(self) -> None:
        """Remove the socket file of a server that died; refuse to remove anything else."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise CannotListen(
                errno.EEXIST,
                f"cannot listen on {self}: there is a file that is not a socket; choose another path",
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                self._path.unlink(missing_ok=True)
                return
            except OSError:
                pass  # full, or another user's: a server is running
        raise CannotListen(
            errno.EADDRINUSE,
            f"cannot listen on {self}: a running server listens there; "
            "stop it or choose another path",
        )


async def _begin(made: Coroutine[Any, Any, asyncio.Server]) -> asyncio.Server:
    """Have a server that was made without waiting accept connections.

    Python waits for a moment when accepting begins. A server cancelled in that moment is closed, or its
    port would stay in use.
    """
    front = await made
    try:
        await front.start_serving()
    except BaseException:
        front.close()
        raise
    return front


def host_of(transport: asyncio.BaseTransport) -> str | None:
    """Return the host of a peer, by which its connections are counted together.

    For IPv6 this is the /64 network, which usually belongs to one peer. Returns None if the socket has
    no address.
    """
    address = transport.get_extra_info("peername")
    return host_key(address[0]) if isinstance(address, tuple) else None


def host_key(host: str) -> str:
    """Return the IPv4 address, or the /64 network of an IPv6 address, as a key for one peer."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64)) + "/64"


def _widen(listening: socket.socket) -> None:
    """Let many connections wait at a socket that asyncio listens on.

    asyncio itself gets a small backlog, because it also tries to accept that many connections in a
    row. When the process is out of file descriptors, it does not stop, and logs every attempt.
    """
    listening.listen(_BACKLOG)


def bind_port(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a port; the error names the port that could not be bound."""
    opened = inherited.take(port=port)
    if opened is not None:
        tune(opened)
        return opened
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        tune(listening)  # accepted connections inherit it
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise CannotListen(
            error.errno,
            f"cannot listen on {host} port {port}: {error.strerror}; {_advice(error, port)}",
        ) from None
    return listening


def _advice(error: OSError, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "stop the program that uses it, or choose another port (0 for any that is free)"
        case errno.EACCES:
            return f"this user may not open port {port}; choose one from 1024 on"
        case _:
            return "choose an address of this machine, such as 127.0.0.1 or 0.0.0.0 for all of them"
