"""An HTTP/2 server on h2 whose every frame is the test's own, for what no honest server would send."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h2.events as events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame

from tests.waiting import eventually


class Asked:
    """One request, its body as it comes, and the means to answer it frame by frame."""

    def __init__(self, host: "Connection", number: int, headers: dict[str, str]) -> None:
        self.host = host
        self.number = number
        self.headers = headers
        self.body = b""
        self.ended = asyncio.Event()
        """The request is whole."""
        self.cancelled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The code the client gave the stream up with."""

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def head(self, status: int | str = 200, end: bool = False, **headers: str) -> None:
        more = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.host.h2.send_headers(self.number, [(":status", str(status)), *more], end_stream=end)
        self.host.flush()

    async def data(self, data: bytes, end: bool = False, pad: int | None = None) -> None:
        """Send data, as fast as the windows of the client allow."""
        view = memoryview(data)
        while True:
            room = self.host.h2.local_flow_control_window(self.number)
            size = min(room - (pad + 1 if pad else 0), self.host.h2.max_outbound_frame_size, 16_000)
            if len(view) and size <= 0:
                await self.host.until_window()
                continue
            part, view = view[:size], view[size:]
            last = end and not view
            self.host.h2.send_data(self.number, bytes(part), end_stream=last, pad_length=pad)
            self.host.flush()
            if not view:
                return

    async def answer(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        self.head(status, end=not body, **headers)
        if body:
            await self.data(body, end=True)

    def reset(self, code: int) -> None:
        self.host.h2.reset_stream(self.number, code)
        self.host.flush()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, peer: "Http2Peer") -> None:
        self.peer = peer
        self.h2 = H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False))
        self.h2.local_settings = Settings(client=False, initial_values=peer.settings)
        self.asked: dict[int, Asked] = {}
        self.gone = asyncio.Event()
        self.pongs: list[bytes] = []
        self._window = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.peer.connections.append(self)
        self.h2.initiate_connection()
        if self.peer.greets:
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        for each in self.asked.values():
            if not each.cancelled.done():
                each.cancelled.set_result(-1)
        for task in self._tasks:
            task.cancel()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def frames(self, *frames: Frame) -> None:
        """Send frames h2 would not."""
        self.transport.write(b"".join(frame.serialize() for frame in frames))

    async def until_window(self) -> None:
        self._window.clear()
        await self._window.wait()

    def set(self, **settings: int) -> None:
        """Change settings on the way."""
        self.h2.update_settings({SettingCodes[name]: value for name, value in settings.items()})
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            happened = self.h2.receive_data(data)
        except H2Error:
            self.peer.broken += 1
            self.transport.abort()
            return
        for event in happened:
            self.take(event)
        if self.peer.greets:
            self.flush()

    def take(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived():
                headers = {name.decode(): value.decode() for name, value in event.headers}
                asked = self.asked[event.stream_id] = Asked(self, event.stream_id, headers)
                self.peer.asked.append(asked)
                task = asyncio.ensure_future(self.peer.answers[asked.path](asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case events.DataReceived():
                self.asked[event.stream_id].body += event.data
                if self.peer.takes:
                    length = event.flow_controlled_length
                    self.h2.acknowledge_received_data(length, event.stream_id)
            case events.StreamEnded():
                self.asked[event.stream_id].ended.set()
            case events.StreamReset():
                self.asked[event.stream_id].cancelled.set_result(event.error_code)
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                self._window.set()
            case events.PingAckReceived():
                self.pongs.append(event.ping_data)
            case events.ConnectionTerminated():
                self.peer.told.append(event.error_code)


Answer = Callable[[Asked], Awaitable[None]]


class Http2Peer:
    """Answers each request with a function, by path."""

    def __init__(self, settings: dict[str, int]) -> None:
        self.settings = {SettingCodes[name]: value for name, value in settings.items()}
        self.answers: dict[str, Answer] = {}
        self.asked: list[Asked] = []
        self.connections: list[Connection] = []
        self.greets = True
        """Whether it sends what h2 would send by itself."""
        self.takes = True
        """Whether it lets clients send on when it read what they sent."""
        self.broken = 0
        """Clients that broke the rules of HTTP/2."""
        self.told: list[int] = []
        """The errors clients left with."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def on(self, path: str) -> Callable[[Answer], Answer]:
        def register(answer: Answer) -> Answer:
            self.answers[path] = answer
            return answer

        return register

    async def until_asked(self, times: int = 1) -> list[Asked]:
        await eventually(lambda: len(self.asked) >= times)
        return self.asked

    @property
    def streams(self) -> list[int]:
        """How many streams each connection carried."""
        return [len(each.asked) for each in self.connections]


@asynccontextmanager
async def http2_peer(certificate: Path, **settings: int) -> AsyncIterator[Http2Peer]:
    """Run a server of HTTP/2 that says hello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"])
    peer = Http2Peer(settings)

    @peer.on("/")
    async def hello(asked: Asked) -> None:
        await asked.answer(b"hello")

    @peer.on("/never")
    async def never(asked: Asked) -> None:
        pass

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(peer), "127.0.0.1", 0, ssl=context)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for connection in peer.connections:
            connection.transport.abort()
    assert not peer.broken


__all__ = ["Asked", "Connection", "ErrorCodes", "Http2Peer", "http2_peer"]
