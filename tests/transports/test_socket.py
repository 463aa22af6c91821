"""TCP, TLS and Unix sockets: what is theirs beside what every wire does."""

import asyncio
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mcpearl import Client, ConnectionLost, Limits, McpError, Server, Tcp, Tls, Unix, WebSocket
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.net.ports import bind_port
from mcpearl.protocol.framing import ContentLengthFramer
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.server.wire import HANGS, LEGACY, MODERN, meta
from tests.transports.certificates import Authority
from tests.transports.suite_server import make_app
from tests.transports.test_suite import Ear
from tests.transports.wires import serving
from tests.waiting import eventually

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="m") as name:
        yield Path(name)


def message(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> bytes:
    params = {**(params or {}), "_meta": meta()}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def call(tool: str, id: Any = 1, **arguments: Any) -> bytes:
    return message("tools/call", {"name": tool, "arguments": arguments}, id)


class Bare:
    """A client made of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(HANGS):
            line = await self.reader.readline()
        return json.loads(line) if line else None

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        async with asyncio.timeout(HANGS):
            return await self.reader.read()


async def bare(port: int) -> Bare:
    return Bare(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))


# Framing


async def test_the_server_speaks_as_each_client_does():
    port = free_port()
    async with serving(make_app(), Tcp(port=port)):
        lines, headers = await bare(port), await bare(port)
        lines.say(call("add", 1, a=1, b=2) + b"\n")
        body = call("add", 2, a=3, b=4)
        # A byte at a time: what framing it is shows only after a while.
        for byte in b"Content-Length: %d\r\n\r\n%b" % (len(body), body):
            headers.say(bytes((byte,)))
            await headers.writer.drain()
        assert (await lines.line())["result"]["structuredContent"] == {"result": 3}
        framer = ContentLengthFramer(1_000_000)
        frames: list[Any] = []
        async with asyncio.timeout(HANGS):
            while not frames:
                frames = framer.feed(await headers.reader.read(1000))
        assert json.loads(frames[0])["result"]["structuredContent"] == {"result": 7}


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_content_length_framing_by_option(version: str, folder: Path):
    port, path = free_port(), folder / "s"
    wires = Tcp(port=port, framing="content-length"), Unix(path=path)
    async with serving(make_app(), *wires):
        for url in (f"tcp://127.0.0.1:{port}", f"unix://{path}"):
            async with Client(url, framing="content-length", protocol=version) as client:
                result = await client.call_tool("echo", {"text": "a\nb"})
                assert result.structured_content == {"result": "a\nb"}


async def test_bad_framing_is_answered_and_costs_only_itself():
    port = free_port()
    async with serving(make_app(), Tcp(port=port, framing="content-length")):
        client = await bare(port)
        client.say(b"Content-Length: many\r\n\r\n")
        body = call("add", 5, a=1, b=1)
        client.say(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        framer = ContentLengthFramer(1_000_000)
        frames: list[Any] = []
        async with asyncio.timeout(HANGS):
            while len(frames) < 2:
                frames += framer.feed(await client.reader.read(1000))
        refused, answered = (json.loads(frame) for frame in frames)
        assert refused["error"]["code"] == -32600
        assert "not a whole number: 'many'" in refused["error"]["message"]
        assert answered["result"]["structuredContent"] == {"result": 2}


async def test_a_framing_nobody_knows():
    with pytest.raises(
        ValueError, match=r"unknown framing 'xml'; use one of 'newline', 'content-l"
    ):
        await make_app().serve("tcp", port=free_port(), framing="xml")
    with pytest.raises(ValueError, match="unknown framing 'xml'"):
        async with Client("tcp://127.0.0.1:1", framing="xml"):
            pass


# TLS


async def test_the_subject_of_a_clients_certificate_is_its_principal(folder: Path):
    authority, port = Authority(folder), free_port()
    own, alice = authority.vouch("server"), authority.vouch("alice", "Wonder, Land")
    wire = Tcp(port=port, certificate=own.certificate, key=own.key, client_ca=authority.ca)
    async with serving(make_app(), wire):
        tls = Tls(ca=authority.ca, certificate=alice.certificate, key=alice.key)
        async with Client(f"tls://127.0.0.1:{port}", tls=tls) as client:
            who = (await client.call_tool("whoami")).structured_content["result"]
        assert who == "CN=alice,O=Wonder\\, Land"


async def test_a_client_without_a_certificate_is_not_served_where_one_is_asked_for(folder: Path):
    authority, other, port = Authority(folder), Authority(folder, "other"), free_port()
    own, stranger = authority.vouch("server"), other.vouch("stranger")
    wire = Tcp(port=port, certificate=own.certificate, key=own.key, client_ca=authority.ca)
    called = False
    app = Server("closed")

    @app.tool
    async def touch() -> str:
        nonlocal called
        called = True
        return "touched"

    async with serving(app, wire):
        strange = Tls(ca=authority.ca, certificate=stranger.certificate, key=stranger.key)
        for tls in (Tls(ca=authority.ca), strange):
            with pytest.raises(ConnectionLost):
                async with Client(f"tls://127.0.0.1:{port}", tls=tls) as client:
                    await client.call_tool("touch")
    assert not called


async def test_a_server_nobody_vouches_for_is_not_talked_to(folder: Path):
    authority, port = Authority(folder), free_port()
    own = authority.vouch("server")
    async with serving(make_app(), Tcp(port=port, certificate=own.certificate, key=own.key)):
        with pytest.raises(ConnectionLost, match=r"cannot connect to tls://.*certificate"):
            async with Client(f"tls://127.0.0.1:{port}"):
                pass
        context = ssl.create_default_context(cafile=authority.ca)
        async with Client(f"tls://localhost:{port}", tls=context) as client:
            assert (await client.call_tool("whoami")).structured_content == {"result": "nobody"}


async def test_plain_bytes_at_a_tls_port_cost_only_their_sender(folder: Path):
    authority, port = Authority(folder), free_port()
    own = authority.vouch("server")
    async with serving(make_app(), Tcp(port=port, certificate=own.certificate, key=own.key)):
        client = await bare(port)
        client.say(call("add", 1, a=1, b=2) + b"\n")
        try:
            assert b"result" not in await client.rest()
        except ConnectionResetError:
            pass
        async with Client(f"tls://127.0.0.1:{port}", tls=Tls(ca=authority.ca)) as good:
            await good.ping()


async def test_a_key_without_a_certificate():
    with pytest.raises(ValueError, match="need a `certificate`"):
        await make_app().serve("tcp", port=free_port(), client_ca="ca.pem")


# Ports


async def test_small_messages_leave_at_once_and_the_system_watches_the_peer():
    app = make_app()
    port = free_port()
    async with serving(app, Tcp(port=port)), Client(f"tcp://127.0.0.1:{port}") as client:
        await eventually(lambda: len(app.core.roster) == 1)
        (served,) = app.core.roster
        for transport in (client._link.connection.transport, served.transport):
            system = transport.wire.get_extra_info("socket")
            assert system.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert system.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert system.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_a_port_that_is_taken_is_named_and_shared_where_both_agree():
    port = free_port()
    with bind_port("127.0.0.1", port, reuse_port=True) as first:
        first.listen()
        with pytest.raises(
            OSError, match=f"cannot listen on 127.0.0.1 port {port}.*choose another"
        ):
            await make_app().serve("tcp", port=port)
    one, other = make_app(), make_app()
    shared = Tcp(port=port, reuse_port=True)
    async with serving(one, shared), serving(other, shared):
        for _ in range(30):
            async with Client(f"tcp://127.0.0.1:{port}") as client:
                await client.ping()


async def test_no_server_at_the_address(folder: Path):
    for url in (f"tcp://127.0.0.1:{free_port()}", f"unix://{folder}/none"):
        with pytest.raises(ConnectionLost, match=f"cannot connect to {url}"):
            async with Client(url):
                pass


# Unix sockets


async def test_a_unix_socket_is_its_owners_and_goes_with_the_server(folder: Path):
    path = folder / "s"
    before = os.umask(0)  # whatever the process is used to
    try:
        async with serving(make_app(), Unix(path=path)):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert not path.exists()


async def test_what_a_dead_server_left_is_removed(folder: Path):
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    async with serving(make_app(), Unix(path=path)), Client(f"unix://{path}") as client:
        await client.ping()


async def test_what_a_living_server_listens_on_is_not(folder: Path):
    path = folder / "s"
    async with serving(make_app(), Unix(path=path)):
        with pytest.raises(OSError, match="a running server listens there"):
            await make_app().serve("unix", path=path)
        async with Client(f"unix://{path}") as client:
            await client.ping()


async def test_a_file_that_is_no_socket_is_left_alone(folder: Path):
    path = folder / "s"
    path.write_text("dear diary")
    with pytest.raises(OSError, match="a file that is not a socket"):
        await make_app().serve("unix", path=path)
    assert path.read_text() == "dear diary"


async def test_a_path_that_is_too_long_is_said_to_be(folder: Path):
    with pytest.raises(ValueError, match="a Unix socket's may have 107; choose a shorter one"):
        await make_app().serve("unix", path=folder / ("x" * 200))


async def test_a_socket_somebody_else_put_there_is_not_removed(folder: Path):
    path = folder / "s"
    async with serving(make_app(), Unix(path=path)):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


# How many, and how long


async def test_the_one_client_too_many_is_told(caplog: pytest.LogCaptureFixture):
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port, max_connections=2)):
        await eventually(lambda: not app.core.roster)  # the probe that found the port open
        async with Client(f"tcp://127.0.0.1:{port}") as one:
            async with Client(f"tcp://127.0.0.1:{port}") as two:
                third = await bare(port)
                third.say(call("add", 1, a=1, b=1) + b"\n")
                refused = await third.line()
                assert refused["id"] is None
                assert "has as many clients as it takes, 2" in refused["error"]["message"]
                assert await third.line() is None
                await two.ping()
            await one.ping()
            async with asyncio.timeout(HANGS):
                while True:  # there is room again
                    try:
                        async with Client(f"tcp://127.0.0.1:{port}") as three:
                            await three.ping()
                        break
                    except (ConnectionLost, McpError):
                        await asyncio.sleep(0.01)


async def test_a_crowd_that_is_refused_is_bounded():
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    async with serving(make_app(), Tcp(port=port, max_connections=1)), Client(url) as client:
        crowd = await asyncio.gather(*(bare(port) for _ in range(300)))
        told = await asyncio.gather(*(_last_words(one) for one in crowd))
        assert sum(b"clients as it takes" in words for words in told) >= 100
        await client.ping()
        for one in crowd:
            one.writer.close()


async def _last_words(client: Bare) -> bytes:
    try:
        return await client.rest()
    except ConnectionError:
        return b""


async def test_a_client_that_never_speaks_is_dropped():
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port, handshake_timeout=0.2)):
        silent, dribbling = await bare(port), await bare(port)
        dribbling.say(b'{"jsonrpc"')
        for client in (silent, dribbling):
            assert "No message came within 0.2 s" in (await client.line())["error"]["message"]
            assert await client.line() is None
        await eventually(lambda: not app.core.roster)


async def test_a_client_that_is_silent_too_long_is_dropped_but_not_one_that_waits():
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port, idle_timeout=1.0)):
        idle, waiting = await bare(port), await bare(port)
        idle.say(call("add", 1, a=1, b=1) + b"\n")
        waiting.say(call("work", 2, number=2, seconds=2.0) + b"\n")
        assert (await idle.line())["result"]
        assert "No message came for 1 s" in (await idle.line())["error"]["message"]
        assert await idle.line() is None
        assert (await waiting.line())["result"]["structuredContent"] == {"result": 2}


async def test_pongs_are_no_talk():
    port = free_port()
    app = make_app()
    wire = WebSocket(port=port, idle_timeout=1.5, ping_interval=0.1, ping_timeout=5.0)
    url = f"ws://127.0.0.1:{port}"
    async with serving(app, wire), Client(url, reconnect=False) as client:
        await client.ping()
        await eventually(lambda: not app.core.roster)
        with pytest.raises(ConnectionLost, match=r"1013 .*No message came for 1\.5 s"):
            await client.ping()


async def test_a_client_that_never_shakes_hands_is_dropped(folder: Path):
    own, port = Authority(folder).vouch("server"), free_port()
    wire = Tcp(port=port, certificate=own.certificate, key=own.key, handshake_timeout=0.3)
    async with serving(make_app(), wire):
        silent = await bare(port)
        assert await _last_words(silent) == b""


async def test_a_client_that_keeps_talking_stays(clock: MovableClock):
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    app = make_app()
    async with serving(app, Tcp(port=port, idle_timeout=10.0)):
        await eventually(lambda: not app.connections)
        async with Client(url) as client:
            await client.ping()
            (connection,) = app.connections
            for _ in range(10):
                await clock.advance(6)
                await client.ping()
            assert set(app.connections) == {connection}, "it never had to come back"


async def test_a_client_that_stops_reading_is_dropped_after_a_while():
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port, stall_timeout=0.4)):
        await eventually(lambda: not app.core.roster)
        slow = await bare(port)
        slow.writer.transport.pause_reading()
        await eventually(lambda: len(app.core.roster) == 1)
        for number in range(8):
            slow.say(call("echo", number, text="x" * 4_000_000) + b"\n")
        await eventually(lambda: not app.core.roster)
        async with Client(f"tcp://127.0.0.1:{port}") as client:
            await client.ping()
        slow.writer.transport.abort()


async def test_a_client_that_leaves_too_much_unread_is_dropped_at_the_bound(
    caplog: pytest.LogCaptureFixture,
):
    port = free_port()
    uri = "notes://" + "x" * 10_000
    app = Server("loud", limits=Limits(max_outgoing=2_000_000))
    app.add_resource(uri, lambda: "text")

    async with serving(app, Tcp(port=port)):
        await eventually(lambda: not app.core.roster)
        slow = await bare(port)
        wanted = {"notifications": {"resourceSubscriptions": [uri]}}
        slow.say(message("subscriptions/listen", wanted) + b"\n")
        assert (await slow.line())["method"] == "notifications/subscriptions/acknowledged"
        slow.writer.transport.pause_reading()
        sent = 0
        while app.core.roster:
            app.notify_resource_updated(uri)
            sent += len(uri)
            await asyncio.sleep(0)
            assert sent < 100_000_000  # the system's buffers, the bound, and not much more
        assert "a client was dropped: the peer does not read" in caplog.text
        assert app.core.subscriptions.counts()["uris"] == 0
        async with Client(f"tcp://127.0.0.1:{port}") as client:
            await client.ping()
        slow.writer.transport.abort()


def make_talker(**limits: int) -> tuple[Server, asyncio.Event, list[int]]:
    """A server that says much, when it is let; and the calls under way that are not to end."""
    app, gate, waiting = Server("talker", limits=Limits(**limits)), asyncio.Event(), list[int]()

    @app.tool
    async def say(size: int, at_once: bool = True) -> str:
        if not at_once:
            waiting.append(size)
            await gate.wait()
        return "x" * size

    @app.tool
    async def linger(number: int) -> None:
        waiting.append(number)
        try:
            await asyncio.Event().wait()
        finally:
            waiting.remove(number)

    return app, gate, waiting


async def test_answers_to_a_client_that_does_not_read_count_against_the_bound(
    caplog: pytest.LogCaptureFixture,
):
    port, much = free_port(), 200_000
    app, gate, waiting = make_talker(max_outgoing=4_000_000)
    async with serving(app, Tcp(port=port)):
        await eventually(lambda: not app.core.roster)
        slow = await bare(port)
        for number in range(100):  # all in hand before the first is answered
            slow.say(call("say", number, size=much, at_once=False) + b"\n")
        await eventually(lambda: len(waiting) == 100)
        slow.writer.transport.pause_reading()
        gate.set()
        await eventually(lambda: not app.core.roster)
        assert "a client was dropped: the peer does not read" in caplog.text
        async with Client(f"tcp://127.0.0.1:{port}") as client:
            await client.ping()
        slow.writer.transport.abort()


async def test_a_client_that_reads_may_ask_for_more_than_the_bound_at_once():
    port, much = free_port(), 100_000
    app, _, _ = make_talker(max_outgoing=2_000_000)
    async with serving(app, Tcp(port=port)):
        client = await bare(port)
        client.say(b"".join(call("say", n, size=much) + b"\n" for n in range(300)))
        answers = [await client.line() for _ in range(300)]
        assert {answer["id"] for answer in answers} == set(range(300))
        client.writer.close()


@pytest.mark.parametrize("bound", [100_000, 3_000_000])
async def test_nothing_is_begun_for_a_client_that_does_not_read(bound: int):
    port = free_port()
    app, _, lingering = make_talker(max_outgoing=bound)
    async with serving(app, Tcp(port=port, stall_timeout=0.5)):
        await eventually(lambda: not app.core.roster)
        slow = await bare(port)
        slow.writer.transport.pause_reading()
        calls = [call("say", number, size=40_000) for number in range(300)]
        calls += [call("linger", 1000 + number, number=number) for number in range(20)]
        slow.say(b"".join(one + b"\n" for one in calls))
        await eventually(lambda: len(app.core.roster) == 1)
        await eventually(lambda: not app.core.roster)
        assert not lingering
        slow.writer.transport.abort()


async def test_part_of_a_message_is_a_sign_of_life():
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port)):
        await eventually(lambda: not app.core.roster)
        client = await bare(port)
        client.say(call("add", 1, a=1, b=1) + b"\n")
        await client.line()
        (connection,) = app.core.roster
        whole = call("echo", 2, text="x" * 10_000) + b"\n"
        for start in range(0, len(whole), 4000):
            connection.heard_at = 0.0
            client.say(whole[start : start + 4000])
            await eventually(lambda: connection.heard_at)
        assert (await client.line())["id"] == 2
        client.writer.close()


async def test_a_client_that_is_cut_off_leaves_nothing():
    port = free_port()
    app = make_app()
    async with serving(app, Tcp(port=port)):
        for _ in range(20):
            client = await bare(port)
            client.say(call("work", 1, number=1, seconds=60) + b"\n" + b'{"half a mess')
            await eventually(lambda: [len(each.end.in_flight) for each in app.core.roster] == [1])
            # As a process that is killed with something unread: reset, not closed.
            system = client.writer.get_extra_info("socket")
            system.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.writer.transport.abort()
            await eventually(lambda: not app.core.roster)


async def test_a_client_that_has_said_everything_still_gets_its_answers():
    port = free_port()
    async with serving(make_app(), Tcp(port=port)):
        client = await bare(port)
        for number in range(5):
            client.say(call("work", number, number=number, seconds=0.1) + b"\n")
        client.writer.write_eof()
        answers = [json.loads(line) for line in (await client.rest()).splitlines()]
        assert {answer["id"] for answer in answers} == set(range(5))


@pytest.mark.parametrize("kind", ["tcp", "unix", "ws"])
async def test_while_one_floods_the_others_are_served(kind: str, folder: Path):
    ticks = 0
    app = Server("clock")

    @app.tool
    async def tick() -> int:
        nonlocal ticks
        ticks += 1
        return ticks

    flood, port, path = 10_000, free_port(), folder / "s"
    wires = {
        "tcp": (Tcp(port=port), f"tcp://127.0.0.1:{port}"),
        "unix": (Unix(path=path), f"unix://{path}"),
        "ws": (WebSocket(port=port), f"ws://127.0.0.1:{port}"),
    }
    wire, url = wires[kind]
    async with serving(app, wire), Client(url, validate_output=False) as other:
        route = find_target(url, ReachOptions())
        assert route.transport is not None
        flooding, ear = route.transport(Limits(max_outgoing=1 << 28)), Ear()
        await flooding.open(ear)
        for number in range(flood):
            flooding.send(call("tick", number))
        flooding.flush()
        await eventually(lambda: ticks)
        for _ in range(20):
            await other.call_tool("tick")
        assert ticks < flood  # it had not to wait until the flood was over
        await eventually(lambda: len(ear.messages) == flood, 30.0)
        assert [message["id"] for message in ear.messages] == list(range(flood))
        await flooding.close()


# Several wires, and the end


async def test_several_wires_at_once_share_one_server(folder: Path):
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> Any:
        entered.append("up")
        yield
        entered.append("down")

    app = make_app(lifespan=lifespan)
    port, path = free_port(), folder / "s"
    async with serving(app, Tcp(port=port), Unix(path=path)):
        async with Client(f"tcp://127.0.0.1:{port}") as one, Client(f"unix://{path}") as other:
            await one.call_tool("work", {"number": 1})
            report = (await other.call_tool("report")).structured_content
            assert report["begun"] == [1]
        assert entered == ["up"]
    assert entered == ["up", "down"]


async def test_a_wire_that_cannot_be_opened_takes_the_others_down(folder: Path):
    port, path = free_port(), folder / "s"
    with bind_port("127.0.0.1", port) as taken:
        taken.listen()
        with pytest.raises(OSError, match="cannot listen"):
            await make_app().serve(Unix(path=path), Tcp(port=port))
    assert not path.exists()


SERVER = """
import sys
sys.path[:0] = {path!r}
from mcpearl import Tcp, Unix
from tests.transports.suite_server import make_app
from tests.transports.test_suite import Ear
make_app(grace=30.0).run(Tcp(port={port}), Unix(path={unix!r}))
"""


class Process:
    def __init__(self, folder: Path) -> None:
        self.port, self.unix = free_port(), folder / "s"
        code = SERVER.format(path=sys.path, port=self.port, unix=str(self.unix))
        self.popen = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)

    async def up(self) -> None:
        await eventually(self.unix.exists)

    async def working(self, client: Client, calls: int) -> None:
        """Wait until so many calls of `work` have begun."""
        async with asyncio.timeout(HANGS):
            while len((await client.call_tool("report")).structured_content["begun"]) < calls:
                await asyncio.sleep(0.01)

    async def leaving(self) -> None:
        """Wait until nobody is taken in any more."""
        async with asyncio.timeout(HANGS):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    return
                writer.close()
                await asyncio.sleep(0.01)

    async def ended(self) -> int:
        await eventually(lambda: self.popen.poll() is not None)
        assert self.popen.stderr is not None
        self.said = self.popen.stderr.read().decode()
        self.popen.stderr.close()
        return self.popen.returncode


async def test_sigterm_drains_every_wire(folder: Path):
    process = Process(folder)
    await process.up()
    options: dict[str, Any] = {"validate_output": False, "reconnect": False}
    one = Client(f"tcp://127.0.0.1:{process.port}", **options)
    other = Client(f"unix://{process.unix}", **options)
    async with one, other:
        work = [
            asyncio.create_task(client.call_tool("work", {"number": 1, "seconds": 1.0}))
            for client in (one, other)
        ]
        await process.working(one, 2)
        process.popen.send_signal(signal.SIGTERM)
        await process.leaving()
        with pytest.raises(ConnectionLost):  # nobody is taken in any more
            async with Client(f"tcp://127.0.0.1:{process.port}"):
                pass
        for result in await asyncio.gather(*work):
            assert result.structured_content == {"result": 1}
        assert await process.ended() == 0, process.said
    assert not process.unix.exists()


async def test_a_second_signal_ends_at_once(folder: Path):
    process = Process(folder)
    await process.up()
    async with Client(f"unix://{process.unix}", reconnect=False) as client:
        pending = asyncio.create_task(client.call_tool("work", {"number": 1, "seconds": 60}))
        await process.working(client, 1)
        process.popen.send_signal(signal.SIGTERM)
        await process.leaving()
        assert process.popen.poll() is None
        process.popen.send_signal(signal.SIGTERM)
        assert await process.ended() == -signal.SIGTERM
        with pytest.raises(ConnectionLost) as caught:
            await pending
        assert caught.value.maybe_executed
