"""Where sockets are: dialled by clients, bound by servers. Errors name the address.

A Unix socket belongs to its owner alone. What a server that died left behind is removed; what a
living one listens on is not.
"""

import asyncio
import errno
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from mcpearl.protocol.errors import ConnectionLost

CONNECT_TIMEOUT = 10.0
_BACKLOG = 4096
_LONGEST_PATH = 107  # bytes; the system's bound for the name of a Unix socket
# Seconds of silence before asking, seconds between asking, times: 40 s until a peer is dead.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}


class Address(Protocol):
    """A place a stream socket can be connected to."""

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect `protocol`; `ConnectionLost` says why that cannot be done."""
        ...


class TcpAddress:
    """A host and a port, with TLS where there is a context for it."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self.tls = tls

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tcp' if self.tls is None else 'tls'}://{host}:{self.port}"

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect, and have the system look after a peer that vanishes."""
        loop = asyncio.get_running_loop()
        name = self.host if self.tls is not None else None
        async with _reaching(self):
            transport, _ = await loop.create_connection(
                lambda: protocol, self.host, self.port, ssl=self.tls, server_hostname=name
            )
        _tune(transport.get_extra_info("socket"))

    async def listen(
        self, make: Callable[[], asyncio.Protocol], *, reuse_port: bool = False
    ) -> asyncio.Server:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        listening = bind_port(self.host, self.port, reuse_port=reuse_port)
        return await loop.create_server(make, sock=listening, ssl=self.tls, backlog=_BACKLOG)


class UnixAddress:
    """The path of a socket."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return f"unix://{self.path}"

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        async with _reaching(self):
            await loop.create_unix_connection(lambda: protocol, str(self.path))

    async def listen(
        self, make: Callable[[], asyncio.Protocol], *, mode: int = 0o600
    ) -> asyncio.Server:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(make, sock=self._bind(mode), backlog=_BACKLOG)

    def _bind(self, mode: int) -> socket.socket:
        length = len(os.fsencode(self.path))
        if length > _LONGEST_PATH:
            raise ValueError(
                f"cannot listen on {self}: the path has {length} bytes, and a Unix socket's may "
                f"have {_LONGEST_PATH}; choose a shorter one"
            )
        self._clear()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before there is a name, so that at no moment anybody else can connect; where the
            # system does not take it from here, after.
            with suppress(OSError):
                os.fchmod(listening.fileno(), mode)
            listening.bind(str(self.path))
            self.path.chmod(mode)
        except OSError as error:
            listening.close()
            raise OSError(error.errno, f"cannot listen on {self}: {error.strerror}") from None
        return listening

    def _clear(self) -> None:
        """Remove what a server that is no more has left; refuse to remove anything else."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise FileExistsError(
                errno.EEXIST, f"cannot listen on {self}: there is something that is no socket"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink(missing_ok=True)
                return
            except OSError:
                pass  # full, or not ours: somebody is there
        raise OSError(
            errno.EADDRINUSE,
            f"cannot listen on {self}: a server that is running listens there; "
            "stop it or choose another path",
        )

    def identity(self) -> tuple[int, int] | None:
        """Which file is there now, to tell whether it is still ours when it is time to remove it."""
        try:
            found = self.path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def bind_port(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Take a port, or say which one could not be had. With `reuse_port` workers share it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _tune(listening)  # what is accepted inherits it
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno, f"cannot listen on {host} port {port}: {error.strerror}; choose another"
        ) from None
    return listening


def _tune(system: socket.socket) -> None:
    system.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    system.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has them all
            system.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@asynccontextmanager
async def _reaching(address: TcpAddress | UnixAddress) -> AsyncIterator[None]:
    """Bound the time of a dial, and name the address in what goes wrong."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            yield
    except TimeoutError:
        reason = f"no connection within {CONNECT_TIMEOUT:g} s"
    except OSError as error:  # also TLS and name resolution
        reason = error.strerror or str(error) or type(error).__name__
    else:
        return
    raise ConnectionLost(f"cannot connect to {address}: {reason}")
