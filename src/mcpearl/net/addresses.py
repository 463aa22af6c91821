"""Addresses that a client can connect to. Errors name the address."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import Protocol

CONNECT_TIMEOUT = 10.0
# Seconds of silence before the first probe, between probes, and their number: 40 s in all.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}


class Unreachable(OSError):
    """No connection could be made. The message names the address and the reason."""


class CannotListen(OSError):
    """A server cannot listen at an address. The message names it and says what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


class Address(Protocol):
    """An address that a stream socket can be connected to."""

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect `protocol`. Raises `Unreachable`."""
        ...


class TcpAddress:
    """A host and a port, with TLS if there is a context."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        shown = f"[{host}]" if ":" in host else host
        self._name = name or f"{'tcp' if tls is None else 'tls'}://{shown}:{port}"

    def __str__(self) -> str:
        return self._name

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect, and let the operating system detect a peer that vanishes. Raises `Unreachable`."""
        loop = asyncio.get_running_loop()
        name = self.host if self.tls is not None else None
        async with _reaching(self):
            transport, _ = await loop.create_connection(
                lambda: protocol, self.host, self.port, ssl=self.tls, server_hostname=name
            )
        tune(transport.get_extra_info("socket"))


class UnixAddress:
    """The path of a Unix socket."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = fspath(path)

    def __str__(self) -> str:
        return f"unix://{self._path}"

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """Connect. Raises `Unreachable`."""
        loop = asyncio.get_running_loop()
        async with _reaching(self):
            await loop.create_unix_connection(lambda: protocol, self._path)


def is_unix(wire: asyncio.BaseTransport) -> bool:
    """Whether a connection uses a Unix socket."""
    system = wire.get_extra_info("socket")
    return system is not None and system.family == socket.AF_UNIX


def tune(system: socket.socket | None) -> None:
    """Send small messages at once, and let the operating system detect a vanished peer."""
    if system is None or system.family == socket.AF_UNIX:
        return  # not needed: the peer is on this machine
    system.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    system.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not all systems have them
            system.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reason_of(error: OSError) -> str:
    """Return why no connection was made, in the words of the operating system.

    asyncio's own message replaces those words: it names the address, or lists the errors of all
    addresses of a name. The error numbers in it are translated back here.
    """
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    if numbers and not isinstance(error, ssl.SSLError):
        return ", ".join(dict.fromkeys(os.strerror(int(each)) for each in numbers))
    return error.strerror or str(error) or type(error).__name__


@asynccontextmanager
async def _reaching(address: Address) -> AsyncIterator[None]:
    """Limit the time to connect, and raise `Unreachable` naming the address on failure."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            yield
    except TimeoutError:
        reason = f"no connection within {CONNECT_TIMEOUT:g} s"
    except OSError as error:  # also TLS and name resolution
        reason = reason_of(error)
    else:
        return
    raise Unreachable(f"cannot connect to {address}: {reason}")
