"""Prompts: their arguments, their messages."""

from typing import Any, Literal

import pytest

from mcpearl import Client, McpError, Media, Server
from mcpearl.types import GetPromptResult, PromptMessage, TextContent
from tests.server.wire import ERAS, VERSIONS, wire


@pytest.fixture
def mcp_app() -> Server:
    app = Server("prompts")

    @app.prompt(title="Brief")
    def brief(city: str, tone: Literal["short", "long"] = "short", days: int = 1) -> str:
        """A briefing.

        Args:
            city: Which city.
        """
        return f"{city} {tone} {days}"

    return app


async def test_a_prompt_is_its_function(mcp_app: Server) -> None:
    async with wire(mcp_app) as client:
        (prompt,) = (await client.ask("prompts/list"))["result"]["prompts"]
    assert prompt["name"] == "brief"
    assert prompt["title"] == "Brief"
    assert prompt["description"].startswith("A briefing.")
    assert [argument["name"] for argument in prompt["arguments"]] == ["city", "tone", "days"]
    assert prompt["arguments"][0]["description"] == "Which city."
    assert [bool(argument.get("required")) for argument in prompt["arguments"]] == [
        True,
        False,
        False,
    ]


@pytest.mark.mcpearl(era=VERSIONS)
async def test_arguments_are_texts_and_arrive_in_their_type(mcp_client: Client) -> None:
    result = await mcp_client.get_prompt("brief", {"city": "Oslo", "days": "3"})
    said = PromptMessage(role="user", content=TextContent(text="Oslo short 3"))
    assert result.messages == [said]


@pytest.mark.mcpearl(era=ERAS)
@pytest.mark.parametrize(
    ("given", "argument"),
    [
        (None, "city"),
        ({}, "city"),
        ({"city": "Oslo", "tone": "shrill"}, "tone"),
        ({"city": "Oslo", "days": "many"}, "days"),
        ({"city": "Oslo", "other": "1"}, "other"),
    ],
)
async def test_arguments_that_do_not_fit(mcp_client: Client, given: Any, argument: str) -> None:
    with pytest.raises(McpError, match=argument) as refused:
        await mcp_client.get_prompt("brief", given)
    assert refused.value.code == -32602
    assert refused.value.data == {"name": "brief", "argument": argument}


@pytest.mark.parametrize("version", ERAS)
async def test_arguments_that_are_no_text(mcp_app: Server, version: str) -> None:
    async with wire(mcp_app, version) as client:
        params = {"name": "brief", "arguments": {"city": 5}}
        assert (await client.ask("prompts/get", params))["error"]["code"] == -32602


@pytest.mark.mcpearl(era=ERAS)
async def test_a_prompt_that_is_not_there(mcp_client: Client) -> None:
    with pytest.raises(McpError) as refused:
        await mcp_client.get_prompt("nothing")
    assert (refused.value.code, refused.value.data) == (-32602, {"name": "nothing"})


@pytest.mark.parametrize("version", ERAS)
async def test_a_prompt_that_raises(version: str) -> None:
    app = Server("prompts")

    @app.prompt
    async def fails() -> str:
        raise ValueError("the reason")

    async with wire(app, version) as client:
        error = (await client.ask("prompts/get", {"name": "fails"}))["error"]
    assert error["code"] == -32603
    assert error["data"] == {"name": "fails"}


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [("user", "hi")]),
        (["a", "b"], [("user", "a"), ("user", "b")]),
        (
            [{"role": "assistant", "content": {"type": "text", "text": "a"}}, "b"],
            [("assistant", "a"), ("user", "b")],
        ),
        (PromptMessage(role="assistant", content=TextContent(text="a")), [("assistant", "a")]),
        (
            GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text="a"))]),
            [("user", "a")],
        ),
        ({"a": 1}, [("user", '{"a":1}')]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_messages(value: Any, messages: Any) -> None:
    app = Server("prompts")
    app.add_prompt(lambda: value, name="give")
    async with wire(app) as client:
        result = (await client.ask("prompts/get", {"name": "give"}))["result"]
    assert [(said["role"], said["content"]["text"]) for said in result["messages"]] == messages


async def test_pictures_in_messages() -> None:
    app = Server("prompts")
    app.add_prompt(lambda: ["look:", Media(b"\x00", "image/png")], name="give")
    async with wire(app) as client:
        result = (await client.ask("prompts/get", {"name": "give"}))["result"]
    assert result["messages"][1]["content"] == {
        "type": "image",
        "data": "AA==",
        "mimeType": "image/png",
    }


async def test_a_message_that_is_none_is_the_prompts_fault() -> None:
    app = Server("prompts")
    app.add_prompt(lambda: {"role": "king", "content": 5}, name="give")
    async with wire(app) as client:
        error = (await client.ask("prompts/get", {"name": "give"}))["error"]
    assert error["code"] == -32603
    assert "invalid message" in error["message"]
