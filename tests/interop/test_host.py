"""A host with servers of other SDKs behind it, on both wires."""

from pathlib import Path

from mcpearl import Host, Reconnect
from tests.interop.peers import DEMO_SERVER, EVERYTHING_SERVER, OFFICIAL_SERVER, serving

SOON = Reconnect(delays=(0.05,), jitter=0.0)


async def test_servers_of_several_sdks_are_one() -> None:
    with serving([*EVERYTHING_SERVER, "streamableHttp"]) as url:
        node, *script = EVERYTHING_SERVER
        servers = {
            "everything": {"command": node, "args": [*script, "stdio"]},
            "everything-http": {"type": "http", "url": url},
            "official": {"command": OFFICIAL_SERVER[0], "args": OFFICIAL_SERVER[1:]},
            "own": {"command": DEMO_SERVER[0], "args": DEMO_SERVER[1:]},
        }
        async with Host({"mcpServers": servers}, patience=60, roots=[Path.cwd()]) as host:
            assert {name: each.state for name, each in host.servers.items()} == dict.fromkeys(
                servers, "ready"
            ), host.servers
            tools = await host.tools()
            assert not tools.missing
            assert {tool.server for tool in tools} == set(servers)
            for name in ("everything", "everything-http"):
                result = await host.call_tool(f"{name}__get-sum", {"a": 1, "b": 2})
                assert "3" in result.text
            resources = await host.resources()
            assert not resources.missing
            uri = next(each.uri for each in resources if each.server == "everything")
            assert (await host.read_resource(uri)).contents
            assert not (await host.prompts()).missing
            assert not (await host.resource_templates()).missing
