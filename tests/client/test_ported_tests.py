"""Tests that someone wrote for a FastMCP server, with our classes: the calls are the same.

The server and the tests use the client as the testing guide of FastMCP does: a fixture that yields a
client of the server object, `result.data`, lists that are iterated, contents that are indexed.
"""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from mcpearl import Client
from mcpearl import Server as FastMCP

mcp = FastMCP("Workshop")


@mcp.tool
def total(first: int, second: int) -> int:
    """Sum of two integers"""
    return first + second


@mcp.tool
def label(item: str, prefix: str = "Item") -> str:
    """Write a label"""
    return f"{prefix}: {item}!"


@mcp.tool
async def area(width: float, height: float) -> float:
    """Area of a rectangle"""
    return width * height


@mcp.resource("workshop://about")
def about() -> str:
    """What this is"""
    return "A workshop with two benches"


@mcp.resource("workshop://bench/{owner}")
def bench(owner: str) -> str:
    """Whose bench it is"""
    return f"This bench belongs to {owner}"


@mcp.prompt("plan")
def plan_prompt(what: str = "chair") -> str:
    """Ask for a plan"""
    return f"Plan how to build a {what}."


@mcp.prompt("teach")
def teach_prompt(craft: str, depth: str = "medium") -> str:
    """Ask for a lesson"""
    return f"Teach {craft} in {'plain words' if depth == 'simple' else 'full detail'}."


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(mcp) as client:
        yield client


async def test_a_tool_with_integers(client: Client):
    result = await client.call_tool("total", {"first": 2, "second": 3})
    assert result.data == 5


async def test_a_tool_with_its_default(client: Client):
    result = await client.call_tool("label", {"item": "saw"})
    assert result.data == "Item: saw!"


async def test_a_tool_with_every_argument(client: Client):
    result = await client.call_tool("label", {"item": "saw", "prefix": "Tool"})
    assert result.data == "Tool: saw!"


async def test_an_async_tool_with_floats(client: Client):
    result = await client.call_tool("area", {"width": 3.5, "height": 2.0})
    assert result.data == 7.0


@pytest.mark.parametrize(
    "first,second,expected", [(0, 0, 0), (1, 1, 2), (-1, 1, 0), (100, 200, 300)]
)
async def test_sums(client: Client, first: int, second: int, expected: int):
    result = await client.call_tool("total", {"first": first, "second": second})
    assert result.data == expected


async def test_a_resource(client: Client):
    result = await client.read_resource("workshop://about")
    assert len(result) == 1
    assert result[0].text == "A workshop with two benches"


async def test_a_resource_template(client: Client):
    result = await client.read_resource("workshop://bench/Ada")
    assert len(result) == 1
    assert result[0].text == "This bench belongs to Ada"


async def test_a_prompt_without_arguments(client: Client):
    result = await client.get_prompt("plan")
    assert result.messages[0].content.text == "Plan how to build a chair."


async def test_a_prompt_with_arguments(client: Client):
    result = await client.get_prompt("plan", {"what": "table"})
    assert result.messages[0].content.text == "Plan how to build a table."


async def test_a_prompt_with_a_choice(client: Client):
    for depth, words in (("simple", "plain words"), ("detailed", "full detail")):
        result = await client.get_prompt("teach", {"craft": "joinery", "depth": depth})
        assert words in result.messages[0].content.text
        assert "joinery" in result.messages[0].content.text


async def test_the_list_of_tools(client: Client):
    tools = await client.list_tools()
    names = [tool.name for tool in tools]
    assert "total" in names
    assert "label" in names
    assert "area" in names


async def test_the_list_of_resources(client: Client):
    resources = await client.list_resources()
    uris = [str(resource.uri) for resource in resources]
    assert "workshop://about" in uris
    assert len(uris) >= 1


async def test_the_list_of_prompts(client: Client):
    prompts = await client.list_prompts()
    names = [prompt.name for prompt in prompts]
    assert "plan" in names
    assert "teach" in names


async def test_data_against_a_pattern(client: Client):
    result = await client.call_tool("label", {"item": "vice"})
    assert re.fullmatch(r"Item: \w+!", result.data)


async def test_the_schema_of_a_tool(client: Client):
    tools: Any = await client.list_tools()
    tool = next(tool for tool in tools if tool.name == "total")
    assert tool.description == "Sum of two integers"
    assert tool.inputSchema["properties"]["first"]["type"] == "integer"
    assert tool.inputSchema["properties"]["second"]["type"] == "integer"
