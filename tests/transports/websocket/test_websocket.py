"""WebSocket: the handshake and its checks, frames, the wire's ping, and the end."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import uvicorn
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode

from mcpearl import Client, ConnectionLost, Http, Limits, WebSocket
from mcpearl.auth.principal import Principal
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.websocket.client import WebSocketClient
from mcpearl.transports.websocket.frames import Beat
from tests.client.peers import DISCOVERED
from tests.ports import free_port
from tests.server.wire import HANGS, meta
from tests.transports.suite_server import make_app
from tests.transports.wires import serving
from tests.waiting import eventually, turns

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def call(tool: str, id: Any = 1, **arguments: Any) -> str:
    params = {"name": tool, "arguments": arguments, "_meta": meta()}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[str]:
    """Give the address of the suite's server."""
    port = free_port()
    app = options.pop("app", None) or make_app()
    async with serving(app, WebSocket(port=port, **options)):
        yield f"ws://127.0.0.1:{port}"


def opened(url: str, **options: Any) -> connect:
    """A client by the reference implementation."""
    return connect(url, subprotocols=["mcp"], max_size=None, proxy=None, **options)


async def answer(peer: ClientConnection) -> Any:
    async with asyncio.timeout(HANGS):
        return json.loads(await peer.recv())


# The handshake


async def test_the_reference_client_is_served():
    async with served() as url, opened(url) as peer:
        assert peer.subprotocol == "mcp"
        await peer.send(call("add", 1, a=1, b=2))
        assert (await answer(peer))["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize(
    ("path", "headers", "status", "says"),
    [
        ("/elsewhere", {}, 404, "There is nothing at '/elsewhere'"),
        ("/", {"Origin": "https://evil.example"}, 403, "Origin 'https://evil.example' is not all"),
        ("/", {"Host": "evil.example"}, 421, "Host 'evil.example' is not served here"),
    ],
)
async def test_a_request_that_is_not_for_here(
    path: str, headers: dict[str, str], status: int, says: str
):
    async with served() as url:
        with pytest.raises(ConnectionLost, match=f"it answered {status} .*{says}"):
            async with Client(url + path, headers=headers):
                pass


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET / HTTP/1.1", {"Upgrade": "websocket", "Connection": "Upgrade"}, 400),
        ("GET / HTTP/1.1", {}, 426),
        ("POST / HTTP/1.1", {"Content-Length": "0"}, 405),
        ("certainly no HTTP", {}, 400),
        ("GET /" + "x" * 20_000 + " HTTP/1.1", {}, 414),
    ],
)
async def test_what_opens_no_websocket_is_told_so(
    request_line: str, headers: dict[str, str], status: int
):
    async with served() as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = {"Host": f"127.0.0.1:{port}", **headers}
        lines = [request_line, *(f"{name}: {value}" for name, value in whole.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        async with asyncio.timeout(HANGS):
            response = await reader.read()
        assert response.startswith(b"HTTP/1.1 %d " % status), response
        assert response.partition(b"\r\n\r\n")[2].strip()  # and why
        writer.close()


async def test_a_client_that_does_not_speak_mcp_is_refused():
    async with served() as url:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, proxy=None):
                pass
        assert caught.value.response.status_code == 400
        assert b"missing subprotocol" in caught.value.response.body


@pytest.mark.parametrize("wire", ["websocket", "http", "asgi"])
async def test_a_refused_handshake_is_logged_with_its_reason(
    wire: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "mcpearl.http")
    port, app = free_port(), make_app()
    if wire == "asgi":
        serve_it = under_uvicorn(app.asgi(websocket="/ws"), port)
    elif wire == "http":
        serve_it = serving(app, Http(port=port, websocket="/ws"))
    else:
        serve_it = serving(app, WebSocket(port=port, path="/ws"))
    async with serve_it:
        url = f"ws://127.0.0.1:{port}/ws?key=s3cret"
        with pytest.raises(InvalidStatus):
            async with opened(url, origin="https://evil.example"):
                pass
        with pytest.raises(InvalidStatus):
            async with connect(url, proxy=None, additional_headers={"X-Key": "s3cret"}):
                pass
        if wire != "asgi":  # uvicorn answers this one itself
            unfit = {"Sec-WebSocket-Protocol": "mcp, s3cret=="}
            with pytest.raises(InvalidStatus):
                async with connect(url, proxy=None, additional_headers=unfit):
                    pass
    told = [text for text in caplog.messages if text.startswith("refused GET '/ws' of 127.0.0.1")]
    assert len(told) == (2 if wire == "asgi" else 3)
    assert "with 403: " in told[0]
    assert "evil.example" in told[0]
    assert "with 400: " in told[1]
    assert "subprotocol" in told[1]
    assert wire == "asgi" or told[2].endswith(
        "The header Sec-WebSocket-Protocol is missing or not valid"
    )
    assert "s3cret" not in caplog.text


@asynccontextmanager
async def under_uvicorn(application: Any, port: int) -> AsyncIterator[None]:
    config = uvicorn.Config(application, port=port, log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield
    finally:
        server.should_exit = True
        await task


async def test_a_welcome_origin():
    origin = "https://app.example"
    async with (
        served(allowed_origins=frozenset({origin})) as url,
        Client(url, headers={"Origin": origin}) as client,
    ):
        await client.ping()


class Doorman:
    """A gate that knows one token, and has to think about another."""

    def known(self, request: Any) -> Principal | None:
        return (
            Principal("ada") if request.headers.get(b"authorization") == b"Bearer quick" else None
        )

    async def admit(self, request: Any) -> Principal:
        await asyncio.sleep(0.05)
        match request.headers.get(b"authorization"):
            case b"Bearer slow":
                return Principal("grace")
            case b"Bearer broken":
                raise RuntimeError("the doorman fell over")
        raise Refused(401, "Who are you?", headers=((b"www-authenticate", b"Bearer"),))

    def insufficient(self, request: Any, needed: Any) -> Refused:
        return Refused(403, "not for you")

    def document(self, request: Any) -> None:
        return None


@pytest.mark.parametrize("mounted", [False, True])
async def test_the_gate_says_who_comes_in(mounted: bool):
    port = free_port()
    gate: Any = Doorman()
    wire: Any = WebSocket(port=port, auth=gate)
    if mounted:
        wire = Http(port=port, auth=gate, websocket="/")
    async with serving(make_app(), wire):
        url = f"ws://127.0.0.1:{port}"
        for token, name in (("quick", "ada"), ("slow", "grace")):
            async with Client(url, headers={"Authorization": f"Bearer {token}"}) as client:
                assert (await client.call_tool("whoami")).structured_content == {"result": name}
        with pytest.raises(ConnectionLost, match=r"it answered 401 Unauthorized: Who are you\?"):
            async with Client(url):
                pass
        with pytest.raises(ConnectionLost, match="it answered 500"):
            async with Client(url, headers={"Authorization": "Bearer broken"}):
                pass


async def test_a_server_that_is_no_websocket():
    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.0\r\n\r\n")
        writer.close()

    port = free_port()
    async with await asyncio.start_server(wrong, "127.0.0.1", port):
        with pytest.raises(ConnectionLost, match=f"cannot connect to ws://127.0.0.1:{port}: "):
            async with Client(f"ws://127.0.0.1:{port}"):
                pass


@pytest.mark.parametrize("url", ["ws://", "ws:///path", "wss://host/path#part"])
def test_an_address_that_is_none(url: str):
    with pytest.raises(ValueError, match="not the address of a WebSocket"):
        Client(url)


# Frames


async def test_a_message_in_many_frames():
    async with served() as url, opened(url) as peer:
        text = call("echo", 1, text="grüße")
        await peer.send([text[:10], "", text[10:11], text[11:]])
        assert (await answer(peer))["result"]["structuredContent"] == {"result": "grüße"}


async def test_a_binary_frame_is_answered_and_costs_only_itself():
    async with served() as url, opened(url) as peer:
        await peer.send(call("add", 1, a=1, b=2).encode())
        await peer.send([b"in ", b"parts"])
        for _ in range(2):
            refused = await answer(peer)
            assert refused["id"] is None
            assert "binary frame is not a message" in refused["error"]["message"]
        await peer.send(call("add", 2, a=1, b=2))
        assert (await answer(peer))["id"] == 2


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x05hello", 1002),  # a client's frame has to be masked
        (b"\xf1\x80\x00\x00\x00\x00", 1002),  # reserved bits
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # an opcode there is not
        (b"\x80\x80\x00\x00\x00\x00", 1002),  # goes on with nothing
    ],
)
async def test_what_is_no_frame_closes_the_connection_with_its_code(data: bytes, code: int):
    app = make_app()
    async with served(app=app) as url, opened(url) as peer:
        peer.transport.write(data)
        with pytest.raises(ConnectionClosed):
            await answer(peer)
        assert peer.close_code == code
        await eventually(lambda: not app.core.roster)


async def test_a_compressed_message_that_would_be_too_long():
    app = make_app(limits=Limits(max_message=1_000_000))
    async with served(app=app) as url:
        extension = ClientPerMessageDeflateFactory()
        async with opened(url, extensions=[extension]) as peer:
            await peer.send(call("echo", 1, text="x" * 50_000_000))  # 50 kB on the wire
            with pytest.raises(ConnectionClosed):
                await answer(peer)
            assert peer.close_code == 1009


def numbers(size: int) -> str:
    """Text that compresses, but not without end."""
    return ",".join(map(str, range(size // 4)))[:size]


async def test_a_compressed_message_that_unpacks_to_too_much():
    deflate = ClientPerMessageDeflateFactory()
    async with served() as url, opened(url, extensions=[deflate]) as peer:
        await peer.send(call("echo", 1, text="x" * 60_000))
        await answer(peer)  # little is free
        await peer.send(call("echo", 2, text=numbers(2_000_000)))
        await answer(peer)
        await peer.send(call("echo", 3, text="x" * 1_000_000))
        with pytest.raises(ConnectionClosed):
            await answer(peer)
        assert peer.close_code == 1009
        assert "more than 50 times its size" in (peer.close_reason or "")


async def test_fragments_are_unpacked_to_no_more_together():
    deflate = ClientPerMessageDeflateFactory()
    async with served() as url, opened(url, extensions=[deflate]) as peer:
        parts = [json.dumps("x" * 50_000)[1:-1] for _ in range(20)]
        with pytest.raises(ConnectionClosed):
            await peer.send(iter(parts))
            await answer(peer)
        assert peer.close_code == 1009


async def test_what_repeats_itself_too_much_is_sent_as_it_is():
    app = make_app()
    async with served(app=app) as url, Client(url) as client:
        text = "x" * 1_000_000
        result = await client.call_tool("echo", {"text": text})
        assert result.structured_content == {"result": text}


async def test_only_large_messages_are_compressed():
    app = make_app()
    async with served(app=app) as url, Client(url) as client:
        await eventually(lambda: len(app.core.roster) == 1)
        (connection,) = app.core.roster
        for transport in (client._link.connection.transport, connection.transport):
            text = b",".join(b"%d" % number for number in range(20_000))
            small, large = (transport.framer.frame(text[:size]) for size in (100, 100_000))
            assert small[0] == 0x81  # text, as it is
            assert large[0] == 0xC1  # text, compressed
            assert len(large) < 50_000
        # And it arrives as it was sent, both ways.
        text = "grüße " * 20_000
        result = await client.call_tool("echo", {"text": text})
        assert result.structured_content == {"result": text}


# The wire's ping


async def test_a_ping_is_answered():
    async with served() as url, opened(url) as peer:
        pong = await peer.ping(b"are you there")
        async with asyncio.timeout(HANGS):
            await pong


async def test_a_silent_client_is_pinged_and_stays(clock: MovableClock):
    app = make_app()
    async with served(app=app, ping_interval=10.0, ping_timeout=5.0) as url:
        async with opened(url, ping_interval=None) as peer:
            await peer.send(call("add", 1, a=1, b=1))
            await answer(peer)
            for _ in range(8):
                await clock.advance(10)
            await peer.send(call("add", 2, a=1, b=1))
            assert (await answer(peer))["id"] == 2
        async with Client(url) as client:
            await client.ping()
            for _ in range(8):
                await clock.advance(10)
            await client.ping()


async def test_a_client_that_answers_no_ping_is_gone():
    app = make_app()
    async with served(app=app, ping_interval=2.0, ping_timeout=0.2) as url:
        port = int(url.rpartition(":")[2])
        dead = socket.create_connection(("127.0.0.1", port))
        dead.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mcp\r\n\r\n"
        )
        await eventually(lambda: app.core.roster)
        message = call("work", 1, number=1, seconds=60).encode()
        dead.sendall(Frame(Opcode.TEXT, message).serialize(mask=True))
        await eventually(lambda: next(iter(app.core.roster)).end.in_flight)
        await eventually(lambda: not app.core.roster)
        dead.close()


async def test_a_server_that_answers_no_ping_is_gone():
    async def silent(peer: Any) -> None:
        message = json.loads(await peer.recv())
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERED}
        await peer.send(json.dumps(answer))
        peer.transport.pause_reading()  # frozen, but there
        await done.wait()
        peer.transport.abort()

    port = free_port()
    done = asyncio.Event()
    async with serve(silent, "127.0.0.1", port, subprotocols=["mcp"]):
        beat = Beat(interval=1.0, timeout=0.2)
        transport = WebSocketClient(f"ws://127.0.0.1:{port}", Limits(), beat=beat)
        async with Client(transport) as client:
            with pytest.raises(ConnectionLost, match=r"did not answer a ping within 0\.2 s"):
                await client.call_tool("add")
        done.set()


# The end


async def test_goodbyes():
    app = make_app()
    async with served(app=app) as url:
        async with opened(url) as peer:
            await peer.send(call("work", 1, number=1, seconds=60))
            await eventually(lambda: any(one.end.in_flight for one in app.core.roster))
        assert peer.close_code == 1000
        await eventually(lambda: not app.core.roster)


async def test_a_server_that_ends_says_goodbye():
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    app = make_app(grace=20.0)
    async with serving(app, WebSocket(port=port)) as task, opened(url) as peer:
        await peer.send(call("work", 1, number=1, seconds=0.3))
        await eventually(lambda: any(one.end.in_flight for one in app.core.roster))
        task.cancel()
        assert (await answer(peer))["result"]["structuredContent"] == {"result": 1}
        with pytest.raises(ConnectionClosed):
            await answer(peer)
        assert peer.close_code == 1001


async def test_one_client_too_many_and_one_that_says_nothing(clock: MovableClock):
    async with served(max_connections=1, handshake_timeout=20.0) as url:
        port = int(url.rpartition(":")[2])
        async with asyncio.timeout(HANGS):
            while True:  # until the probe that found the port open is gone
                try:
                    peer = await opened(url)
                    break
                except InvalidStatus:
                    await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost, match=r"answered 503.*as many clients as it takes, 1"):
            async with Client(url):
                pass
        await clock.advance(40)
        with pytest.raises(ConnectionClosed):  # it has shaken hands, and that was all
            await answer(peer)
        assert (peer.close_code, peer.close_reason) == (1013, "No message came within 20 s")
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        await turns()
        await clock.advance(40)
        response = await reader.read()
        assert response.startswith(b"HTTP/1.1 503 ")
        assert b"No message came within 20 s" in response


async def test_pings_nobody_takes_the_answers_of_do_not_pile_up():
    app = make_app()
    async with served(app=app, stall_timeout=0.5) as url:
        peer = await opened(url, ping_interval=None)
        await peer.send(call("add", 1, a=1, b=1))
        await answer(peer)
        (connection,) = app.core.roster
        peer.transport.pause_reading()
        ping = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1000
        most = 0
        for _ in range(200):  # 25 MB of pongs, were they all made
            if peer.transport.is_closing():  # dropped already
                break
            peer.transport.write(ping)
            await asyncio.sleep(0.001)
            most = max(most, connection.transport.outbox.waiting)
        assert 0 < most < 3_000_000
        await eventually(lambda: not app.core.roster)  # and in the end it is dropped
        peer.transport.abort()
