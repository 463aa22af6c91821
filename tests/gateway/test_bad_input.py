"""Configurations without sense, upstreams that lie: what a person is told, and that the rest works."""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, Server
from mcpearl.client.entries import ConfigError
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.testing.clock import MovableClock
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.server.wire import wire
from tests.waiting import eventually

LIAR = str(Path(__file__).with_name("liar.py"))
PATIENT = UpstreamSettings(patience=30.0, timeout=30.0)
HASTY = UpstreamSettings(patience=30.0, timeout=0.5, max_timeout=1.0)


@asynccontextmanager
async def beside(
    how: str, settings: UpstreamSettings = PATIENT, **options: Any
) -> AsyncIterator[tuple[Client, Gateway]]:
    """A client of a gateway with a good upstream and one that does something wrong."""
    config = {"good": make(MODERN), "bad": [sys.executable, LIAR, how]}
    gateway = Gateway(config, upstreams=settings)
    async with Client(gateway, **options) as client:
        await eventually(lambda: gateway.servers["bad"].state == "ready")
        yield client, gateway
        assert (await client.call_tool("good__add", {"a": 1, "b": 2})).text == "3"
        assert "good__add" in [tool.name async for tool in client.tools()]


# The file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{ nope", r"mcp\.json is not JSON: line 1, column 3"),
        ("", r"mcp\.json is empty; write"),
        ("{}", r"mcp\.json has no servers: neither `mcpServers` nor `servers` is in it"),
        ("[]", r"mcp\.json is a list; it has to be an object"),
        ('{"mcpServers": 3}', r"something else than an object as `mcpServers`"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Gateway(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        Gateway(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {}}', "the configuration names no servers yet"),
        (
            '{"mcpServers": {"a": {"command": "x", "comand": 1, "icon": "y"}}}',
            "a: `comand` is not known; is `command` meant?",
        ),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "a: two servers have the name `a`; the last one is used, as other hosts do",
        ),
    ],
    ids=["no servers", "unknown fields", "one name twice"],
)
def test_what_may_be_a_mistake_is_said_once(
    text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    Gateway(text)
    assert [record.getMessage() for record in caplog.records] == [said]


# Upstreams that are nothing of the kind


class Page(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(404 if self.path == "/nothing" else 200)
        body = b"<html>Welcome</html>"
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def website() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def other_protocol() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken:
                    taken.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        listening.shutdown(socket.SHUT_RDWR)


async def test_what_is_not_a_server_is_named_with_the_reason() -> None:
    leaks = "import sys; print('password: hunter2', file=sys.stderr); raise SystemExit(3)"
    with website() as site, other_protocol() as ssh:
        config = {
            "good": make(MODERN),
            "page": f"{site}/page",
            "nothing": f"{site}/nothing",
            "ssh": ssh,
            "missing": ["no-such-command"],
            "echo": [sys.executable, "-c", "print('hello')"],
            "leaks": [sys.executable, "-c", leaks],
        }
        gateway = Gateway(config, upstreams=PATIENT)
        async with Client(gateway) as client:
            await eventually(
                lambda: {status.state for status in gateway.servers.values()} == {"ready", "down"}
            )
            listed = await client.list_tools()
            with pytest.raises(McpError) as refused:
                await client.call_tool("missing__x")
            full = gateway.servers["leaks"].reason or ""
    ask = "; is this the address of an MCP server?"
    said = (listed.meta or {})["mcpearl/unavailable"]
    html = "HTTP status 200 with content type 'text/html' is not an answer: <html>Welcome</html>"
    assert said["page"] == html + ask
    assert said["nothing"] == "HTTP status 404: <html>Welcome</html>" + ask
    assert "is not HTTP" in said["ssh"]
    assert said["missing"] == "cannot start `no-such-command`: no-such-command was not found"
    assert "exited with code 0 without answering" in said["echo"]
    assert said["leaks"].endswith("exited with code 3")
    assert "hunter2" in full  # for the person who runs the gateway, not for its clients
    assert set(said) == set(config) - {"good"}
    assert refused.value.message == f"`missing` is not there: {said['missing']}"


# Upstreams that lie


@pytest.mark.parametrize("how", ["wrong_id", "garbage"])
async def test_an_answer_to_another_question_is_none(how: str) -> None:
    async with beside(how, HASTY) as (client, _):
        with pytest.raises(McpError, match=r"`bad`: `tools/call` was not answered within 0\.5 s"):
            await client.call_tool("bad__x")


async def test_an_answer_that_is_not_an_object_is_an_error() -> None:
    async with beside("not_an_object") as (client, _):
        with pytest.raises(McpError, match="`bad` answered with something that is not a result"):
            await client.call_tool("bad__x")


async def test_an_upstream_that_claims_to_have_more_than_it_has() -> None:
    async with beside("lies") as (client, _):
        assert "bad__x" in [tool.name async for tool in client.tools()]
        assert {prompt.name async for prompt in client.prompts()} == {"good__greet"}
        assert [each.uri async for each in client.resources()] == ["note://one"]
        with pytest.raises(McpError):
            await client.get_prompt("bad__x")


async def test_an_upstream_that_has_more_than_it_claims() -> None:
    async with beside("denies") as (client, _):
        assert not [t async for t in client.tools() if t.name.startswith("bad")]
        assert (await client.call_tool("bad__x")).text == "x"  # what is asked for is passed on


async def test_an_upstream_with_ten_thousand_tools() -> None:
    async with beside("many") as (client, gateway):
        await eventually(lambda: gateway.upstreams["bad"].lists.tools())
        names = [tool.name async for tool in client.tools()]
        assert len(names) == len(set(names)) > 10_000
        assert (await client.call_tool("bad__t9999")).text == "x"


async def test_an_upstream_with_more_tools_than_it_may_have() -> None:
    settings = UpstreamSettings(patience=30.0, max_offers=5000)
    async with beside("many", settings) as (client, _):
        listed = await client.list_tools()
        assert "good__add" in [tool.name for tool in listed.tools]
        assert (await client.call_tool("bad__t9999")).text == "x"


@pytest.mark.parametrize("how", ["changes", "floods"])
async def test_an_upstream_that_changes_all_the_time(how: str) -> None:
    """Its lists are read now and then, and clients hear of that no more often."""
    heard: list[str] = []
    options: dict[str, Any] = {"on_notification": lambda n: heard.append(n.method)}
    async with beside(how, protocol=LEGACY[0], **options) as (client, gateway):
        counts: list[list[int]] = []

        async def changed_often() -> bool:
            counts.append(json.loads((await client.call_tool("bad__x")).text or ""))
            return counts[-1][0] - counts[0][0] > 100

        await eventually(changed_often)
        changes, lists = (last - first for first, last in zip(counts[0], counts[-1], strict=True))
        assert (await client.call_tool("good__add", {"a": 1, "b": 2})).text == "3"
        assert lists - len(counts) < changes / 5
        if how == "floods":  # the longer nothing is new, the less often clients hear of it
            assert heard.count("notifications/tools/list_changed") < 20
        if how == "changes":
            assert any(
                tool.name.startswith("new") for tool in gateway.upstreams["bad"].lists.tools() or ()
            )


@pytest.mark.parametrize("protocol", [LEGACY[0], MODERN[0]])
async def test_an_upstream_with_sessions_that_asks_for_ever(protocol: str) -> None:
    asked: list[str] = []

    def answer(params: Any) -> dict[str, Any]:
        asked.append(params.message)
        return {}

    said = r"wanted input 17 times|`bad`: `tools/call` was not answered within 1 s, the maximum"
    async with beside("asks", HASTY, protocol=protocol, elicitation=answer) as (client, gateway):
        with pytest.raises(Exception, match=said):
            await client.call_tool("bad__x")
        assert len(asked) > 1
        await eventually(lambda: gateway.mounts["bad"].calls == 0)


async def test_an_upstream_without_sessions_that_asks_for_ever() -> None:
    app = Server("asker", versions=MODERN)

    @app.tool
    async def x(ctx: Context) -> str:
        while True:
            await ctx.elicit("And now?", bool)

    gateway = Gateway({"bad": app, "good": make(MODERN)})
    options: dict[str, Any] = {"protocol": LEGACY[0], "elicitation": lambda p: {"value": True}}
    async with Client(gateway, **options) as client:
        with pytest.raises(McpError, match="`bad` asked 17 times in one call"):
            await client.call_tool("bad__x")
        assert (await client.call_tool("good__add", {"a": 1, "b": 2})).text == "3"


@pytest.mark.parametrize("protocol", [LEGACY[0], MODERN[0]])
async def test_an_upstream_that_asks_and_does_not_wait(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome of a call is kept for a client that is still answering."""
    over = asyncio.Event()

    async def answer(params: Any) -> dict[str, Any]:
        if protocol == MODERN[0]:
            await over.wait()
        return {}

    async with beside("asks_and_leaves", protocol=protocol, elicitation=answer) as (
        client,
        gateway,
    ):
        calling = asyncio.ensure_future(client.call_tool("bad__x"))
        upstream = gateway.upstreams["bad"]
        if protocol == MODERN[0]:
            parked = upstream.parked._calls
            await eventually(
                lambda: calling.done() or any(each._work.done() for each in parked.values())
            )
        over.set()
        assert (await calling).text == "never mind"
        assert len(upstream.parked) == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_outcome_that_is_not_asked_for_is_forgotten(clock: MovableClock) -> None:
    gateway = Gateway({"bad": [sys.executable, LIAR, "asks_and_leaves"]}, state_ttl=60.0)
    async with wire(gateway, MODERN[0]) as client:
        await eventually(lambda: gateway.servers["bad"].state == "ready")
        asked = await client.call("bad__x", {})
        parked = gateway.upstreams["bad"].parked
        if asked["result"]["resultType"] == "input_required":
            assert len(parked) == 1
            await clock.advance(61)
        await eventually(lambda: len(parked) == 0)
