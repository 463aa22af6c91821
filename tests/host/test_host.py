"""Many servers in one host: lists and calls over all, states, and servers that come and go."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcpearl import (
    Client,
    ConnectionLost,
    Context,
    Host,
    LimitReached,
    McpError,
    Reconnect,
    RequestTimeout,
    Server,
)
from mcpearl.auth import Principal, StaticTokens
from mcpearl.client.entries import ConfigError
from mcpearl.host.config import read_config
from mcpearl.host.records import HostChange
from mcpearl.runtime.tree import NodeChange
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.memory import memory_pair
from mcpearl.types.roots import Root
from tests.client.hostile import Channel, Hostile, Message, serve
from tests.ports import free_port
from tests.waiting import eventually

SOON = Reconnect(delays=(0.02,), jitter=0.0)
SCRIPT = """
import os, sys
from mcpearl import Server
app = Server("process")

@app.tool
def pid() -> int:
    return os.getpid()

@app.tool
def variable(name: str) -> str:
    return os.environ.get(name, "-")

app.run()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SCRIPT)
    return path


def weather(name: str = "weather") -> Server:
    app = Server(name)

    @app.tool
    def forecast(city: str) -> str:
        return f"{name}: sun in {city}"

    @app.prompt
    def ask(city: str) -> str:
        return f"{name}: what about {city}?"

    @app.resource(f"{name}://now")
    def now() -> str:
        return f"{name}: now"

    @app.resource(f"{name}://{{city}}/today")
    def today(city: str) -> str:
        return f"{name}: {city} today"

    return app


async def test_the_servers_of_all_kinds_are_one(script: Path) -> None:
    remote = weather("remote")
    async with remote.serving("http", port=0) as url:
        source = {
            "own": weather(),
            "remote": {"url": url, "headers": {"X-A": "b"}},
            "process": {
                "command": sys.executable,
                "args": [str(script)],
                "env": {"MODE": "${NONE_SUCH:-test}"},
            },
        }
        async with Host(source) as host:
            assert {name: each.state for name, each in host.servers.items()} == {
                "own": "ready",
                "remote": "ready",
                "process": "ready",
            }
            assert host.servers["remote"].server_info is not None
            assert host.servers["remote"].server_info.name == "remote"
            tools = await host.tools()
            assert [tool.name for tool in tools] == [
                "own__forecast",
                "remote__forecast",
                "process__pid",
                "process__variable",
            ]
            assert (tools[1].server, tools[1].own_name) == ("remote", "forecast")
            assert tools[1].input_schema["required"] == ["city"]
            assert not tools.missing
            result = await host.call_tool("remote__forecast", {"city": "Oslo"})
            assert result.data == "remote: sun in Oslo"
            mode = await host.call_tool("process__variable", {"name": "MODE"}, returns=str)
            assert mode.data == "test"
            assert [each.name for each in await host.prompts()] == ["own__ask", "remote__ask"]
            prompt = await host.get_prompt("remote__ask", {"city": "Rome"})
            assert "remote: what about Rome?" in str(prompt.messages[0].content)
            assert {each.uri for each in await host.resources()} == {
                "weather://now",
                "remote://now",
            }
            assert [each.server for each in await host.resource_templates()] == ["own", "remote"]
            assert (await host.read_resource("remote://now"))[0].text == "remote: now"
            read = await host.read_resource("remote://Oslo/today")
            assert read[0].text == "remote: Oslo today"
            assert isinstance(host["own"], Client)
            assert (await host["own"].call_tool("forecast", {"city": "x"})).data
            assert list(host) == ["own", "remote", "process"]
            tree = host.tree()
            assert [node.state for node in tree.children] == ["running"] * 3
            assert tree.children[2].children
        assert host.tree().state == "ended"


async def test_a_file_with_bad_entries_and_what_is_disabled(tmp_path: Path, script: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {
        "good": {"command": sys.executable, "args": [str(script)]},
        "off": {"command": "x", "disabled": True},
        "wrong": {"command": 5},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    async with Host(file) as host:
        states = {name: each.state for name, each in host.servers.items()}
        assert states == {"good": "ready", "off": "disabled", "wrong": "invalid"}
        assert "text as `command`" in (host.servers["wrong"].reason or "")
        assert len(await host.tools()) == 2
        with pytest.raises(KeyError, match="no server `goood`; did you mean `good`"):
            host["goood"]


async def test_a_server_that_is_down_has_a_reason_and_comes_back(clock: MovableClock) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    source = {"own": weather(), "absent": url, "gone": ["no-such-command-here"]}
    seen: list[HostChange] = []
    async with Host(source, on_change=seen.append) as host:
        absent = host.servers["absent"]
        assert absent.state == "down"
        assert absent.tries == 1
        assert "cannot connect" in (absent.reason or "")
        assert "no-such-command-here" in (host.servers["gone"].reason or "")
        tools = await host.tools()
        assert [tool.name for tool in tools] == ["own__forecast"]
        assert set(tools.missing) == {"absent", "gone"}
        with pytest.raises(ConnectionLost, match="server `absent` is not connected: cannot"):
            await host.call_tool("absent__forecast", {"city": "Oslo"})
        with pytest.raises(ConnectionLost, match="server `gone` is not connected"):
            host["gone"]
        await clock.advance(4)
        assert host.servers["absent"].tries > 1
        late = weather("late")
        async with late.serving("http", port=port):
            changes = host.changes()
            host.retry("absent")
            async for change in changes:
                if change.what == "state":
                    break
            assert (change.server, change.status.state) == ("absent", "ready")
            assert change.status.tries == 0
            assert (await host.call_tool("absent__forecast", {"city": "Oslo"})).data
            assert not (await host.tools()).missing.get("absent")
    states = [each.status.state for each in seen if each.server == "absent"]
    assert states[:2] == ["connecting", "down"]
    assert "ready" in states


async def test_a_server_that_keeps_failing_is_left_alone_for_a_while() -> None:
    app = Server("stuck")
    stuck, begun = True, 0

    @app.tool
    async def work() -> str:
        nonlocal begun
        begun += 1
        if stuck:
            await asyncio.Event().wait()
        return "done"

    async with Host({"one": app}) as host:
        await host.tools()
        for _ in range(5):
            with pytest.raises(RequestTimeout):
                await host.call_tool("one__work", timeout=0.05)
        with pytest.raises(ConnectionLost, match="server `one` keeps failing"):
            await host.call_tool("one__work")
        assert begun == 5

        async def works() -> bool:
            with suppress(ConnectionLost):
                return (await host.call_tool("one__work")).text == "done"
            return False

        stuck = False
        await eventually(works)  # once the next call may be tried
        assert (await host.call_tool("one__work")).text == "done"


async def test_calls_of_the_client_of_a_server_count_too(clock: MovableClock) -> None:
    app = Server("stuck")
    stuck = True

    @app.tool
    async def work() -> str:
        if stuck:
            await asyncio.Event().wait()
        return "done"

    async def fail(host: Host) -> None:
        call = asyncio.ensure_future(host["one"].call_tool("work", timeout=5))
        await clock.advance(5)
        with pytest.raises(RequestTimeout):
            await call

    async with Host({"one": app}, failures=2) as host, Host({"one": app}, failures=None) as other:
        await host.tools()
        await other.tools()
        for _ in range(2):
            await fail(host)
        for call in (host["one"].call_tool("work"), host.call_tool("one__work")):
            with pytest.raises(ConnectionLost, match="server `one` keeps failing"):
                await call
        await host["one"].ping()
        for _ in range(6):
            await fail(other)
        stuck = False
        assert (await other.call_tool("one__work")).text == "done"
        await clock.advance(2)
        assert (await host["one"].call_tool("work")).text == "done"
        assert (await host.call_tool("one__work")).text == "done"


def test_no_number_of_failures_is_refused() -> None:
    with pytest.raises(ValueError, match="`failures` is a number from 1, or None"):
        Host({}, failures=0)


async def test_changes_of_the_tree_are_followed(script: Path) -> None:
    async with Host({}, reconnect=SOON) as host:
        changes = host.tree_changes()

        async def until(state: str) -> list[NodeChange]:
            seen = [await anext(changes)]
            while seen[-1].state != state:
                seen.append(await anext(changes))
            assert {each.path for each in seen} == {("host", "one")}
            assert host.tree().find("one") is not None or state == "ended"
            return seen

        await host.add("one", str(script))
        assert [each.state for each in await until("running")] == ["starting", "running"]
        os.kill((await host.call_tool("one__pid")).data, signal.SIGKILL)
        lost = (await until("running"))[0]
        assert lost.state == "waiting"
        assert lost.error
        await host.remove("one")
        await until("ended")
        changes.close()


async def test_a_process_that_is_killed_is_started_again(script: Path) -> None:
    async with Host({"one": str(script), "two": str(script)}, reconnect=SOON) as host:
        await host.tools()
        first = (await host.call_tool("one__pid")).data
        other = (await host.call_tool("two__pid")).data
        changes = host.changes()
        os.kill(first, signal.SIGKILL)
        states = []
        async for change in changes:
            states.append((change.server, change.status.state))
            if change.status.state == "ready":
                break
        assert states[0] == ("one", "down")
        assert states[-1] == ("one", "ready")
        second = (await host.call_tool("one__pid")).data
        assert second != first
        assert (await host.call_tool("two__pid")).data == other
        assert host.tree().children[0].restarts == 1
    for pid in (second, other):
        await eventually(lambda pid=pid: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_lists_are_kept_and_renewed_by_notification() -> None:
    legacy, modern = weather("legacy"), weather("modern")
    asked = {"legacy": 0, "modern": 0}

    for app in (legacy, modern):

        @app.middleware
        async def count(ctx: Context, next: Any, app: Server = app) -> Any:
            asked[app.name] += ctx.method == "tools/list"
            return await next()

    for protocol, app in (("2025-11-25", legacy), ("2026-07-28", modern)):
        async with Host({"s": app}, protocol=protocol) as host:
            # The stream on which a modern server announces changes is open when a list is kept.
            await eventually(lambda host=host: host._fleet.members["s"]._announces("tools"))
            for _ in range(3):
                assert len(await host.tools()) == 1
            assert asked[app.name] == 1
            await host.call_tool("s__forecast", {"city": "x"})
            assert asked[app.name] == 1
            changes = host.changes()

            @app.tool
            def added() -> str:
                return "new"

            async for change in changes:
                assert change.what == "tools"
                break
            names = [tool.own_name for tool in await host.tools()]
            assert names == ["forecast", "added"]
            assert (await host.call_tool("s__added")).data == "new"
            assert asked[app.name] == 2


async def test_a_tool_is_called_without_any_list() -> None:
    app = weather()
    asked = []

    @app.middleware
    async def note(ctx: Context, next: Any) -> Any:
        asked.append(ctx.method)
        return await next()

    async with Host({"w": app}, validate_output=False) as host:
        await host.call_tool("w__forecast", {"city": "Oslo"})
        assert "tools/list" not in asked


async def test_names_that_no_list_has() -> None:
    async with Host({"a b": weather(), "gone": ["no-such-command"]}) as host:
        (tool,) = await host.tools()
        assert tool.name.startswith("a_b_forecast_")
        assert (await host.call_tool(tool.name, {"city": "x"})).data
        with pytest.raises(McpError, match=f"did you mean `{tool.name}`.*without an answer: gone"):
            await host.call_tool(tool.name[:-1])
        with pytest.raises(McpError, match=r"No server lists `x://y`.*pass `server="):
            await host.read_resource("x://y")
        with pytest.raises(McpError, match="prompts"):
            await host.get_prompt("none")
        with pytest.raises(McpError):
            await host.read_resource("x://y", server="a b")


async def test_a_server_is_connected_when_it_is_needed() -> None:
    app, other = weather(), weather("other")
    async with Host({"w": app, "o": other}, lazy=True) as host:
        assert {each.state for each in host.servers.values()} == {"idle"}
        assert (await host.call_tool("w__forecast", {"city": "x"})).data
        assert host.servers["w"].state == "ready"
        assert host.servers["o"].state == "idle"
        client = await host.client("o")
        assert client.server_info is not None
        assert host.servers["o"].state == "ready"
        assert len(await host.tools()) == 2


def asking(name: str) -> Server:
    app = Server(name)

    @app.tool
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("what?", max_tokens=10)
        return str(answer.content.text)  # type: ignore[union-attr]

    @app.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @app.tool
    async def say(ctx: Context) -> None:
        await ctx.info(f"hello from {name}")

    return app


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_callbacks_are_told_which_server_asks(protocol: str) -> None:
    logs: list[tuple[Any, str]] = []

    async def sampling(params: Any, server: str) -> str:
        return f"for {server}"

    def roots(server: str) -> list[Root]:
        return [Root(uri=f"file:///{server}")]

    host = Host(
        {"a": asking("A"), "b": asking("B")},
        sampling=sampling,
        roots=roots,
        on_log=lambda message, server: logs.append((message.data, server)),
        protocol=protocol,
    )
    async with host:
        assert (await host.call_tool("a__think")).data == "for a"
        assert (await host.call_tool("b__think")).data == "for b"
        assert (await host.call_tool("b__where")).data == ["file:///b"]
        await host.call_tool("a__say")
        await eventually(lambda: logs)
        assert logs == [("hello from A", "a")]


async def test_callbacks_that_take_one_argument() -> None:
    class Model:
        async def __call__(self, params: Any) -> str:
            return "fixed"

    async with Host({"a": asking("A")}, sampling=Model(), roots=["/tmp"]) as host:
        assert (await host.call_tool("a__think")).data == "fixed"
        assert (await host.call_tool("a__where")).data == ["file:///tmp"]

    def plain(params: Any, retries: int = 3) -> str:
        return f"{retries}"

    async with Host({"a": asking("A")}, sampling=plain) as host:
        assert (await host.call_tool("a__think")).data == "3"


async def test_servers_come_and_go_without_disturbing_others(script: Path) -> None:
    release = asyncio.Event()
    app = Server("slow")

    @app.tool
    async def wait() -> str:
        await release.wait()
        return "done"

    async with Host({"slow": app, "p": [sys.executable, str(script)]}) as host:
        await host.tools()
        call = asyncio.ensure_future(host.call_tool("slow__wait"))
        await eventually(lambda: app.core.counters()["calls_in_flight"] == 1)
        await host.add("new", weather())
        assert (await host.call_tool("new__forecast", {"city": "x"})).data
        with pytest.raises(ValueError, match="already; use `replace`"):
            await host.add("new", weather())
        await host.replace("new", weather("other"))
        result = await host.call_tool("new__forecast", {"city": "x"})
        assert result.data == "other: sun in x"
        pid = (await host.call_tool("p__pid")).data
        await host.remove("p")
        assert not _alive(pid)
        assert "p__pid" not in [tool.name for tool in await host.tools()]
        with pytest.raises(McpError, match="No server has `p__pid`"):
            await host.call_tool("p__pid")
        with pytest.raises(KeyError):
            await host.remove("p")
        with pytest.raises(ConfigError):
            await host.add("bad", {"command": 7})
        assert not call.done()
        release.set()
        assert (await call).data == "done"


async def test_a_configuration_takes_the_place_of_another(tmp_path: Path, script: Path) -> None:
    entry = {"command": sys.executable, "args": [str(script)]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"stays": entry, "goes": entry, "changes": entry}}))
    async with Host(file) as host:
        pids = {name: (await host.call_tool(f"{name}__pid")).data for name in host}
        changed = {**entry, "env": {"A": "1"}}
        servers = {"stays": entry, "changes": changed, "comes": entry, "off": {"disabled": True}}
        file.write_text(json.dumps({"mcpServers": servers}))
        await host.update(file)
        after = {name: (await host.call_tool(f"{name}__pid")).data for name in host}
        assert set(after) == {"stays", "changes", "comes"}
        assert after["stays"] == pids["stays"]
        assert after["changes"] != pids["changes"]
        assert host.servers["off"].state == "disabled"
        file.write_text("{")
        with pytest.raises(ConfigError, match="not JSON"):
            await host.update(file)
        assert len(host) == 3


async def test_there_is_a_bound_to_the_number_of_servers() -> None:
    apps = {f"s{number}": weather() for number in range(4)}
    async with Host(apps, max_servers=3) as host:
        assert len(host) == 3
        assert "raise `Host(max_servers=…)`" in (host.servers["s3"].reason or "")
        with pytest.raises(LimitReached):
            await host.add("more", weather())


async def test_a_host_without_servers_and_one_that_is_closed() -> None:
    async with Host({"mcpServers": {}}) as host:
        assert len(await host.tools()) == 0
        assert host.servers == {}
    await host.close()
    async with host:
        assert len(host) == 0
    with pytest.raises(ConfigError, match="no file"):
        Host("no-such-file.json")


async def test_a_configuration_that_was_read_before() -> None:
    config = read_config({"w": weather()})
    async with Host(config) as host:
        assert len(await host.tools()) == 1


async def test_logins_are_by_server_and_a_refusal_is_not_repeated(clock: MovableClock) -> None:
    app = weather("guarded")
    guard = StaticTokens({"good-token-0123456789": Principal(subject="me")})
    async with app.serving("http", port=0, auth=guard) as url:
        source = {"in": url, "out": url}
        async with Host(source, auth={"in": lambda: "good-token-0123456789"}) as host:
            assert host.servers["in"].state == "ready"
            out = host.servers["out"]
            assert out.state == "down"
            assert out.reason
            await clock.advance(120)
            assert host.servers["out"].tries == 1
            host.retry("out")
            await eventually(lambda: host.servers["out"].tries == 2)
            assert len(await host.tools()) == 1


async def test_servers_are_connected_to_at_the_same_time(
    tmp_path: Path, certificate: Path, clock: MovableClock
) -> None:
    async def silence(message: Message, channel: Channel) -> None:
        pass

    first, second = Hostile(False, server_discover=silence), Hostile(False, server_discover=silence)
    async with (
        serve("tcp", first, tmp_path, certificate),
        serve("tcp", second, tmp_path, certificate),
    ):
        host = Host({"first": first.url, "second": second.url})
        connecting = asyncio.ensure_future(host.connect())
        await eventually(lambda: first.messages and second.messages)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert host.tree().state == "ended"
        assert not host.servers


async def test_a_server_of_the_older_wire(tmp_path: Path, certificate: Path) -> None:
    async def listed(message: Message, channel: Channel) -> None:
        tools = [{"name": "old", "inputSchema": {"type": "object"}}]
        channel.send(id=message["id"], result={"tools": tools})

    server = Hostile(False)
    server.tricks["tools/list"] = listed
    async with serve("http+sse", server, tmp_path, certificate):
        async with Host({"servers": {"s": {"type": "sse", "url": server.url}}}) as host:
            assert [tool.name for tool in await host.tools()] == ["s__old"]
        server.stop()


async def test_a_transport_can_be_a_server_once() -> None:
    app = weather()
    near, far = memory_pair()
    await app.connect(far)
    async with Host({"wire": near}, reconnect=SOON) as host:
        assert host.servers["wire"].state == "ready"
        assert len(await host.tools()) == 1
        await far.close()
        await eventually(lambda: host.servers["wire"].state == "down", within=5)


async def test_tools_that_change_all_the_time() -> None:
    app = weather("busy")
    changes: list[HostChange] = []

    async def change() -> None:
        while True:
            app.tool(lambda: "x", name="flickering")
            await asyncio.sleep(0.01)
            app.remove_tool("flickering")
            await asyncio.sleep(0.01)

    async with Host({"busy": app, "calm": weather()}, on_change=changes.append) as host:
        flicker = asyncio.ensure_future(change())
        seen = set()
        try:
            while len(seen) < 2:
                tools = await host.tools()
                assert not tools.missing
                seen.add(len(tools))
                assert (await host.call_tool("calm__forecast", {"city": "x"})).data
                assert (await host.call_tool("busy__forecast", {"city": "x"})).data
        finally:
            flicker.cancel()
        assert seen == {2, 3}


async def test_a_login_is_not_sent_to_servers_that_take_none() -> None:
    async with Host({"w": weather()}, auth="oauth") as host:
        assert host.servers["w"].state == "ready"
