"""Handlers as classes: what is overridden is announced, and nothing else is."""

from typing import Any

import pytest

from mcpearl import Handler, Server
from mcpearl.types import (
    CallToolResult,
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    ResourceContents,
    TextContent,
    Tool,
)
from tests.server.wire import ERAS, LEGACY, MODERN, text_of, wire

CHANGED = {"listChanged": True}


async def list_tools(self: Any, cursor: Any, ctx: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])


async def call_tool(self: Any, params: Any, ctx: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"{params.name} {bytes(params.arguments)!r}")])


async def list_resources(self: Any, cursor: Any, ctx: Any) -> ListResourcesResult:
    return ListResourcesResult(resources=[])


async def list_resource_templates(self: Any, cursor: Any, ctx: Any) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=[])


async def read_resource(self: Any, uri: str, ctx: Any) -> ReadResourceResult:
    return ReadResourceResult(contents=[ResourceContents(uri=uri, text="x")])


async def subscribe(self: Any, uri: str, ctx: Any) -> None: ...


async def list_prompts(self: Any, cursor: Any, ctx: Any) -> ListPromptsResult:
    return ListPromptsResult(prompts=[])


async def get_prompt(self: Any, name: str, arguments: Any, ctx: Any) -> GetPromptResult:
    return GetPromptResult(messages=[])


async def complete(self: Any, params: Any, ctx: Any) -> CompleteResult:
    return CompleteResult(completion=Completion(values=["x"]))


@pytest.mark.parametrize(
    ("methods", "announced"),
    [
        ((), {}),
        ((list_tools,), {"tools": CHANGED}),
        ((call_tool,), {"tools": CHANGED}),
        ((list_resources,), {"resources": CHANGED}),
        ((list_resource_templates,), {"resources": CHANGED}),
        ((read_resource,), {"resources": CHANGED}),
        ((read_resource, subscribe), {"resources": {"subscribe": True, **CHANGED}}),
        ((list_prompts,), {"prompts": CHANGED}),
        ((get_prompt,), {"prompts": CHANGED}),
        ((complete,), {"completions": {}}),
        (
            (call_tool, get_prompt, complete),
            {"tools": CHANGED, "prompts": CHANGED, "completions": {}},
        ),
    ],
    ids=lambda value: (
        "+".join(each.__name__ for each in value) if isinstance(value, tuple) else "announced"
    ),
)
async def test_exactly_what_is_overridden_is_announced(methods: Any, announced: Any) -> None:
    kind = type("Some", (Handler,), {each.__name__: each for each in methods})
    app = Server("handled", handler=kind())
    async with wire(app) as client:
        said = (await client.ask("server/discover"))["result"]["capabilities"]
        assert said == {"logging": {}, **announced}
        for method, capability in (
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("prompts/list", "prompts"),
        ):
            answer = await client.ask(method)
            assert ("result" in answer) is (capability in announced)
            if "error" in answer:
                assert answer["error"]["code"] == -32601
                assert answer["error"]["data"]["capability"] == capability


class Echo(Handler):
    list_tools = list_tools
    call_tool = call_tool


@pytest.mark.parametrize("version", ERAS)
async def test_a_handler_answers(version: str) -> None:
    async with wire(Server("echo", handler=Echo()), version) as client:
        assert (await client.ask("tools/list"))["result"]["tools"][0]["name"] == "echo"
        assert text_of(await client.call("anything", {"a": 1})) == "anything b'{\"a\": 1}'"


@pytest.mark.parametrize("version", ERAS)
async def test_what_it_does_not_override_says_so(version: str) -> None:
    class OnlyLists(Handler):
        list_tools = list_tools

    class OnlyTemplates(Handler):
        list_resource_templates = list_resource_templates

    async with wire(Server("lists", handler=OnlyLists()), version) as client:
        assert (await client.call("echo"))["error"]["code"] == -32601
    async with wire(Server("lists", handler=OnlyTemplates()), version) as client:
        error = (await client.ask("resources/read", {"uri": "a://1"}))["error"]
        assert error["code"] == (-32602 if version == MODERN else -32002)
        assert "result" in await client.ask("resources/list")


async def test_inherited_methods_count() -> None:
    class Louder(Echo): ...

    assert Louder().capabilities().tools is not None


@pytest.mark.parametrize("version", ERAS)
async def test_wrong_handlers_cost_their_call(version: str) -> None:
    class Wrong(Handler):
        def call_tool(self, params: Any, ctx: Any) -> Any:
            return "plain text"

        async def list_tools(self, cursor: Any, ctx: Any) -> Any:
            return {"tools": []}

    async with wire(Server("wrong", handler=Wrong()), version) as client:
        assert (await client.call("x"))["result"]["isError"]
        error = (await client.ask("tools/list"))["error"]
        assert error["code"] == -32603
        assert "not a `Result`" in error["message"]


def test_decorators_and_a_handler_do_not_mix() -> None:
    app = Server("echo", handler=Echo())
    for register in (
        lambda: app.tool(lambda: 1),
        lambda: app.add_prompt(lambda: 1),
        lambda: app.add_resource("a://1", lambda: 1),
        lambda: app.remove_tool("x"),
        lambda: app.complete("a", "b")(lambda typed: []),
    ):
        with pytest.raises(TypeError, match="handler"):
            register()


async def test_a_handler_tells_of_its_own_changes() -> None:
    app = Server("echo", handler=Echo())
    async with wire(app, LEGACY) as client:
        app.notify_list_changed("tools")
        assert (await client.next())["method"] == "notifications/tools/list_changed"
