"""Servers that a client or host reaches already; configurations with several servers for one client."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Gateway, Host, Server
from mcpearl.auth import StaticTokens
from mcpearl.client.entries import ConfigError
from mcpearl.transports.memory import memory_pair
from mcpearl.types import CreateMessageResult, TextContent
from tests.gateway.upstream_server import MODERN, make
from tests.waiting import eventually

SERVER = str(Path(__file__).with_name("upstream_server.py"))
COMMAND = {"command": sys.executable, "args": [SERVER, ",".join(MODERN)]}
TOKEN = "token-of-the-host"


@pytest.mark.parametrize("target", ["a process", "an object"])
async def test_a_server_of_a_host_is_mounted_and_outlives_the_host(target: str) -> None:
    outer = Server("outer")
    async with Host({"up": COMMAND if target == "a process" else make(MODERN)}) as host:
        outer.mount("mounted", host["up"])
        async with Client(outer) as client:
            assert (await client.call_tool("mounted__add", {"a": 1, "b": 2})).data == 3
            assert (await host.call_tool("up__add", {"a": 1, "b": 2})).data == 3
            await host.close()
            assert (await client.call_tool("mounted__add", {"a": 2, "b": 2})).data == 4


async def test_a_mounted_server_of_a_host_gets_the_headers_of_its_entry() -> None:
    async with make(MODERN).serving("http", port=0, auth=StaticTokens({TOKEN: "host"})) as url:
        entry = {"url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}
        outer = Server("outer")
        async with Host({"mcpServers": {"up": entry}}) as host:
            mount = outer.mount("mounted", host["up"])
            assert TOKEN not in repr(host["up"].entry) + repr(mount.part)
            async with Client(outer) as client, Client(host["up"]) as other:
                assert (await client.call_tool("mounted__add", {"a": 1, "b": 2})).data == 3
                assert (await other.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_what_an_entry_hides_stays_hidden_where_its_client_is_mounted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_WORD", "opensesame")
    program = tmp_path / "server.py"
    program.write_text(
        f"import sys\nsys.argv = ['', '{MODERN[0]}']\nexec(open({SERVER!r}).read())\n"
    )
    entry = {"command": sys.executable, "args": [str(program), "${SECRET_WORD}"]}
    outer = Server("outer")
    async with Host({"mcpServers": {"up": entry}}) as host:
        outer.mount("mounted", host["up"])
        program.write_text("import sys\nsys.exit(f'no {sys.argv[1]}')\n")
        upstream: Any = outer.mounts["mounted"].part
        async with outer.running():
            await eventually(lambda: upstream.status.state == "down")
            assert upstream.status.reason
            assert "opensesame" not in upstream.status.reason


async def test_a_client_of_a_transport_cannot_be_mounted() -> None:
    near, far = memory_pair()
    app = Server("by hand")
    async with app.running():
        await app.connect(far)
        async with Client(near) as client:
            with pytest.raises(
                ValueError, match="in use by its client, and can be opened only once"
            ):
                Server("outer").mount("mounted", client)


async def test_headers_cannot_be_added_to_a_server_that_another_client_reaches() -> None:
    async with Client(make(MODERN)) as client:
        with pytest.raises(ValueError, match="`headers` cannot be added"):
            Client(client, headers={"Authorization": "Bearer x"})


async def test_a_client_of_several_servers_uses_them_as_one() -> None:
    servers: dict[str, Any] = {
        "one": COMMAND,
        "two": COMMAND,
        "dead": {"command": "/no/such/command"},
        "wrong": {"command": 3},
        "off": {"command": "x", "disabled": True},
    }

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="ho"), model="m")

    def answer(params: Any) -> Any:
        return {"value": "yes"}

    options: dict[str, Any] = {"sampling": model, "elicitation": answer, "roots": ["file:///srv"]}
    async with Client({"mcpServers": servers}, **options) as client:
        listed = await client.list_tools()
        assert {tool.name.partition("__")[0] for tool in listed.tools} == {"one", "two"}
        assert set((listed.meta or {})["mcpearl/unavailable"]) == {"dead"}
        pids = {(await client.call_tool(f"{name}__who")).data["pid"] for name in ("one", "two")}
        assert len(pids) == 2
        assert (await client.call_tool("one__ask", {"question": "?"})).data == "? accept yes"
        assert (await client.call_tool("two__sample")).data == "m: ho"
        assert (await client.call_tool("two__roots")).data == ["file:///srv"]
        # One of the servers alone has its own names.
    async with Client({"mcpServers": {"one": COMMAND}}) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


def test_options_of_one_server_are_refused_for_several() -> None:
    several = {"mcpServers": {"one": COMMAND, "two": COMMAND}}
    for option in ({"headers": {"A": "b"}}, {"auth": "oauth"}, {"env": {"A": "b"}}):
        with pytest.raises(ValueError, match=r"is for one server.*`Host\(config\)`"):
            Client(several, **option)  # type: ignore[arg-type]


def test_a_configuration_without_a_server_that_can_be_used_says_why() -> None:
    wrong = {"mcpServers": {"a": {"command": 3}, "b": {"url": "nowhere"}}}
    with pytest.raises(ConfigError, match=r"none of the servers can be used: `a`: .*; `b`: "):
        Client(wrong)
    with pytest.raises(ConfigError, match="this one has no servers"):
        Client({"mcpServers": {}})


async def test_a_gateway_takes_a_client_as_an_entry() -> None:
    async with Client(make(MODERN)) as client:
        gateway = Gateway({"up": client})
        assert json.dumps(list(gateway.servers)) == '["up"]'
        async with Client(gateway) as through:
            assert (await through.call_tool("up__add", {"a": 1, "b": 2})).data == 3
