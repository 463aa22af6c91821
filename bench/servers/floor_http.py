"""The least a Python server does for a call over HTTP: ``python floor_http.py <port>``.

uvloop, httptools and msgspec: decode the envelope, add, encode, write. No rule of the protocol is
kept beyond what the load generator needs, so this is the limit the other servers are compared with.
"""

import asyncio
import sys

import httptools
import uvloop
from floor_messages import INITIALIZED, Envelope, called, initialized, read

SESSION = b"0" * 32
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
WITH_SESSION = HEAD.replace(b"\r\n\r\n", b"\r\nMcp-Session-Id: %b\r\n\r\n" % SESSION)
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class FloorProtocol(asyncio.Protocol):
    """One connection; its requests come one at a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._write = transport.write
        self._body = b""
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        envelope, self._body = read(self._body), b""
        if envelope.method == "tools/call":
            self._call(envelope)
        elif envelope.method == INITIALIZED:
            self._write(ACCEPTED)
        else:
            body = initialized(envelope)
            self._write(WITH_SESSION % len(body) + body)

    def _call(self, envelope: Envelope) -> None:
        """Run the call to its end here: it never waits, so it needs no task."""
        try:
            called(envelope).send(None)
        except StopIteration as done:
            self._write(HEAD % len(done.value) + done.value)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FloorProtocol, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
