"""Wires by name and as objects: what they are given, and what they say of mistakes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import mcpearl
from mcpearl import Client, ConnectionLost, Http, Server, Tcp, Unix, WebSocket
from mcpearl.server.serving.choose import chosen
from mcpearl.server.serving.options import AsgiOptions, WireOptions
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.transports.raw_http import Raw
from tests.transports.suite_server import make_app
from tests.transports.wires import serving
from tests.waiting import eventually


def test_names_become_objects_with_their_options():
    (tcp,) = chosen(("tcp",), {"port": 1234})
    assert tcp == Tcp(port=1234)
    http, ws = chosen(("http", "ws"), {})
    assert isinstance(http, Http)
    assert ws == WebSocket()


@pytest.mark.parametrize(
    ("wires", "options", "error", "says"),
    [
        (
            ("telepathy",),
            {},
            ValueError,
            "unknown transport 'telepathy'; choose one of 'stdio', 'http'",
        ),
        (("htpp",), {}, ValueError, "unknown transport 'htpp'; did you mean `http`?"),
        (("tcp",), {"prt": 1}, TypeError, "'tcp' has no option `prt`; did you mean `port`?"),
        (("http",), {"prt": 1}, TypeError, "'http' has no option `prt`; did you mean `port`?"),
        (("unix",), {"xyz": 1}, TypeError, "'unix' has no option `xyz`; it has .*path"),
        ((), {"port": 1}, TypeError, r"not an option of 'stdio' but .*app.run\('http', port=1\)"),
        (
            ("http",),
            {"framing": "newline"},
            TypeError,
            "not an option of 'http' but of 'tcp', 'unix'",
        ),
        (("http",), {"transport": "sse"}, TypeError, "given twice, as 'http' and as `transport`"),
        (
            ("http",),
            {"port": "80x"},
            ValueError,
            "`port` must be a number from 0 to 65535, not '80x'",
        ),
        (
            ("tcp",),
            {"port": 70000},
            ValueError,
            "`port` must be a number from 0 to 65535, not 70000",
        ),
        (("ws",), {"port": None}, ValueError, "`port` must be a number"),
        (("http",), {"workers": 0}, ValueError, "`workers` must be a number from 1 on, not 0"),
        (("unix",), {}, TypeError, "cannot serve on 'unix': Missing required argument 'path'"),
        (("http", "tcp"), {"port": 1}, TypeError, "write several as `Http"),
        ((Tcp(),), {"port": 1}, TypeError, r"options \(port\) go with one wire by name"),
    ],
)
async def test_mistakes_are_named(wires: tuple, options: dict, error: type, says: str):
    with pytest.raises(error, match=says):
        await Server("any").serve(*wires, **options)


def test_options_are_typed_as_the_records_have_them():
    wires = (Http, Tcp, Unix, WebSocket)
    fields = {field for wire in wires for field in wire.__struct_fields__}
    assert WireOptions.__annotations__.keys() == fields | {"transport"}
    assert AsgiOptions.__annotations__.keys() < set(Http.__struct_fields__)


def test_an_asgi_application_has_no_port():
    with pytest.raises(TypeError, match="'port' is not an option of an ASGI application"):
        Server("any").asgi(port=1)


async def test_websockets_beside_http_are_bounded():
    port = free_port()
    url, wire = f"ws://127.0.0.1:{port}/ws", Http(port=port, websocket="/ws", max_websockets=1)
    async with serving(make_app(), wire), Client(url) as first:
        with pytest.raises(ConnectionLost, match=r"503.*as many clients as it takes, 1"):
            async with Client(url, reconnect=False):
                pass
        await first.ping()
        async with Client(f"http://127.0.0.1:{port}/mcp") as other:  # has a bound of its own
            await other.ping()


async def test_every_wire_at_once(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("w") / "s"
    http, tcp, ws = free_port(), free_port(), free_port()
    wires = Http(port=http, websocket="/ws"), Tcp(port=tcp), WebSocket(port=ws), Unix(path=path)
    async with serving(make_app(), *wires):
        for number, url in enumerate(
            (
                f"http://127.0.0.1:{http}/mcp",
                f"ws://127.0.0.1:{http}/ws",
                f"tcp://127.0.0.1:{tcp}",
                f"ws://127.0.0.1:{ws}",
                f"unix://{path}",
            ),
            1,
        ):
            async with Client(url) as client:
                await client.call_tool("work", {"number": number})
                begun = (await client.call_tool("report")).structured_content["begun"]
                assert begun == list(range(1, number + 1))
    for port in (http, tcp, ws):
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_http_tells_the_one_connection_too_many():
    port = free_port()
    app = make_app()
    async with serving(app, Http(port=port, max_connections=2)):
        raw = Raw(port)
        idle = [await raw.connect() for _ in range(2)]

        async def answers(status: int) -> bool:
            return (await raw.call("add", {"a": 1, "b": 2})).status == status

        await eventually(lambda: answers(503))
        for _, writer in idle:
            writer.close()
        await eventually(lambda: answers(200))


async def test_the_servers_sockets_are_closed_when_it_was_never_used():
    port = free_port()
    async with serving(make_app(), Tcp(port=port)):
        pass
    async with serving(make_app(), Tcp(port=port)), Client(f"tcp://127.0.0.1:{port}") as client:
        await eventually(lambda: client.era == "modern")


def test_the_wires_are_public():
    for name in ("Http", "Stdio", "Tcp", "Unix", "WebSocket", "Tls", "Transport", "Receiver"):
        assert name in mcpearl.__all__
        assert getattr(mcpearl, name)


@pytest.mark.parametrize("kind", ["http", "tcp", "unix", "ws"])
async def test_a_wire_killed_at_any_moment_of_its_start_comes_back(
    kind: str, tmp_path: Path, clock: MovableClock
) -> None:
    app = Server("killed")
    wires: dict[str, Any] = {
        "http": Http(port=free_port(), console=True, health="/health"),
        "tcp": Tcp(port=free_port()),
        "unix": Unix(path=tmp_path / "s"),
        "ws": WebSocket(port=free_port()),
    }
    serving = asyncio.ensure_future(app.serve(wires[kind]))

    def path() -> tuple[str, ...]:
        return next(path for path, _ in app.tree().walk() if path[:-1] == ("wires",))

    def runs() -> bool:
        return [node.state for path, node in app.tree().walk() if path[:-1] == ("wires",)] == [
            "running"
        ]

    await eventually(runs)
    for turns in range(12):
        assert app.parts.kill(*path())
        for _ in range(turns):
            await asyncio.sleep(0)
        app.parts.kill(*path())
        await clock.advance(61)
        await eventually(runs, otherwise=app.tree)
    serving.cancel()
    await asyncio.wait([serving])
