"""Tools: what functions may be, what they may return, and what a call of one answers."""

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from mcpearl import Client, Context, McpError, Media, Server, ToolError
from mcpearl.types import CallToolResult, ImageContent, TextContent
from tests.server.wire import ERAS, LEGACY, MODERN, VERSIONS, text_of, wire


def calls_of(app: Server, version: str = MODERN) -> Any:
    return Client(app, protocol=version)


@dataclasses.dataclass
class PointData:
    x: int
    y: int


class PointDict(TypedDict):
    x: int
    y: int


class PointStruct(msgspec.Struct):
    x: int
    y: int


class PointModel(pydantic.BaseModel):
    x: int
    y: int


# What a tool is announced as


async def test_a_tool_is_its_function() -> None:
    app = Server("tools")

    @app.tool
    def area(width: int, height: Annotated[int, msgspec.Meta(ge=1)] = 1) -> int:
        """Multiply.

        Args:
            width: How wide.
        """
        return width * height

    async with Client(app) as client:
        (tool,) = [tool async for tool in client.tools()]
    assert tool.name == "area"
    assert tool.description is not None
    assert tool.description.startswith("Multiply.")
    assert tool.input_schema["properties"]["width"]["type"] == "integer"
    assert tool.input_schema["properties"]["height"]["minimum"] == 1
    assert tool.input_schema["required"] == ["width"]
    assert tool.output_schema["properties"]["result"]["type"] == "integer"


async def test_everything_said_of_a_tool_is_told() -> None:
    app = Server("tools")
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 5}},
        "required": ["a"],
    }

    @app.tool(
        name="other",
        title="Other",
        description="Said by hand",
        annotations={"readOnlyHint": True},
        meta={"example.com/a": 1},
        input_schema=schema,
        output_schema={"type": "object"},
    )
    def one(a: int) -> dict[str, Any]:
        return {"a": a}

    async with wire(app) as client:
        (tool,) = (await client.ask("tools/list"))["result"]["tools"]
    assert tool == {
        "name": "other",
        "title": "Other",
        "description": "Said by hand",
        "annotations": {"readOnlyHint": True},
        "_meta": {"example.com/a": 1},
        "inputSchema": schema,
        "outputSchema": {"type": "object"},
    }


def test_a_function_that_cannot_be_a_tool_is_refused_at_once() -> None:
    app = Server("tools")
    with pytest.raises(TypeError):
        app.add_tool(lambda: 1, unknown=True)
    with pytest.raises((TypeError, ValueError)):
        app.add_tool(lambda: 1, name="bad", input_schema={"type": 5})


# Kinds of functions


class Callable_:
    async def __call__(self, a: int) -> int:
        return a + 1


class Methods:
    async def plus_async(self, a: int) -> int:
        return a + 1

    def plus(self, a: int) -> int:
        return a + 1


async def plus(a: int, b: int) -> int:
    return a + b


def give_coroutine(a: int) -> Any:
    return plus(a, 1)


@pytest.mark.parametrize(
    "function",
    [
        Callable_(),
        Methods().plus_async,
        Methods().plus,
        functools.partial(plus, b=1),
        give_coroutine,
    ],
    ids=["object", "async method", "method", "partial", "function that gives a coroutine"],
)
async def test_any_callable(function: Any) -> None:
    app = Server("tools")
    app.add_tool(function, name="plus")
    async with Client(app) as client:
        result = await client.call_tool("plus", {"a": 1})
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text == "2"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_generators_stream_what_they_yield_and_return_the_whole(
    kind: str, version: str
) -> None:
    app = Server("tools")

    async def words_async() -> AsyncIterator[str]:
        for word in ("a", "b", "c"):
            yield word

    def words() -> Iterator[str]:
        yield from ("a", "b", "c")

    app.add_tool(words_async if kind == "async" else words, name="words")
    async with wire(app, version) as client:
        id = client.request("tools/call", {"name": "words", "arguments": {}}, token="t")
        answer = await client.answer_to(id)
        told = [await client.next() for _ in range(3)]
    assert text_of(answer) == "abc"
    assert [message["params"]["progress"] for message in told] == [1, 2, 3]
    assert [message["params"]["message"] for message in told] == ["a", "b", "c"]
    assert all(message["params"]["progressToken"] == "t" for message in told)


async def test_a_generator_of_values_returns_a_list() -> None:
    app = Server("tools")

    @app.tool
    def squares(to: int) -> Any:
        for number in range(to):
            yield number * number

    async with wire(app) as client:
        assert text_of(await client.call("squares", {"to": 4})) == "[0,1,4,9]"


@pytest.mark.parametrize("version", ERAS)
async def test_a_cancelled_stream_is_closed(version: str) -> None:
    app = Server("tools")
    closed = asyncio.Event()

    @app.tool
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10**9):
                yield number
        finally:
            closed.set()

    async with wire(app, version) as client:
        id = client.request("tools/call", {"name": "numbers"}, token=1)
        await client.next()
        client.cancel(id)
        async with asyncio.timeout(30):
            await closed.wait()


# What tools return


@pytest.mark.parametrize("kind", [PointData, PointDict, PointStruct, PointModel])
@pytest.mark.parametrize("version", ERAS)
async def test_objects_are_structured_content(kind: Any, version: str) -> None:
    app = Server("tools")

    def point(x: int, y: int) -> Any:
        return kind(x=x, y=y)

    point.__annotations__["return"] = kind
    app.add_tool(point)
    async with Client(app, protocol=version) as client:
        (tool,) = [tool async for tool in client.tools()]
        assert tool.output_schema["properties"]["x"]["type"] == "integer"
        result = await client.call_tool("point", {"x": 1, "y": 2})
    assert result.structured_content == {"x": 1, "y": 2}
    assert isinstance(result.content[0], TextContent)
    assert msgspec.json.decode(result.content[0].text) == {"x": 1, "y": 2}


async def test_objects_as_arguments() -> None:
    app = Server("tools")

    @app.tool
    def swap(point: PointData, other: PointModel) -> PointDict:
        return {"x": point.y, "y": other.x}

    async with Client(app) as client:
        given = {"point": {"x": 1, "y": 2}, "other": {"x": 3, "y": 4}}
        assert (await client.call_tool("swap", given)).structured_content == {"x": 2, "y": 3}


async def test_structured_content_is_kept_where_the_version_has_no_output_schema() -> None:
    app = Server("tools")

    @app.tool
    def one() -> int:
        return 1

    for version in VERSIONS:
        async with wire(app, version) as client:
            (tool,) = (await client.ask("tools/list"))["result"]["tools"]
            result = (await client.call("one"))["result"]
        assert ("outputSchema" in tool) is (version >= "2025-06-18")
        assert result["structuredContent"] == {"result": 1}


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("text", [{"type": "text", "text": "text"}]),
        (None, []),
        ([1, 2], [{"type": "text", "text": "[1,2]"}]),
        (TextContent(text="t"), [{"type": "text", "text": "t"}]),
        (Media(b"\x89", "image/png"), [{"type": "image", "data": "iQ==", "mimeType": "image/png"}]),
        (Media(b"\x89", "audio/wav"), [{"type": "audio", "data": "iQ==", "mimeType": "audio/wav"}]),
        (
            Media(b"\x89", "application/pdf", uri="file:///a.pdf"),
            [
                {
                    "type": "resource",
                    "resource": {
                        "uri": "file:///a.pdf",
                        "mimeType": "application/pdf",
                        "blob": "iQ==",
                    },
                }
            ],
        ),
        (
            ["before", Media(b"\x89", "image/png")],
            [
                {"type": "text", "text": "before"},
                {"type": "image", "data": "iQ==", "mimeType": "image/png"},
            ],
        ),
        (
            CallToolResult(content=[ImageContent(data="iQ==", mime_type="image/gif")]),
            [{"type": "image", "data": "iQ==", "mimeType": "image/gif"}],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_content(value: Any, blocks: Any) -> None:
    app = Server("tools")
    app.add_tool(lambda: value, name="give")
    async with wire(app, LEGACY) as client:
        assert (await client.call("give"))["result"]["content"] == blocks


async def test_an_unannotated_dict_is_data_too() -> None:
    app = Server("tools")
    app.add_tool(lambda: {"a": [1]}, name="give")
    async with wire(app) as client:
        result = (await client.call("give"))["result"]
    assert result["structuredContent"] == {"a": [1]}
    assert result["content"][0]["text"] == '{"a":[1]}'


# Results that do not keep their promise


async def test_a_result_that_does_not_fit_the_annotation() -> None:
    app = Server("tools")

    @app.tool
    def number() -> int:
        return "many"  # type: ignore[return-value]

    async with wire(app) as client:
        answer = await client.call("number")
    assert answer["result"]["isError"]
    assert "does not fit" in text_of(answer)
    assert "structuredContent" not in answer["result"]


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 5}},
    "required": ["n"],
}


@pytest.mark.parametrize("value", [{"n": 3}, PointModel(x=1, y=2), PointData(1, 2), {"n": 9}, {}])
async def test_a_result_under_a_schema_given_by_hand(value: Any) -> None:
    app = Server("tools")
    app.add_tool(lambda: value, name="give", output_schema=SCHEMA)
    async with wire(app) as client:
        answer = await client.call("give")
    if value == {"n": 3}:
        assert answer["result"]["structuredContent"] == {"n": 3}
    else:
        assert answer["result"]["isError"]
        assert "output schema" in text_of(answer)


async def test_objects_under_a_schema_given_by_hand() -> None:
    app = Server("tools")
    schema = {"type": "object", "properties": {"x": {"const": 1}}}
    app.add_tool(lambda: PointModel(x=1, y=2), name="model", output_schema=schema)
    app.add_tool(lambda: PointData(x=1, y=2), name="data", output_schema=schema)
    async with wire(app) as client:
        for name in ("model", "data"):
            assert (await client.call(name))["result"]["structuredContent"] == {"x": 1, "y": 2}


async def test_a_whole_result_is_held_to_the_schema_too() -> None:
    app = Server("tools")
    app.add_tool(
        lambda: CallToolResult(content=[]), name="without", output_schema={"type": "object"}
    )
    app.add_tool(
        lambda: CallToolResult(content=[], structured_content={"n": "x"}),
        name="wrong",
        output_schema=SCHEMA,
    )
    app.add_tool(
        lambda: CallToolResult(content=[TextContent(text="no")], is_error=True),
        name="failed",
        output_schema=SCHEMA,
    )
    async with wire(app) as client:
        assert "no structured content" in text_of(await client.call("without"))
        assert "does not fit its output schema" in text_of(await client.call("wrong"))
        assert text_of(await client.call("failed")) == "no"


# Arguments


@pytest.mark.parametrize("version", VERSIONS)
async def test_arguments_that_do_not_fit(version: str) -> None:
    app = Server("tools")

    @app.tool
    def half(number: int) -> float:
        return number / 2

    async with wire(app, version) as client:
        for wrong in ({}, {"number": "x"}, {"number": 1, "other": 2}):
            answer = await client.call("half", wrong)
            if version >= "2025-11-25":
                assert answer["result"]["isError"]
                assert "number" in text_of(answer) or "other" in text_of(answer)
            else:
                assert answer["error"]["code"] == -32602
                assert answer["error"]["data"] == {"name": "half"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_arguments_under_a_schema_given_by_hand(version: str) -> None:
    app = Server("tools")

    @app.tool(input_schema={"type": "object", "properties": {"n": {"multipleOf": 7}}})
    def seventh(n: int = 0) -> int:
        return n // 7

    async with wire(app, version) as client:
        assert text_of(await client.call("seventh", {"n": 21})) == "3"
        assert text_of(await client.ask("tools/call", {"name": "seventh"})) == "0"
        answer = await client.call("seventh", {"n": 20})
        if version >= "2025-11-25":
            assert answer["result"]["isError"]
        else:
            assert answer["error"]["code"] == -32602


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_tool_that_is_not_there(version: str) -> None:
    app = Server("tools")
    app.add_tool(lambda: 1, name="there")
    async with wire(app, version) as client:
        for name in ("nowhere", "", "There", "x" * 100_000):
            error = (await client.call(name))["error"]
            assert error["code"] == -32602
            assert error["data"]["name"].startswith(name[:128])
            assert len(error["message"]) < 300


# Failing


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_that_raises(version: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Server("tools")

    @app.tool
    async def fails() -> str:
        raise ValueError("the reason")

    @app.tool
    async def refuses() -> str:
        raise ToolError("Not on Sundays.")

    @app.tool
    async def wants_an_error_answer() -> str:
        raise McpError(-32099, "special", {"a": 1})

    async with wire(app, version) as client:
        answer = await client.call("fails")
        assert answer["result"]["isError"]
        assert text_of(answer) == "Tool `fails` failed: ValueError: the reason"
        assert "Traceback" in caplog.text
        assert "Traceback" not in str(answer)
        answer = await client.call("refuses")
        assert answer["result"]["isError"]
        assert text_of(answer) == "Not on Sundays."
        answer = await client.call("wants_an_error_answer")
        assert answer["error"] == {"code": -32099, "message": "special", "data": {"a": 1}}


async def test_masked_errors_tell_nothing() -> None:
    app = Server("tools", mask_errors=True)

    @app.tool
    async def fails() -> str:
        raise ValueError("the password is 1234")

    @app.tool
    async def refuses() -> str:
        raise ToolError("meant to be read")

    async with wire(app) as client:
        assert text_of(await client.call("fails")) == "Tool `fails` failed"
        assert text_of(await client.call("refuses")) == "meant to be read"


async def test_an_error_of_a_tool_is_raised_where_the_client_wants_that() -> None:
    app = Server("tools")

    @app.tool
    async def refuses(ctx: Context) -> str:
        raise ToolError("no")

    async with Client(app) as client:
        assert (await client.call_tool("refuses")).is_error
        with pytest.raises(ToolError, match="no"):
            await client.call_tool("refuses", raise_on_error=True)
