"""Every method a client has, in both eras, and what comes back."""

from collections.abc import Callable
from typing import Any

import pytest

from mcpearl import (
    CapabilityMissing,
    Client,
    Context,
    InvalidResult,
    McpearlError,
    McpError,
    Server,
    ToolError,
)
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.types import PromptReference, ResourceTemplateReference

from .peers import INITIALIZED, Error, client_of, legacy_peer, modern_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])


def an_app() -> Server:
    app = Server("calls")

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> str:
        raise ToolError("out of paper")

    @app.tool
    async def meta(ctx: Context) -> str:
        return str(ctx.meta.get("example.com/trace"))

    @app.resource("config://app", mime_type="application/json")
    async def config() -> dict[str, int]:
        return {"size": 3}

    @app.resource("note://{name}")
    async def note(name: str) -> str:
        return f"note of {name}"

    @app.prompt
    async def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}" * times

    @app.complete("greet", "name")
    async def names(typed: str) -> list[str]:
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(typed)]

    @app.complete("note://{name}", "name")
    async def notes(typed: str) -> list[str]:
        return [typed + "!"]

    return app


@pytest.mark.parametrize("protocol", SUPPORTED)
async def test_every_method_in_every_version(protocol: str) -> None:
    async with Client(an_app(), protocol=protocol) as client:
        await client.ping()
        assert [t.name for t in (await client.list_tools()).tools] == ["add", "fail", "meta"]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"
        assert [r.uri for r in (await client.list_resources()).resources] == ["config://app"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [t.uri_template for t in templates] == ["note://{name}"]
        (contents,) = (await client.read_resource("note://ada")).contents
        assert contents.text == "note of ada"
        assert [p.name for p in (await client.list_prompts()).prompts] == ["greet"]
        prompt = await client.get_prompt("greet", {"name": "Ada", "times": 2})
        assert prompt.messages[0].content.text == "Hello AdaHello Ada"
        assert (await client.complete("greet", "name", "A")).values == ["Ada", "Alan"]
        assert (await client.complete("note://{name}", "name", "x")).values == ["x!"]
        await client.set_log_level("warning")
        await client.subscribe("config://app")
        await client.unsubscribe("config://app")
        client.notify_roots_changed()


@BOTH
async def test_references_can_be_given_as_objects(protocol: str) -> None:
    async with Client(an_app(), protocol=protocol) as client:
        prompt = PromptReference(name="greet")
        assert (await client.complete(prompt, "name", "G")).values == ["Grace"]
        template = ResourceTemplateReference(uri="note://{name}")
        assert (await client.complete(template, "name", "y")).values == ["y!"]


@BOTH
async def test_a_failed_tool_is_a_result_or_with_raise_on_error_an_exception(protocol: str) -> None:
    async with Client(an_app(), protocol=protocol) as client:
        result = await client.call_tool("fail")
        assert result.is_error
        assert "out of paper" in result.content[0].text
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail", raise_on_error=True)


@BOTH
async def test_error_answers_are_mcp_errors(protocol: str) -> None:
    async with Client(an_app(), protocol=protocol) as client:
        for call in (
            client.call_tool("nothing"),
            client.get_prompt("nothing"),
            client.complete("nothing", "name", ""),
            client.list_tools("no cursor of this server"),
        ):
            with pytest.raises(McpError) as caught:
                await call
            assert caught.value.code == -32602
        with pytest.raises(McpError, match="nowhere://") as caught:
            await client.read_resource("nowhere://")
        assert caught.value.code == (-32602 if client.era == "modern" else -32002)


@BOTH
async def test_meta_goes_with_the_call(protocol: str) -> None:
    async with Client(an_app(), protocol=protocol) as client:
        result = await client.call_tool("meta", meta={"example.com/trace": "abc"})
        assert result.content[0].text == "abc"


Ask = Callable[[Client], Any]
NEEDS: list[tuple[str, Ask]] = [
    ("tools", lambda c: c.list_tools()),
    ("tools", lambda c: c.call_tool("add")),
    ("resources", lambda c: c.list_resources()),
    ("resources", lambda c: c.list_resource_templates()),
    ("resources", lambda c: c.read_resource("x://")),
    ("resources.subscribe", lambda c: c.subscribe("x://")),
    ("prompts", lambda c: c.list_prompts()),
    ("prompts", lambda c: c.get_prompt("greet")),
    ("completions", lambda c: c.complete("greet", "name", "")),
]


@BOTH
@pytest.mark.parametrize(("capability", "ask"), NEEDS)
async def test_an_absent_capability_is_named_and_nothing_is_sent(
    protocol: str, capability: str, ask: Ask
) -> None:
    peer = modern_peer() if protocol == "2026-07-28" else legacy_peer()
    peer["initialize"] = lambda _: INITIALIZED | {"capabilities": {}}
    peer["server/discover"] = lambda _: {"supportedVersions": [protocol], "capabilities": {}}
    async with await client_of(peer, protocol=protocol) as client:
        before = len(peer.received)
        with pytest.raises(CapabilityMissing, match=f"`{capability}`"):
            await ask(client)
        assert len(peer.received) == before


async def test_logging_is_a_capability_of_legacy_sessions() -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: INITIALIZED | {"capabilities": {}}
    async with await client_of(peer) as client:
        with pytest.raises(CapabilityMissing, match="`logging`"):
            await client.set_log_level("debug")


async def test_completion_needed_no_capability_at_first() -> None:
    peer = legacy_peer(completion_complete=lambda _: {"completion": {"values": ["a"]}})
    peer["initialize"] = lambda _: (
        INITIALIZED
        | {
            "capabilities": {},
            "protocolVersion": "2024-11-05",
        }
    )
    async with await client_of(peer, protocol="2024-11-05") as client:
        assert (await client.complete("greet", "name", "")).values == ["a"]


async def test_arguments_without_a_json_form_are_refused_before_anything_is_sent() -> None:
    peer = modern_peer()
    async with await client_of(peer) as client:
        for arguments in ({"x": object()}, {"x": {1: object()}}):
            with pytest.raises(TypeError):
                await client.call_tool("add", arguments)
        with pytest.raises(TypeError):
            await client.call_tool("add", {}, meta={"example.com/x": object()})
        assert not peer.asked("tools/call")


WRONG: list[tuple[str, Ask, Any]] = [
    ("tools/list", lambda c: c.list_tools(), {"tools": "many"}),
    ("tools/list", lambda c: c.list_tools(), {}),
    ("tools/call", lambda c: c.call_tool("add"), {"content": [{"type": "hologram"}]}),
    ("tools/call", lambda c: c.call_tool("add"), [1, 2]),
    ("tools/call", lambda c: c.call_tool("add"), "done"),
    ("resources/list", lambda c: c.list_resources(), {"resources": [{"uri": 7}]}),
    ("resources/read", lambda c: c.read_resource("x://"), {"contents": None}),
    ("prompts/get", lambda c: c.get_prompt("greet"), {"messages": [{"role": "king"}]}),
    ("completion/complete", lambda c: c.complete("greet", "n", ""), {"completion": []}),
]


@BOTH
@pytest.mark.parametrize(("method", "ask", "result"), WRONG)
async def test_a_result_of_the_wrong_shape_is_an_error_that_names_the_method(
    protocol: str, method: str, ask: Ask, result: Any
) -> None:
    peer = modern_peer() if protocol == "2026-07-28" else legacy_peer()
    peer[method] = lambda _: result
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult, match=method):
            await ask(client)
        peer["ping"] = lambda _: {}
        await client.ping()


async def test_a_malformed_error_is_still_an_error() -> None:
    peer = modern_peer()

    def broken(message: dict[str, Any]) -> None:
        peer.send(id=message["id"], error="it broke")

    peer["tools/call"] = broken
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="malformed"):
            await client.call_tool("add")


async def test_an_error_keeps_its_code_and_data() -> None:
    peer = modern_peer(tools_call=lambda _: Error(1234, "of the server's own", {"why": [1]}))
    async with await client_of(peer) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("add")
    error = caught.value
    assert (error.code, error.message, error.data) == (1234, "of the server's own", {"why": [1]})


# Before and after


async def test_calls_before_connecting_are_refused() -> None:
    client = Client(an_app())
    for ask in [ask for _, ask in NEEDS] + [lambda c: c.ping(), lambda c: c.set_log_level("info")]:
        with pytest.raises(McpearlError, match="not connected"):
            await ask(client)
    for name in ("era", "protocol_version", "server_info", "server_capabilities", "instructions"):
        with pytest.raises(McpearlError, match="not connected"):
            getattr(client, name)
    with pytest.raises(McpearlError, match="not connected"):
        client.listen(tools=True)
    assert "disconnected" in repr(client)


async def test_calls_after_closing_are_refused_although_the_result_is_cached() -> None:
    app = Server("kept", list_ttl_ms=60_000)
    app.add_tool(lambda: 1, name="one")
    client = Client(app)
    async with client:
        await client.list_tools()
    with pytest.raises(McpearlError, match="not connected"):
        await client.list_tools()
    await client.close()
    await client.close()


async def test_connecting_twice_is_refused_and_again_after_closing_is_fine() -> None:
    client = Client(an_app())
    for _ in range(2):
        async with client:
            with pytest.raises(RuntimeError, match="connected already"):
                await client.connect()
            assert (await client.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"


async def test_a_connection_that_failed_can_be_tried_again() -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: Error(-32000, "not yet")
    with pytest.raises(McpError, match="not yet"):
        await (client := await client_of(peer)).connect()
    with pytest.raises(McpearlError, match="not connected"):
        await client.ping()
    await client.close()


async def test_two_clients_of_one_server_at_once() -> None:
    app = an_app()
    async with Client(app) as modern, Client(app, protocol="2025-06-18") as legacy:
        assert (await modern.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"
        assert (await legacy.call_tool("add", {"a": 2, "b": 2})).content[0].text == "4"
        await modern.close()
        assert (await legacy.call_tool("add", {"a": 3, "b": 3})).content[0].text == "6"
    assert not app.core.roster
