"""The gateway as a server: its configuration, its identity, workers, and bridges."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl import AuthorizationFailed, Client, McpError, Rewrite, Server
from mcpearl.auth import BearerToken, Principal, StaticTokens
from mcpearl.gateway.bridge import bridge
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import Access, UpstreamSettings
from mcpearl.testing.clock import MovableClock
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.ports import free_port
from tests.server.wire import wire
from tests.waiting import eventually

HERE = Path(__file__).parent
SERVER = str(HERE / "upstream_server.py")
PATIENT = UpstreamSettings(patience=30.0)


def command(versions: tuple[str, ...] = MODERN) -> list[str]:
    return [sys.executable, SERVER, ",".join(versions)]


def entry(versions: tuple[str, ...] = MODERN, **more: Any) -> dict[str, Any]:
    program, *arguments = command(versions)
    return {"command": program, "args": arguments, **more}


async def test_the_file_is_watched_and_what_stays_is_not_disturbed(
    tmp_path: Path, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mcp.json"

    def write(**servers: Any) -> None:
        file.write_text(json.dumps({"mcpServers": servers}))

    write(stays=entry(), goes=entry(), changes=entry())
    gateway = Gateway(file, upstreams=PATIENT)
    async with Client(gateway, timeout=60) as client:
        first = (await client.call_tool("stays__who")).data["pid"]
        before = (await client.call_tool("changes__who")).data["pid"]
        call = asyncio.create_task(client.call_tool("stays__slow", {"seconds": 2}))
        write(stays=entry(), changes=entry(env={"X": "1"}), comes=entry(), bad={"command": 3})
        await clock.advance(2)  # it looks every second
        await eventually(lambda: set(gateway.mounts) == {"stays", "changes", "comes"})
        assert gateway.servers["bad"].state == "invalid"
        assert (await client.call_tool("comes__add", {"a": 1, "b": 1})).data == 2
        assert (await client.call_tool("changes__who")).data["pid"] != before
        assert (await call).data == "done"
        assert (await client.call_tool("stays__who")).data["pid"] == first
        file.write_text("{ this is not JSON")
        await clock.advance(2)
        await eventually(lambda: "the configuration stays as it was" in caplog.text)
        assert set(gateway.mounts) == {"stays", "changes", "comes"}
        with pytest.raises(McpError, match="Unknown tool"):
            await client.call_tool("goes__add", {"a": 1, "b": 1})
        assert (await client.call_tool("stays__who")).data["pid"] == first
        write(stays=entry())  # and a file that is mended is followed again
        await clock.advance(2)
        await eventually(lambda: set(gateway.mounts) == {"stays"})
        assert (await client.call_tool("stays__who")).data["pid"] == first


async def test_a_configuration_that_is_not_trusted_reaches_nothing_private() -> None:
    config = {
        "program": entry(),
        "metadata": {"url": "https://169.254.169.254/mcp"},
        "loopback": {"url": "http://127.0.0.1:1/mcp"},
        "private": {"url": "https://10.0.0.1/mcp"},
        "plain": {"url": "http://example.com/mcp"},
        "rebound": {"url": "https://localtest.invalid/mcp"},
    }
    gateway = Gateway({"mcpServers": config}, trusted=False, upstreams=UpstreamSettings(patience=5))
    assert set(gateway.mounts) == {"rebound"}
    states = {name: status.state for name, status in gateway.servers.items()}
    assert [name for name, state in states.items() if state == "invalid"] == [
        "program",
        "metadata",
        "loopback",
        "private",
        "plain",
    ]
    async with Client(gateway) as client:
        with pytest.raises(McpError, match="cannot be resolved"):
            await client.call_tool("rebound__x")


def test_a_configuration_that_is_not_trusted_learns_nothing_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEPLOY_KEY", "hunter2-hunter2")
    (tmp_path / "secrets.env").write_text("A=hunter2-hunter2")
    config = {
        "address": {"url": "https://example.com/${DEPLOY_KEY}/mcp"},
        "header": {"url": "https://example.com/mcp", "headers": {"X-Key": "${env:DEPLOY_KEY}"}},
        "default": {"url": "https://example.com/mcp?${DEPLOY_KEY:-none}"},
        "home": {"url": "https://example.com/mcp?${userHome}"},
        "file": {"command": "x", "envFile": str(tmp_path / "secrets.env")},
        "no file": {"command": "x", "envFile": str(tmp_path / "missing.env")},
        "fine": {"url": "https://example.com/mcp"},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": config}))
    gateway = Gateway(file, trusted=False)
    assert set(gateway.mounts) == {"fine"}
    reasons = {name: status.reason or "" for name, status in gateway.servers.items()}
    for name in ("address", "header", "default", "home"):
        assert reasons[name].endswith("which a configuration that is not trusted may not")
    assert reasons["file"].replace("`file`", "") == reasons["no file"].replace("`no file`", "")
    assert "hunter2" not in caplog.text + str(reasons)
    assert "hunter2" in (Gateway(file).upstreams["address"].entry.url or "")


async def test_a_name_that_leads_to_this_machine_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def lookup(*_: Any, **__: Any) -> Any:
        return [(2, 1, 6, "", ("127.0.0.1", 443))]

    monkeypatch.setattr(loop, "getaddrinfo", lookup)
    gateway = Gateway({"x": {"url": "https://example.com/mcp"}}, trusted=False)
    async with Client(gateway) as client:
        with pytest.raises(McpError, match="an address of this machine, which is not allowed"):
            await client.call_tool("x__y")


async def test_callers_are_protected_and_made_known_where_configured() -> None:
    upstream = make(MODERN)
    tokens = StaticTokens({"token-of-ada-1234": "ada", "token-of-bob-1234": "bob"})

    async def exchanged(principal: Principal) -> dict[str, str]:
        return {"Authorization": f"Bearer for-{principal.subject}"}

    async with upstream.serving("http", port=0) as inner:
        gateway = Gateway(
            {"known": inner, "unknown": inner},
            access={"known": Access(identity=exchanged)},
            auth=tokens,
        )
        async with gateway.serving("http", port=0) as url:
            for token, name in (("token-of-ada-1234", "ada"), ("token-of-bob-1234", "bob")):
                async with Client(url, auth=BearerToken(token)) as client:
                    who = (await client.call_tool("known__who")).data
                    assert who["authorization"] == f"Bearer for-{name}"
                    assert (await client.call_tool("unknown__who")).data["authorization"] is None
            with pytest.raises(AuthorizationFailed):
                async with Client(url):
                    pass


async def test_a_state_is_good_for_its_own_caller_only() -> None:
    gateway = Gateway({"old": command(LEGACY), "new": command(MODERN)}, upstreams=PATIENT)
    for name in ("old__ask", "new__ask"):
        async with (
            wire(gateway, MODERN[0], principal=Principal(subject="ada")) as ada,
            wire(gateway, MODERN[0], principal=Principal(subject="bob")) as bob,
        ):
            asked = (await ada.call(name, {"question": "?"}))["result"]
            again = {
                "name": name,
                "arguments": {"question": "?"},
                "requestState": asked["requestState"],
                "inputResponses": {key: {"action": "cancel"} for key in asked["inputRequests"]},
            }
            refused = await bob.ask("tools/call", again)
            assert "another principal" in refused["error"]["message"]
            other = await ada.ask("tools/call", {**again, "arguments": {"question": "!"}})
            assert "another call" in other["error"]["message"]
            done = await ada.ask("tools/call", again)
            assert done["result"]["structuredContent"] == {"result": "? cancel None"}
            if name == "old__ask":  # the parked call is over
                gone = await ada.ask("tools/call", again)
                assert "is over" in gone["error"]["message"]


async def test_rewrites_of_upstreams() -> None:
    rewrite = {"up": Rewrite(only=["add"], fix={"add": {"b": 10}})}
    gateway = Gateway({"up": make(MODERN)}, rewrite=rewrite)
    async with Client(gateway) as client:
        await eventually(lambda: gateway.upstreams["up"].lists.tools())
        (tool,) = [tool async for tool in client.tools()]
        assert list(tool.input_schema["properties"]) == ["a"]
        assert (await client.call_tool("up__add", {"a": 1})).data == 11


async def test_a_server_at_an_address_is_mounted_in_a_plain_server() -> None:
    app, upstream = Server("plain"), make(MODERN)
    app.add_tool(lambda: "mine", name="own")
    async with upstream.serving("tcp", port=0) as address:
        app.mount("far", address)
        async with Client(app) as client:
            assert (await client.call_tool("far__add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("own")).text == "mine"
            app.unmount("far")
            with pytest.raises(McpError, match="Unknown tool"):
                await client.call_tool("far__add", {"a": 1, "b": 2})


@pytest.mark.parametrize("versions", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_a_bridge_keeps_names_and_passes_everything_on(versions: tuple[str, ...]) -> None:
    app = bridge(command(versions), upstreams=PATIENT)
    async with (
        app.serving("http", port=0) as url,
        Client(bridge(url, upstreams=PATIENT), elicitation=lambda p: {"value": "yes"}) as client,
    ):
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("ask", {"question": "?"})).data == "? accept yes"
        assert "add" in [tool.name async for tool in client.tools()]


async def test_a_bridge_from_any_wire_to_any_wire(tmp_path: Path) -> None:
    def wires(name: str) -> list[tuple[str, dict[str, Any]]]:
        unix: dict[str, Any] = {"path": tmp_path / f"{name}.socket"}
        return [("http", {"port": 0}), ("tcp", {"port": 0}), ("ws", {"port": 0}), ("unix", unix)]

    for far, options in wires("far"):
        async with make(MODERN).serving(far, **options) as address:
            for near, others in wires("near"):
                async with (
                    bridge(str(address)).serving(near, **others) as bridged,
                    Client(str(bridged), elicitation=lambda p: {"value": "yes"}) as client,
                ):
                    assert (await client.call_tool("ask", {"question": "?"})).data == "? accept yes"


def test_a_bridge_to_nothing_is_refused() -> None:
    for target in ("http:/x", "nothing.txt", 7, ""):
        with pytest.raises((TypeError, ValueError)):
            bridge(target)


async def test_a_retry_finds_its_parked_call_at_another_worker(tmp_path: Path) -> None:
    port = free_port()
    script = HERE / "worker_gateway.py"
    process = subprocess.Popen([sys.executable, str(script), str(port), SERVER])
    url = f"http://127.0.0.1:{port}/mcp"
    try:

        async def up() -> bool:
            try:
                async with Client(url, connect_timeout=2.0, protocol=MODERN[0]) as client:
                    return (await client.call_tool("up__add", {"a": 1, "b": 1})).data == 2
            except Exception:
                return False

        await eventually(up)
        homes = set()
        for number in range(12):
            answered: list[Any] = []

            def answer(params: Any, answered: list[Any] = answered) -> Any:
                answered.append(params.message)
                return {"value": "x" * 100_000}

            # A connection for each request: the system spreads them over the workers.
            headers = {"Connection": "close"}
            async with Client(
                url, protocol=MODERN[0], elicitation=answer, headers=headers, timeout=15
            ) as client:
                result = await client.call_tool("up__ask_twice")
                assert result.text == f"{'x' * 100_000} {'x' * 100_000}"
                assert answered == ["first?", "second?"]
                homes.add((await client.call_tool("here")).text)
            if number > 4 and len(homes) > 1:
                break
        assert len(homes) > 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.mark.parametrize("versions", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_a_change_that_is_taken_back_is_announced_too(versions: tuple[str, ...]) -> None:
    heard: list[str] = []
    upstream = make(versions)
    gateway = Gateway({"up": upstream}, eager=True)
    options: dict[str, Any] = {"on_notification": lambda n: heard.append(n.method)}
    async with Client(gateway, protocol=LEGACY[0], **options) as client:
        assert "up__add" in [tool.name async for tool in client.tools()]
        for times in (1, 2):
            upstream.add_tool(lambda: "x", name="short_lived")
            upstream.remove_tool("short_lived")
            await eventually(
                lambda times=times: heard.count("notifications/tools/list_changed") == times
            )
