"""`app.serving`: a server on any wire while a context lasts, at an address that is known."""

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Server, Tls, WebSocket
from tests.transports.certificates import Authority
from tests.transports.suite_server import make_app


@pytest.mark.parametrize(
    ("wire", "options", "begins"),
    [
        ("http", {"port": 0}, "http://127.0.0.1:"),
        ("streamable-http", {"port": "0", "path": "/x"}, "http://127.0.0.1:"),
        ("http", {"port": 0, "host": "0.0.0.0"}, "http://127.0.0.1:"),
        ("http", {"port": 0, "host": "::1"}, "http://[::1]:"),
        ("http", {"port": 0, "server": "granian"}, "http://127.0.0.1:"),
        ("tcp", {"port": 0}, "tcp://127.0.0.1:"),
        ("ws", {"port": 0, "path": "/ws"}, "ws://127.0.0.1:"),
        (WebSocket(port=0), {}, "ws://127.0.0.1:"),
        ("unix", {}, "unix:///"),
    ],
)
async def test_a_client_reaches_the_address(
    wire: Any, options: dict[str, Any], begins: str, tmp_path_factory: pytest.TempPathFactory
):
    if wire == "unix":
        options = {"path": tmp_path_factory.mktemp("w") / "s"}
    async with make_app().serving(wire, **options) as url:
        assert url.startswith(begins)
        assert ":0" not in url
        async with Client(url) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}


@pytest.mark.parametrize(("wire", "scheme"), [("http", "https"), ("tcp", "tls"), ("ws", "wss")])
async def test_with_a_certificate_the_address_says_tls(wire: str, scheme: str, tmp_path: Path):
    authority = Authority(tmp_path)
    own = authority.vouch("server")
    options: Any = {"certificate": own.certificate, "key": own.key}
    async with make_app().serving(wire, port=0, **options) as url:
        assert url.startswith(f"{scheme}://127.0.0.1:")
        async with Client(url, tls=Tls(ca=authority.ca)) as client:
            await client.ping()


async def test_sse_is_http_with_the_old_paths():
    async with (
        make_app().serving("sse", port=0) as url,
        Client(url.replace("/mcp", "/sse"), protocol="2024-11-05") as client,
    ):
        await client.ping()


async def test_several_servings_share_one_lifespan():
    entered = []

    @asynccontextmanager
    async def lifespan(app: Server):
        entered.append("in")
        yield
        entered.append("out")

    app = Server("any", lifespan=lifespan)
    async with app.serving("http", port=0) as one, app.serving("tcp", port=0) as other:
        for url in (one, other):
            async with Client(url) as client:
                await client.ping()
        assert entered == ["in"]
    assert entered == ["in", "out"]


async def test_stdio_has_no_address():
    with pytest.raises(ValueError, match=r"no address to connect to; `Client\(app\)`"):
        async with Server("any").serving("stdio"):
            pass


async def test_the_environment_fills_in_what_the_program_leaves_open(monkeypatch, caplog):
    monkeypatch.setenv("MCPEARL_PORT", "0")
    monkeypatch.setenv("MCPEARL_PATH", "/elsewhere")
    monkeypatch.setenv("MCPEARL_ALLOWED_HOSTS", "a.example.com, *.example.org")
    monkeypatch.setenv("MCPEARL_STATELESS", "yes")
    monkeypatch.setenv("MCPEARL_PROT", "1")
    monkeypatch.setenv("MCPEARL_RECEIPTS_KEY", "read elsewhere")
    from mcpearl.server.serving.choose import chosen

    (wire,) = chosen(("http",), {"path": "/mine"})
    assert (wire.port, wire.path, wire.stateless) == ("0", "/mine", True)
    assert wire.allowed_hosts == ["a.example.com", "*.example.org"]
    assert "MCPEARL_PROT, which is not a setting; did you mean `PORT`?" in caplog.text
    assert "MCPEARL_RECEIPTS_KEY" not in caplog.text
    async with make_app().serving("http") as url:
        assert url.endswith("/elsewhere")
    monkeypatch.setenv("MCPEARL_TRANSPORT", "tcp")
    assert type(chosen((), {})[0]).__name__ == "Tcp"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PORT", "http", "`port` must be a number from 0 to 65535, not 'http'"),
        ("WORKERS", "many", "MCPEARL_WORKERS is 'many': it must be a number"),
        ("STATELESS", "perhaps", "MCPEARL_STATELESS is 'perhaps': it must be 1 or 0"),
        ("ALLOWED_HOSTS", "https://a", "not a host"),
    ],
)
async def test_a_bad_value_of_the_environment_is_named(monkeypatch, name, value, says):
    monkeypatch.setenv(f"MCPEARL_{name}", value)
    with pytest.raises(ValueError, match=says):
        await Server("any").serve("http")


def test_keys_from_the_environment_open_what_another_process_sealed(monkeypatch):
    key = os.urandom(32)
    monkeypatch.setenv("MCPEARL_STATE_KEYS", key.hex())
    from mcpearl.protocol.seal import Sealer, binding

    bound = binding(None, "tools/call", "f", None)
    sealed = Server("any").core.sealer().seal(b"1", bound, 0)
    assert bytes(Sealer([key]).open(sealed, bound, 1)) == b"1"
    monkeypatch.setenv("MCPEARL_STATE_KEYS", "secret-key")
    with pytest.raises(ValueError, match="each key must have 32 bytes") as raised:
        Server("any")
    assert "secret-key" not in str(raised.value)
