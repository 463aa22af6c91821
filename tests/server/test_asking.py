"""Asking the client: the same handler in both eras, as its author would test it."""

from typing import Any

import pytest

from mcpearl import Client, Context, McpError, Server
from mcpearl.testing import Answers
from mcpearl.types import CreateMessageResult, TextContent
from tests.server.journeys import SCHEMA, Journey, JourneyModel

pytestmark = pytest.mark.mcpearl(era=["legacy", "modern"])


KINDS: dict[str, Any] = {"dataclass": Journey, "model": JourneyModel, "schema": SCHEMA}


@pytest.fixture
def booked() -> list[str]:
    """What was booked, in order."""
    return []


@pytest.fixture
def mcp_app(booked: list[str]) -> Server:
    app = Server("asking")

    @app.tool
    async def book(kind: str, ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", KINDS[kind])
        if not answer.accepted:
            return answer.action
        data: Any = answer.data
        return f"{data['city']} {data['days']}" if kind == "schema" else f"{data.city} {data.days}"

    @app.tool
    async def everything(ctx: Context) -> list[str]:
        visited = await ctx.elicit_url("Log in", "https://example.com/login")
        said = await ctx.sample("Say hi", max_tokens=5)
        roots = await ctx.roots()
        assert isinstance(said.content, TextContent)
        return [visited.action, said.content.text, roots[0].uri]

    @app.tool
    def both_ways(ctx: Context) -> str:
        first = ctx.wait(ctx.elicit("Where to?", Journey))
        second = ctx.wait(ctx.elicit("And then?", Journey))
        return f"{first.data.city} {second.data.city}"

    @app.tool
    async def reserve(guest: str, ctx: Context) -> str:
        city = (await ctx.elicit("Where to?", Journey)).data.city

        def reserve() -> int:
            booked.append(city)
            return len(booked)

        number = await ctx.once("reserve", reserve)
        sure = await ctx.elicit("Sure?")
        return f"{guest} {city} {number} {sure.action}"

    @app.prompt
    async def brief(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Journey)).data.city)

    @app.resource("trip://now")
    async def trip(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Journey)).data.city)

    return app


@pytest.mark.parametrize("kind", KINDS)
async def test_a_form(mcp_client: Client, mcp_answers: Answers, kind: str):
    mcp_answers.elicit({"city": "Oslo", "days": 2}, False, None)
    for said in ("Oslo 2", "decline", "cancel"):
        assert (await mcp_client.call_tool("book", {"kind": kind})).data == said
    assert [asked.message for asked in mcp_answers.asked] == ["Where to?"] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [{}, {"city": 5}, {"city": "Oslo", "days": "many"}])
async def test_an_answer_that_does_not_fit_the_form(
    mcp_client: Client, mcp_answers: Answers, kind: str, content: Any
):
    mcp_answers.elicit(content)
    with pytest.raises(McpError, match="form") as refused:
        await mcp_client.call_tool("book", {"kind": kind})
    assert refused.value.code == -32602


async def test_a_url_a_model_and_the_roots(mcp_client: Client, mcp_answers: Answers):
    def model(params: Any) -> CreateMessageResult:
        assert params.max_tokens == 5
        return CreateMessageResult(role="assistant", content=TextContent(text="hi"), model="m")

    mcp_answers.elicit(True).sample(model)
    mcp_answers.roots = ["file:///work"]
    result = await mcp_client.call_tool("everything", raise_on_error=True)
    assert result.data == ["accept", "hi", "file:///work"]


async def test_plain_functions_ask_with_wait(mcp_client: Client, mcp_answers: Answers):
    mcp_answers.elicit({"city": "Oslo"}, {"city": "Rome"})
    result = await mcp_client.call_tool("both_ways", raise_on_error=True)
    assert result.data == "Oslo Rome"


async def test_prompts_and_resources_ask_too(mcp_client: Client, mcp_answers: Answers):
    mcp_answers.elicit({"city": "Oslo"}, {"city": "Rome"})
    message = (await mcp_client.get_prompt("brief")).messages[0]
    assert isinstance(message.content, TextContent)
    assert message.content.text == "Oslo"
    assert (await mcp_client.read_resource("trip://now")).contents[0].text == "Rome"


async def test_once_is_once(mcp_client: Client, mcp_answers: Answers, booked: list[str]):
    mcp_answers.elicit({"city": "Oslo"}, True)
    result = await mcp_client.call_tool("reserve", {"guest": "Ada"}, raise_on_error=True)
    assert result.data == "Ada Oslo 1 accept"
    assert booked == ["Oslo"]
