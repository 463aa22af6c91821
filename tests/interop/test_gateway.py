"""Clients of the SDKs through a bridge and a gateway to servers of the SDKs, in either era."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
import pytest
from mcp import Client as OfficialClient
from mcp import StdioServerParameters

from mcpearl import Client, Gateway, UpstreamSettings, bridge
from mcpearl.types import CreateMessageResult, ElicitResult, TextContent
from tests.interop import test_official_client as client_tests
from tests.interop import test_official_server as server_tests
from tests.interop.peers import (
    BRIDGE,
    DEMO_SERVER,
    EVERYTHING_SERVER,
    FASTMCP,
    HERE,
    LEGACY,
    MODERN,
    NODE,
    OFFICIAL_SERVER,
    run,
    serving,
)
from tests.interop.test_typescript_clients import walk
from tests.waiting import eventually

UPSTREAMS = pytest.mark.parametrize("upstream", [LEGACY[-1], MODERN])
Check = Callable[..., Awaitable[None]]
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


@pytest.mark.parametrize(
    ("sdk", "mode", "upstream"),
    [
        ("v1", "legacy", LEGACY[-1]),
        ("v1", "legacy", MODERN),
        ("v2", MODERN, LEGACY[-1]),
        ("v2", MODERN, MODERN),
    ],
)
def test_typescript_clients_meet_the_same_through_a_bridge(
    sdk: str, mode: str, upstream: str, direct: dict[tuple[str, str], dict[str, Any]]
) -> None:
    if (sdk, mode) not in direct:
        direct[sdk, mode] = walk(sdk, mode, DEMO_SERVER)
    with ExitStack() as stack:
        server = "demo"
        if mode == MODERN and upstream != MODERN:
            # Each call has a session: only a server that several sessions share can show what changes.
            server = stack.enter_context(serving(DEMO_SERVER))
        met = walk(sdk, mode, [*BRIDGE, upstream, server])
    assert met["errors"] == []
    expected = direct[sdk, mode]
    met["notices"] = list(dict.fromkeys(met["notices"]))  # two sessions may announce one change
    for name in expected.keys() | met.keys():
        if name not in OWN:
            assert same(met.get(name)) == same(expected.get(name)), name


def test_fastmcp_clients_in_all_cells() -> None:
    with serving(DEMO_SERVER) as url:
        walks = [
            ("legacy", [*BRIDGE, LEGACY[-1], "demo"]),
            ("legacy", [*BRIDGE, MODERN, "demo"]),
            (MODERN, [*BRIDGE, LEGACY[-1], url]),
            (MODERN, [*BRIDGE, MODERN, "demo"]),
        ]
        done = run([FASTMCP, str(HERE / "fastmcp_client.py"), json.dumps(walks)])
    assert done.returncode == 0, done.stderr
    for (mode, _), line in zip(walks, done.stdout.splitlines(), strict=True):
        met = json.loads(line)
        assert len(met["tools"]) == 17
        assert met["add"] == 5
        assert met["fail"] is True
        assert met["resources"] == ["demo://note", "demo://pixel"]
        assert met["templates"] == ["demo://{city}/weather", "demo://{city}/secret"]
        assert met["note"] == "first"
        assert met["prompts"] == ["brief", "dialogue", "personal", "visit"]
        assert met["brief"] == "Give me a short weather briefing for Oslo."
        assert met["completion"] == ["Karl Johans gate", "Kirkeveien"]
        assert met["progress"] == [[1, 3], [2, 3], [3, 3]]
        logs = [["info", {"what": "news"}], ["error", "a problem"]]
        assert met["logs"] == (logs if mode == "legacy" else [["debug", "a detail"], *logs])
        assert met["book"] == "booked 1: second class, insured True"
        assert met["consult"] == "fastmcp-slim: Yes."
        assert met["survey"] == "1 roots, Oslo, Yes."
        assert met["workplace"] == ["file:///srv/demo"]
        assert met["cancelled"]  # and the server noticed, or the walk would not have ended


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


# What is checked without a gateway in the tests of the official client and server.
CLIENT_CHECKS: list[Check] = [
    client_tests.test_tools,
    client_tests.test_content_of_every_kind,
    client_tests.test_many_calls_at_once_and_long_ones,
    client_tests.test_tool_errors,
    client_tests.test_resources,
    client_tests.test_prompts,
    client_tests.test_completion,
    client_tests.test_progress,
    client_tests.test_elicitation,
    client_tests.test_elicitation_refused,
    client_tests.test_elicitation_by_url,
    client_tests.test_sampling,
    client_tests.test_sampling_with_tools,
    client_tests.test_roots,
    client_tests.test_three_questions_at_once,
    client_tests.test_resources_and_prompts_may_ask_too,
    client_tests.test_cancelled_by_timeout,
]
SERVER_CHECKS: list[Check] = [
    server_tests.test_tools,
    server_tests.test_many_calls_at_once_and_long_ones,
    server_tests.test_tool_errors,
    server_tests.test_resources,
    server_tests.test_prompts_and_completion,
    server_tests.test_progress,
    server_tests.test_logging,
    server_tests.test_elicitation,
    server_tests.test_elicitation_refused,
    server_tests.test_sampling,
    server_tests.test_sampling_with_tools,
    server_tests.test_roots_alone_and_three_questions,
    server_tests.test_cancelled,
]


@asynccontextmanager
async def bridged(command: list[str], upstream: str, wire: str) -> AsyncIterator[str]:
    """Have a gateway to a server that runs in a process: on stdio in the modern era, else over HTTP."""
    with ExitStack() as stack:
        target: Any = command if upstream == MODERN else stack.enter_context(serving(command))
        gateway = bridge(target, upstreams=UpstreamSettings(protocol=upstream, patience=60.0))
        async with gateway.serving(wire, port=0) as url:
            yield url


@UPSTREAMS
@pytest.mark.parametrize("mode", ["legacy", MODERN])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_all_that_the_official_client_knows(mode: str, upstream: str) -> None:
    async with bridged(DEMO_SERVER, upstream, "http") as url:
        connect = partial(OfficialClient, url, read_timeout_seconds=30)
        for check in CLIENT_CHECKS:
            await check(connect, mode)
        if (mode == MODERN) is (upstream == MODERN):  # else the server's error is of the other era
            await client_tests.test_a_client_that_cannot_be_asked(connect, mode)
        await client_tests.test_logging(connect, mode, "info", [{"what": "news"}, "a problem"])
        if mode == "legacy":
            await client_tests.test_legacy_subscription_and_list_changes(connect)
        else:
            await client_tests.test_modern_subscription_and_list_changes(connect)


@UPSTREAMS
@pytest.mark.parametrize("protocol", [LEGACY[-1], MODERN])
async def test_all_that_an_official_server_can_do(protocol: str, upstream: str) -> None:
    async with bridged(OFFICIAL_SERVER, upstream, "tcp") as url:
        connect = partial(server_tests.connect_to, url)
        for check in SERVER_CHECKS:
            await check(connect, protocol)
        if upstream != MODERN:  # this server sends to pages in sessions only
            visit = {"elicitation": lambda request: ElicitResult(action="accept")}
            async with connect(protocol, **visit) as client:
                assert (await client.call_tool("pay")).text == "accept"
        if protocol == MODERN:
            await server_tests.test_modern_subscription_and_list_changes(connect)
        else:
            if upstream != MODERN:
                await server_tests.test_elicitation_by_url(connect)
            await server_tests.test_legacy_subscription_and_list_changes(connect)


@UPSTREAMS
async def test_servers_of_fastmcp_and_typescript_behind_a_gateway(upstream: str) -> None:
    programs = {
        "fastmcp": [FASTMCP, str(HERE / "fastmcp_server.py")],
        "second": [NODE, str(HERE / "node" / "server.mjs")],
    }
    if upstream != MODERN:
        programs["first"] = [*EVERYTHING_SERVER, "stdio"]
    gateway = Gateway(
        programs, upstreams=UpstreamSettings(patience=60.0, protocol=upstream, stateless=True)
    )

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Yes."), model="p")

    async with gateway.serving("http", port=0) as url:
        for protocol in (MODERN, LEGACY[-1]):
            logs: list[Any] = []
            steps: list[float] = []
            async with Client(
                url, protocol=protocol, on_log=logs.append, log_level="warning"
            ) as client:
                names = [tool.name async for tool in client.tools()]
                assert {name.partition("__")[0] for name in names} == set(programs)
                for name in ("fastmcp", "second"):
                    assert (await client.call_tool(f"{name}__add", {"a": 1, "b": 2})).text == "3"
                    prompt = await client.get_prompt(f"{name}__brief", {"city": "Oslo"})
                    assert prompt.messages[0].content.text == "Weather for Oslo"  # type: ignore[union-attr]
                    calling = asyncio.ensure_future(
                        client.call_tool(f"{name}__sleep", {"seconds": 60})
                    )
                    await eventually(lambda: gateway.mounts[name].calls == 1)  # noqa: B023
                    calling.cancel()
                    await eventually(lambda: gateway.mounts[name].calls == 0)  # noqa: B023
                assert (await client.read_resource("peer://note"))[0].text == "first"
                ref = {"type": "ref/prompt", "name": "fastmcp__brief"}
                assert (await client.complete(ref, "city", "Od")).values == ["Odense"]
                await client.call_tool(
                    "fastmcp__count",
                    on_progress=lambda p: steps.append(p.progress),  # noqa: B023
                )
                assert steps == [1, 2, 3]
                await eventually(lambda: logs)  # noqa: B023
                assert [each.level for each in logs] == ["warning"]
            if upstream == MODERN:
                continue  # FastMCP's servers ask in sessions only
            async with Client(
                url, protocol=protocol, elicitation=lambda p: {"city": "Oslo"}, sampling=model
            ) as client:
                assert (await client.call_tool("fastmcp__book")).text == "accept Oslo"
                sampled = await client.call_tool(
                    "first__trigger-sampling-request", {"prompt": "Sun?", "maxTokens": 10}
                )
                assert "Yes." in (sampled.text or "")
    assert all(each.sessions == 0 for each in gateway.upstreams.values())
