"""Clients that begin a TLS handshake and do not finish it."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from mcpearl.net import tls_front
from mcpearl.net.ports import TcpPort
from mcpearl.net.tls import server_context
from tests.ports import free_port
from tests.waiting import eventually

MANY = 8


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


async def greeted(port: int, certificate: Path) -> bool:
    """Whether a client that does its part is served."""
    trust = ssl.create_default_context(cafile=certificate)
    trust.check_hostname = False
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    try:
        writer.write(b"hello")
        return await reader.readexactly(5) == b"hello"
    finally:
        writer.transport.abort()


async def test_a_port_that_no_longer_accepts_has_ended(certificate: Path) -> None:
    port = TcpPort("127.0.0.1", free_port(), server_context(certificate, None, None))
    await port.open(Echo)
    ended = asyncio.ensure_future(port.ended())
    await asyncio.sleep(0)
    assert isinstance(port._front, tls_front.TlsFront)
    port._front._accepting.cancel()  # as if it had failed
    with pytest.raises(ConnectionError, match="no longer accepted"):
        await ended
    port.close()


async def test_handshakes_that_never_end_are_bounded_in_number(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_front, "MAX_HANDSHAKES", MANY)
    monkeypatch.setattr(tls_front, "_MOMENT", 0.05)
    number = free_port()
    port = TcpPort("127.0.0.1", number, server_context(certificate, None, None))
    await port.open(Echo)
    front = port._front
    assert isinstance(front, tls_front.TlsFront)
    silent: list[socket.socket] = []
    try:
        assert await greeted(number, certificate)
        for _ in range(3 * MANY):
            line = socket.socket()
            line.setblocking(False)
            silent.append(line)
            await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", number))
        most = 0
        for _ in range(3):
            assert await greeted(number, certificate), "a client that does its part gets through"
            most = max(most, len(front._handshakes))
        assert 0 < most <= MANY
        for line in silent:
            line.close()
        await eventually(lambda: not front._handshakes)
        assert await greeted(number, certificate)
    finally:
        for line in silent:
            line.close()
        port.close()
    with pytest.raises(OSError):
        await greeted(number, certificate)


async def test_a_client_that_does_not_speak_tls_is_closed(certificate: Path) -> None:
    number = free_port()
    port = TcpPort("127.0.0.1", number, server_context(certificate, None, None))
    await port.open(Echo)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()  # an alert, then the end
        assert reader.at_eof()
        writer.close()
    finally:
        port.close()
