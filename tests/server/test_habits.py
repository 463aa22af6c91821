"""Servers written with the habits of FastMCP and the official SDK: only imports and names differ.

`FastMCP` and `MCPServer` stand for `Server` here, and `base` for the module of the messages, so that
the rest reads as it does there.
"""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from pydantic import BaseModel, Field

import mcpearl as base
from mcpearl import Client, Context, File, Icon, Image, ToolResult, UrlElicitationRequired
from mcpearl import Server as FastMCP
from mcpearl import Server as MCPServer
from mcpearl.testing import Heard
from mcpearl.types import CallToolResult, ElicitRequestParams, TextContent
from tests.server.wire import ERAS


async def call(app: Any, name: str, arguments: Any = None, **options: Any) -> Any:
    async with Client(app, **options) as client:
        return await client.call_tool(name, arguments or {})


async def test_an_echo_server_with_a_prompt_named_by_position():
    mcp = FastMCP("Echo")

    @mcp.tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @mcp.resource("echo://fixed")
    def fixed() -> str:
        return "fixed"

    @mcp.resource("echo://{text}")
    def template(text: str) -> str:
        return f"again: {text}"

    @mcp.prompt("echo")
    def prompt(text: str) -> str:
        return text

    async with Client(mcp) as client:
        assert (await client.call_tool("echo", {"text": "a"})).content[0].text == "a"
        assert (await client.read_resource("echo://fixed")).contents[0].text == "fixed"
        assert (await client.read_resource("echo://b")).contents[0].text == "again: b"
        assert (await client.get_prompt("echo", {"text": "c"})).messages[0].content.text == "c"


async def test_nested_models_with_constraints():
    mcp = FastMCP(name="Tank", instructions="Names.")

    class Tank(BaseModel):
        class Fish(BaseModel):
            name: Annotated[str, Field(max_length=5)]

        fish: list[Fish]

    @mcp.tool()
    def names(tank: Tank, more: Annotated[list[str], Field(max_length=2)]) -> list[str]:
        return [fish.name for fish in tank.fish] + more

    good = {"tank": {"fish": [{"name": "ann"}]}, "more": ["bob"]}
    assert (await call(mcp, "names", good)).structured_content == {"result": ["ann", "bob"]}
    long = {"tank": {"fish": [{"name": "longer"}]}, "more": []}
    assert "`tank.fish[0].name`" in (await call(mcp, "names", long)).content[0].text


async def test_pictures_and_files(tmp_path: Path):
    mcp = FastMCP("Files")
    (tmp_path / "notes.txt").write_text("hello")

    @mcp.tool
    def picture() -> Image:
        return Image(data=b"\xff\xd8", format="jpeg")

    @mcp.tool()
    async def file(path: str = str(tmp_path / "notes.txt")) -> File:
        return File(path=path)

    assert (await call(mcp, "picture")).content[0].mime_type == "image/jpeg"
    assert (await call(mcp, "file")).content[0].resource.text == "hello"


async def test_a_result_with_content_data_and_meta():
    mcp = FastMCP("Results")

    @dataclasses.dataclass
    class Data:
        length: int

    @mcp.tool
    def measure(text: str) -> ToolResult:
        return ToolResult(
            content=f"measured {text}", structured_content=Data(len(text)), meta={"words": 1}
        )

    result = await call(mcp, "measure", {"text": "abc"})
    assert (result.content[0].text, result.structured_content) == ("measured abc", {"length": 3})
    assert result.meta["words"] == 1


@pytest.mark.parametrize("version", ERAS)
async def test_questions_by_response_type(version: str):
    mcp = FastMCP("Questions")

    @mcp.tool
    async def greet(ctx: Context) -> str:
        result = await ctx.elicit("Your name?", response_type=str)
        return f"Hello, {result.data}!" if result.action == "accept" else "Bye!"

    @mcp.tool
    async def level(ctx: Context) -> str:
        result = await ctx.elicit("How much?", response_type=Literal["low", "high"])
        return str(result.data)

    options = {"protocol": version, "elicitation": lambda form: {"value": "low"}}
    assert (await call(mcp, "greet", **options)).content[0].text == "Hello, low!"
    assert (await call(mcp, "level", **options)).content[0].text == "low"
    refused = await call(mcp, "greet", protocol=version, elicitation=lambda form: None)
    assert refused.content[0].text == "Bye!"


async def test_questions_by_schema_and_by_address():
    mcp = MCPServer(name="Booking")

    class Wishes(BaseModel):
        other: bool = Field(description="Another day?")
        day: str = Field(default="Monday", description="Which day")

    @mcp.tool()
    async def book(ctx: Context) -> str:
        result = await ctx.elicit(message="No table. Another day?", schema=Wishes)
        if result.action == "accept" and result.data:
            return result.data.day if result.data.other else "none"
        return "cancelled"

    @mcp.tool()
    async def pay(ctx: Context) -> str:
        result = await ctx.elicit_url(message="Pay", url="https://example.com", elicitation_id="1")
        return result.action

    @mcp.tool()
    async def connect() -> str:
        raise UrlElicitationRequired(
            [ElicitRequestParams(mode="url", message="x", url="https://a", elicitation_id="2")]
        )

    options = {"protocol": "2025-11-25"}
    answered = await call(mcp, "book", elicitation=lambda form: {"other": True}, **options)
    assert answered.content[0].text == "Monday"
    agreed = await call(mcp, "pay", elicitation=lambda form: {}, **options)
    assert agreed.content[0].text == "accept"
    with pytest.raises(base.McpError) as raised:
        await call(mcp, "connect", elicitation=lambda form: {}, **options)
    assert raised.value.data["elicitations"][0]["url"] == "https://a"


async def test_progress_and_log():
    mcp = MCPServer(name="Progress")

    @mcp.tool()
    async def work(name: str, ctx: Context, steps: int = 2) -> str:
        await ctx.info(f"Starting {name}")
        for step in range(steps):
            await ctx.report_progress(progress=(step + 1) / steps, total=1.0, message=f"{step}")
            await ctx.debug(f"done {step}")
        await ctx.warning("nearly")
        await ctx.error("not really")
        return "done"

    heard = Heard()
    async with Client(mcp, protocol="2025-11-25", **heard.options) as client:
        result = await client.call_tool("work", {"name": "x"})
    assert result.content[0].text == "done"
    assert len(heard.progress) == 2
    assert heard.texts == ["Starting x", "done 0", "done 1", "nearly", "not really"]


async def test_prompts_of_several_messages():
    mcp = MCPServer(name="Prompts")

    @mcp.prompt(title="Debug")
    def debug(error: str) -> list[base.Message]:
        return [
            base.UserMessage("I see this:"),
            base.UserMessage(error),
            base.AssistantMessage("What did you try?"),
        ]

    async with Client(mcp) as client:
        result = await client.get_prompt("debug", {"error": "boom"})
    assert [(each.role, each.content.text) for each in result.messages] == [
        ("user", "I see this:"),
        ("user", "boom"),
        ("assistant", "What did you try?"),
    ]


async def test_structured_output():
    mcp = MCPServer("Structured")

    class Weather(BaseModel):
        temperature: float = Field(description="in Celsius")
        wind: float = 0.0

    class Place(TypedDict):
        latitude: float
        name: str

    @mcp.tool()
    def weather(city: str) -> Weather:
        return Weather(temperature=22.5)

    @mcp.tool()
    def place() -> Place:
        return Place(latitude=51.5, name="London")

    @mcp.tool()
    def statistics() -> dict[str, float]:
        return {"mean": 42.5}

    @mcp.tool()
    def cities() -> list[str]:
        return ["London"]

    async with Client(mcp) as client:
        tools = {tool.name: tool async for tool in client.tools()}
        assert tools["weather"].output_schema["properties"]["temperature"] == {
            "type": "number",
            "description": "in Celsius",
        }
        answers = [
            (await client.call_tool(name, {"city": "x"} if name == "weather" else {}))
            for name in tools
        ]
    assert [answer.structured_content for answer in answers] == [
        {"temperature": 22.5, "wind": 0.0},
        {"latitude": 51.5, "name": "London"},
        {"mean": 42.5},
        {"result": ["London"]},
    ]


async def test_whole_results_with_a_declared_model():
    mcp = MCPServer("Whole")

    class Model(pydantic.BaseModel):
        status: str

    @mcp.tool()
    def checked() -> Annotated[CallToolResult, Model]:
        return CallToolResult(
            content=[TextContent(type="text", text="fine")], structured_content={"status": "ok"}
        )

    @mcp.tool()
    def empty() -> CallToolResult:
        return CallToolResult(content=[])

    assert (await call(mcp, "checked")).structured_content == {"status": "ok"}
    assert (await call(mcp, "empty")).content == []


async def test_descriptions_of_parameters_and_icons():
    icon = Icon(src="data:image/png;base64,AA==", mime_type="image/png", sizes=["64x64"])
    mcp = MCPServer("Described", website_url="https://example.com", icons=[icon])

    @mcp.tool(icons=[icon])
    def greet(
        name: str = Field(description="Whom to greet"),
        times: int = Field(description="How often", default=1),
    ) -> str:
        return "\n".join([f"Hello {name}!"] * times)

    async with Client(mcp) as client:
        (tool,) = [tool async for tool in client.tools()]
        assert tool.icons[0].sizes == ["64x64"]
        properties = tool.input_schema["properties"]
        assert properties["name"] == {"type": "string", "description": "Whom to greet"}
        assert properties["times"]["default"] == 1
        result = await client.call_tool("greet", {"name": "Ann"})
    assert result.content[0].text == "Hello Ann!"


async def test_a_typed_lifespan():
    @dataclasses.dataclass
    class App:
        rows: int

    @asynccontextmanager
    async def lifespan(server: MCPServer) -> AsyncIterator[App]:
        yield App(rows=3)

    mcp = MCPServer("Rows", lifespan=lifespan)

    @mcp.tool()
    def rows(ctx: Context[App]) -> int:
        return ctx.lifespan.rows

    assert (await call(mcp, "rows")).structured_content == {"result": 3}
