"""Clients of the SDKs through a bridge and a gateway to servers of the SDKs, in either era."""

import sys
from typing import Any

import mcp_types as types
import pytest
from mcp import Client as OfficialClient
from mcp import StdioServerParameters

from mcpearl import Client, Gateway, UpstreamSettings
from mcpearl.types import CreateMessageResult, TextContent
from tests.interop.peers import (
    DEMO_SERVER,
    EVERYTHING_SERVER,
    LEGACY,
    MODERN,
    OFFICIAL_SERVER,
)
from tests.interop.test_typescript_clients import walk

UPSTREAMS = pytest.mark.parametrize("upstream", [LEGACY[-1], MODERN])
BRIDGE = [sys.executable, "-m", "tests.interop.bridge_server"]
# What tells a bridge from the server behind it.
OWN = {"server"}


def same(value: Any) -> Any:
    """Return what was met without what only says which server answered, and in which era."""
    if isinstance(value, dict):
        return {k: same(v) for k, v in value.items() if k not in ("_meta", "resultType")}
    return [same(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def direct() -> dict[tuple[str, str], dict[str, Any]]:
    return {}


# A modern client at an upstream with sessions is missing: the walk waits for a list that changes in the
# process of one session.
@pytest.mark.parametrize(
    ("sdk", "mode", "upstream"),
    [("v1", "legacy", LEGACY[-1]), ("v1", "legacy", MODERN), ("v2", MODERN, MODERN)],
)
def test_typescript_clients_meet_the_same_through_a_bridge(
    sdk: str, mode: str, upstream: str, direct: dict[tuple[str, str], dict[str, Any]]
) -> None:
    if (sdk, mode) not in direct:
        direct[sdk, mode] = walk(sdk, mode, DEMO_SERVER)
    met = walk(sdk, mode, [*BRIDGE, upstream, "demo"])
    assert met["errors"] == []
    expected = direct[sdk, mode]
    for name in expected.keys() | met.keys():
        if name not in OWN:
            assert same(met.get(name)) == same(expected.get(name)), name


@UPSTREAMS
@pytest.mark.parametrize("mode", ["legacy", MODERN])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_the_official_client_and_server_on_both_sides(mode: str, upstream: str) -> None:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"city": "Oslo"})

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="Yes.")
        return types.CreateMessageResult(role="assistant", content=content, model="parrot-1")

    target = StdioServerParameters(command=BRIDGE[0], args=[*BRIDGE[1:], upstream, "official"])
    async with OfficialClient(
        target,
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        read_timeout_seconds=30,
    ) as client:
        assert "add" in [tool.name for tool in (await client.list_tools()).tools]
        added = await client.call_tool("add", {"a": 2, "b": 3})
        assert added.structured_content == {"result": 5}
        booked = await client.call_tool("book", {})
        assert not booked.is_error
        consulted = await client.call_tool("consult", {"question": "Sun?"})
        assert "Yes." in consulted.content[0].text  # type: ignore[union-attr]
        assert (await client.read_resource("official://note")).contents[0].text == "first"  # type: ignore[union-attr]
        prompt = await client.get_prompt("brief", {"city": "Oslo"})
        assert "Oslo" in prompt.messages[0].content.text  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", [LEGACY[-1], MODERN])
async def test_servers_of_three_libraries_behind_one_gateway(protocol: str) -> None:
    gateway = Gateway(
        {
            "everything": [*EVERYTHING_SERVER, "stdio"],
            "official": OFFICIAL_SERVER,
            "demo": DEMO_SERVER,
        },
        upstreams=UpstreamSettings(patience=60.0),
    )

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Yes."), model="p")

    async with (
        gateway.serving("http", port=0) as url,
        Client(url, protocol=protocol, sampling=model, elicitation=lambda p: False) as client,
    ):
        names = [tool.name async for tool in client.tools()]
        assert {name.partition("__")[0] for name in names} == {"everything", "official", "demo"}
        assert (await client.call_tool("demo__add", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("official__add", {"a": 1, "b": 2})).text == "3"
        echoed = await client.call_tool("everything__echo", {"message": "hello"})
        assert "hello" in (echoed.text or "")
        asked = await client.call_tool(
            "everything__trigger-sampling-request", {"prompt": "Sun?", "maxTokens": 10}
        )
        assert "Yes." in (asked.text or "")
    assert all(upstream.sessions == 0 for upstream in gateway.upstreams.values())
