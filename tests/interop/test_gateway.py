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
from mcp import MCPError, StdioServerParameters
from mcp.client.extension import advertise

from mcpearl import Client, Gateway, UpstreamSettings, bridge
from mcpearl.types import CreateMessageResult, TextContent
from tests.interop import test_official_client as client_tests
from tests.interop import test_official_server as server_tests
from tests.interop.peers import (
    BRIDGE,
    DEMO_SERVER,
    EVERYTHING_SERVER,
    FASTMCP,
    LEGACY,
    MODERN,
    OFFICIAL_SERVER,
    SERVERS,
    prepared,
    run,
    serving,
)
from tests.interop.test_typescript_clients import META, check_features, walk
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


def reached(stack: ExitStack, mode: str, upstream: str, name: str) -> str:
    """Return the server for a bridge: its name, or its address where several sessions must share it.

    A call of a client without a session has a session of its own with an upstream of the legacy era, so
    only a server that several sessions share can show what changes.
    """
    if mode == MODERN and upstream != MODERN:
        return stack.enter_context(serving(SERVERS[name]))
    return name


@pytest.fixture(scope="module")
def direct() -> dict[tuple[str, str], dict[str, Any]]:
    return {}


@pytest.mark.parametrize(
    ("sdk", "mode", "upstream"),
    [
        ("v1", "legacy", LEGACY[-1]),
        ("v1", "legacy", MODERN),
        ("v2", "legacy", LEGACY[-1]),
        ("v2", "legacy", MODERN),
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
        server = reached(stack, mode, upstream, "demo")
        met = walk(sdk, mode, [*BRIDGE, upstream, server])
    assert met["errors"] == []
    expected = direct[sdk, mode]
    met["notices"] = list(dict.fromkeys(met["notices"]))  # two sessions may announce one change
    for name in expected.keys() | met.keys():
        if name not in OWN:
            assert same(met.get(name)) == same(expected.get(name)), name


@pytest.mark.parametrize(
    ("sdk", "mode", "server", "upstream"),
    [
        ("v1", "legacy", "v1", LEGACY[-1]),
        ("v1", "legacy", "v2", MODERN),
        ("v2", "legacy", "v2", LEGACY[-1]),
        ("v2", "legacy", "v2", MODERN),
        ("v2", MODERN, "v1", LEGACY[-1]),
        ("v2", MODERN, "v2", LEGACY[-1]),
        ("v2", MODERN, "v2", MODERN),
    ],
)
def test_typescript_on_both_sides(sdk: str, mode: str, server: str, upstream: str) -> None:
    with ExitStack() as stack:
        target = reached(stack, mode, upstream, server)
        met = walk(sdk, mode, [*BRIDGE, upstream, target])
    assert met["errors"] == []
    assert met["version"] == (LEGACY[-1] if mode == "legacy" else MODERN)
    check_features(met)


@pytest.mark.parametrize("server", ["demo", "fastmcp"])
def test_fastmcp_clients_in_all_cells(server: str) -> None:
    with ExitStack() as stack:
        cells = [
            (mode, upstream) for mode in ("legacy", MODERN) for upstream in (LEGACY[-1], MODERN)
        ]
        walks = [
            (mode, [*BRIDGE, upstream, reached(stack, mode, upstream, server)])
            for mode, upstream in cells
        ]
        done = run([*prepared(FASTMCP, "fastmcp_client.py"), json.dumps(walks)])
    assert done.returncode == 0, done.stderr
    for (mode, _), line in zip(walks, done.stdout.splitlines(), strict=True):
        check_fastmcp(server, mode, json.loads(line))


def check_fastmcp(server: str, mode: str, met: dict[str, Any]) -> None:
    """Check what a client of FastMCP met of our server, or of one of FastMCP with the same tools."""
    ours = server == "demo"
    assert set(met["tools"]) >= {"add", "book", "grow", "reflect"}
    assert met["add"] == 5
    assert met["fail"] is True
    assert met["resources"] == ["demo://note", "demo://pixel"]
    assert met["templates"][0] == "demo://{city}/weather"
    assert (met["note"], met["read"]) == ("first", "second")
    assert {"brief", "visit"} <= set(met["prompts"])
    assert met["brief"] == "Give me a short weather briefing for Oslo."
    assert met["completion"] == ["Karl Johans gate", "Kirkeveien"]
    assert met["progress"] == [[1, 3], [2, 3], [3, 3]]
    logs = [level for level, _ in met["logs"]]
    assert logs == (["info", "error"] if mode == "legacy" else ["debug", "info", "error"])
    assert met["logs"][-1][1] == ("a problem" if ours else {"msg": "a problem", "extra": None})
    assert met["book"] == "booked 1: second class, insured True"
    assert met["consult"].endswith(": Yes.")
    assert met["survey"] == "1 roots, Oslo, Yes."
    assert met["pay"] == "accept"
    assert met["workplace"] == ["file:///srv/demo"]
    assert met["reflect"] == META and met["tag"] == [1]
    assert met["audit"] == {"since": 3, "trace": META["traceparent"]}
    assert met["cancelled"]  # and the server noticed, or the walk would not have ended
    if mode == MODERN:
        assert met["notices"] == ["ResourceUpdated", "ToolsListChanged"]


@UPSTREAMS
@pytest.mark.parametrize("mode", ["legacy", MODERN])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_the_official_client_and_server_on_both_sides(mode: str, upstream: str) -> None:
    asked: list[Any] = []
    logs: list[Any] = []
    steps: list[float] = []
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.mode)
        content = {"city": "Oslo"} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=content)

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="Yes.")
        return types.CreateMessageResult(role="assistant", content=content, model="parrot-1")

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv/demo")])

    async def log(params: Any) -> None:
        logs.append((params.level, params.data))

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    async def noticed(message: Any) -> None:
        heard.put_nowait(getattr(message, "method", ""))

    with ExitStack() as stack:
        server = reached(stack, mode, upstream, "official")
        target = StdioServerParameters(command=BRIDGE[0], args=[*BRIDGE[1:], upstream, server])
        options: dict[str, Any] = {
            "elicitation_callback": elicit,
            "sampling_callback": sample,
            "list_roots_callback": roots,
            "logging_callback": log,
            "log_level": "info",
            "message_handler": noticed,
            "extensions": [advertise("com.example/audit")],
            "read_timeout_seconds": 30,
        }
        async with OfficialClient(target, mode=mode, **options) as client:
            listed = await client_tests.listed(client.list_tools, "tools")
            assert [tool.name for tool in listed] == server_tests.TOOLS  # in pages of five
            added = await client.call_tool("add", {"a": 2, "b": 3})
            assert added.structured_content == {"result": 5}
            said = {
                name: text_of(await client.call_tool(name))
                for name in ("book", "consult", "workplace", "survey", "pay")
            }
            assert said == {
                "book": "booked 3 days in Oslo, second class",
                "consult": "parrot-1: Yes.",
                "workplace": "file:///srv/demo",
                "survey": "1 roots, Oslo, Yes.",
                "pay": "accept",
            }
            assert asked == ["form", "form", "url"]
            await client.call_tool("count", {"to": 3}, progress_callback=progress)
            assert steps == [1, 2, 3]
            if mode == "legacy":
                await client.set_logging_level("info")
            await client.call_tool("chatter")
            await eventually(lambda: len(logs) == 2)
            assert logs == [("info", {"what": "news"}), ("error", "a problem")]
            note = (await client.read_resource("official://note")).contents[0]
            assert note.text == "first"  # type: ignore[union-attr]
            prompt = await client.get_prompt("brief", {"city": "Oslo"})
            assert "Oslo" in prompt.messages[0].content.text  # type: ignore[union-attr]
            ref = types.PromptReference(type="ref/prompt", name="brief")
            found = await client.complete(ref, {"name": "city", "value": "L"})
            assert found.completion.values == ["Lisbon"]
            reflected = await client.call_tool("reflect", meta=META)  # type: ignore[arg-type]
            assert reflected.structured_content == {"result": META}
            assert (reflected.meta or {})["example.com/tag"] == [1]
            params = {"since": 3, "_meta": META}
            request = types.Request[dict[str, Any], str](method="audit/read", params=params)
            answer = await client.session.send_request(request, client_tests.Audited)
            assert (answer.since, answer.trace) == (3, META["traceparent"])
            with pytest.raises(MCPError):
                await client.call_tool("sleep", {"seconds": 60}, read_timeout_seconds=2.0)

            async def interrupted() -> bool:
                return text_of(await client.call_tool("interrupted")) == "1"

            await eventually(interrupted)
            if mode == "legacy":
                await client.subscribe_resource("official://note")
                await client.call_tool("write", {"text": "second"})
                await client.call_tool("grow")
                wanted = {"resources/updated", "tools/list_changed"}
                async with asyncio.timeout(30):
                    while wanted:
                        wanted.discard((await heard.get()).removeprefix("notifications/"))
            else:
                follow: Any = {
                    "tools_list_changed": True,
                    "resource_subscriptions": ["official://note"],
                }
                async with client.listen(**follow) as changes, asyncio.timeout(30):
                    await client.call_tool("write", {"text": "second"})
                    assert type(await anext(changes)).__name__ == "ResourceUpdated"
                    await client.call_tool("grow")
                    assert type(await anext(changes)).__name__ == "ToolsListChanged"


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


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
    client_tests.test_meta_and_a_method_of_an_extension,
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
    server_tests.test_a_page_to_visit_is_asked_for_in_both_eras,
    server_tests.test_meta_and_a_method_of_an_extension,
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
        if protocol == MODERN:
            await server_tests.test_modern_subscription_and_list_changes(connect)
        else:
            if upstream != MODERN:  # without sessions nothing says that a page was completed
                await server_tests.test_elicitation_by_url(connect)
            await server_tests.test_legacy_subscription_and_list_changes(connect)


@UPSTREAMS
async def test_servers_of_all_sdks_behind_one_gateway(upstream: str) -> None:
    programs = {name: SERVERS[name] for name in ("fastmcp", "official", "v2")}
    if upstream != MODERN:
        programs["v1"] = SERVERS["v1"]
        programs["everything"] = [*EVERYTHING_SERVER, "stdio"]
    gateway = Gateway(
        programs, upstreams=UpstreamSettings(patience=60.0, protocol=upstream, stateless=True)
    )

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Yes."), model="p")

    def fill_in(params: Any) -> Any:
        return {"city": "Oslo", "insured": True} if params.message == "Where to?" else {}

    peers = [name for name in programs if name != "everything"]
    async with gateway.serving("http", port=0) as url:
        for protocol in (MODERN, LEGACY[-1]):
            async with Client(url, protocol=protocol) as client:
                names = [tool.name async for tool in client.tools()]
                assert {name.partition("__")[0] for name in names} == set(programs)
                for name in peers:
                    assert (await client.call_tool(f"{name}__add", {"a": 1, "b": 2})).text == "3"
                    prompt = await client.get_prompt(f"{name}__brief", {"city": "Oslo"})
                    assert "Oslo" in prompt.messages[0].content.text  # type: ignore[union-attr]
                    calling = asyncio.ensure_future(
                        client.call_tool(f"{name}__sleep", {"seconds": 60})
                    )
                    await eventually(lambda: gateway.mounts[name].calls == 1)  # noqa: B023
                    calling.cancel()
                    await eventually(lambda: gateway.mounts[name].calls == 0)  # noqa: B023
                assert (await client.read_resource("demo://note"))[0].text == "first"
            options: dict[str, Any] = {"elicitation": fill_in, "sampling": model}
            async with Client(url, protocol=protocol, **options) as client:
                for name in peers:
                    assert (await client.call_tool(f"{name}__book")).text.startswith("booked")
                if "everything" in programs:
                    sampled = await client.call_tool(
                        "everything__trigger-sampling-request", {"prompt": "Sun?", "maxTokens": 10}
                    )
                    assert "Yes." in (sampled.text or "")
    assert all(each.sessions == 0 for each in gateway.upstreams.values())
