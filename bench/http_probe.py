"""One keep-alive connection to a server: one request at a time, and its whole response."""

import socket
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httptools

from bench.http_messages import Request
from bench.results import NoAnswer

PATIENCE_SECONDS = 30


@dataclass
class Response:
    """A response, and how many bytes it had on the wire."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    size: int = 0

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "")


class Probe:
    """A connection.

    Args:
        port: Where to.
        source: The address of this machine that it comes from.
    """

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._address = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, request: Request, method: str = "POST") -> Response:
        """Send a request and return its whole response; raise unless its status is a success."""
        self._socket.sendall(request.encode(self._address, method))
        reader = _Reader()
        parser = httptools.HttpResponseParser(reader)
        while not reader.complete:
            data = self._socket.recv(1 << 18)
            if not data:
                raise NoAnswer("the server closed the connection")
            reader.response.size += len(data)
            parser.feed_data(data)
        response = reader.response
        response.status = parser.get_status_code()
        if response.status >= 300:
            raise NoAnswer(f"status {response.status}: {response.body[:200]!r}")
        return response


class _Reader:
    """Collects what the parser reports."""

    def __init__(self) -> None:
        self.response = Response()
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.response.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.response.body += body

    def on_message_complete(self) -> None:
        self.complete = True
