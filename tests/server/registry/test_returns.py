"""What handlers may return besides plain values: files, messages, whole results."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest

from mcpearl import (
    AssistantMessage,
    Audio,
    Client,
    File,
    Image,
    Media,
    Message,
    Server,
    ToolResult,
    UserMessage,
)
from mcpearl.types import CallToolResult, ImageContent, TextContent


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def called(function: Any, **options: Any) -> tuple[Any, Any]:
    """Return a tool's definition and the result of calling it."""
    app = Server("returning")
    app.add_tool(function, name="tool", **options)
    async with Client(app) as client:
        (tool,) = [tool async for tool in client.tools()]
        return tool, await client.call_tool("tool")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [(Image, "a.png", "image/png"), (Image, "a.jpg", "image/jpeg"), (Audio, "a.mp3", "audio/mpeg")],
)
async def test_media_from_a_file(tmp_path: Path, kind, name: str, said: str):
    (tmp_path / name).write_bytes(b"\x89")
    for path in (tmp_path / name, str(tmp_path / name)):
        _, result = await called(lambda path=path: kind(path))
        block = result.content[0]
        assert (block.type, block.data, block.mime_type) == (
            kind.__name__.lower(),
            encoded(b"\x89"),
            said,
        )


@pytest.mark.parametrize(
    ("media", "said"),
    [
        (Image(data=b"1"), "image/png"),
        (Image(data=b"1", format="JPEG"), "image/jpeg"),
        (Audio(data=b"1"), "audio/wav"),
        (Audio(data=b"1", format="mp3"), "audio/mp3"),
    ],
)
def test_media_from_bytes(media: Media, said: str):
    assert media.block().mime_type == said


async def test_a_file_is_text_if_it_is_text(tmp_path: Path):
    (tmp_path / "read me.txt").write_text("hello")
    _, result = await called(lambda: File(tmp_path / "read me.txt"))
    resource = result.content[0].resource
    assert (resource.uri, resource.mime_type) == ("file:///read%20me.txt", "text/plain")
    assert resource.text == "hello"
    _, result = await called(lambda: File(data=b"%PDF", format="pdf"))
    resource = result.content[0].resource
    assert (resource.uri, resource.mime_type) == ("file:///file.pdf", "application/pdf")
    assert resource.blob == encoded(b"%PDF")


def test_media_needs_a_path_or_bytes():
    for arguments in ({}, {"path": "a", "data": b""}):
        with pytest.raises(TypeError, match="`Image` needs either `path` or `data`"):
            Image(**arguments)
    with pytest.raises(TypeError, match=r"`File\(data=…\)` takes bytes, not str"):
        File(data="text")  # type: ignore[arg-type]


async def test_messages_of_a_prompt():
    app = Server("prompting")

    @app.prompt
    def talk(about: str) -> list[Message]:
        return [UserMessage(about), AssistantMessage("Go on."), Message(Image(data=b"1"))]

    async with Client(app) as client:
        result = await client.get_prompt("talk", {"about": "rain"})
    assert [message.role for message in result.messages] == ["user", "assistant", "user"]
    assert result.messages[0].content == TextContent(text="rain")
    assert isinstance(result.messages[2].content, ImageContent)


# Whole results


@dataclass
class Count:
    rows: int


class Model(pydantic.BaseModel):
    status: str
    rows: int = 0


@pytest.mark.parametrize(
    ("given", "text", "structured"),
    [
        (ToolResult("three"), ["three"], None),
        (ToolResult(content="three", structured_content=Count(3)), ["three"], {"rows": 3}),
        (ToolResult(["a", TextContent(text="b")]), ["a", "b"], None),
        (
            ToolResult(structured_content=Model(status="ok")),
            ['{"status":"ok","rows":0}'],
            {"status": "ok", "rows": 0},
        ),
        (ToolResult(), [], None),
    ],
)
async def test_a_result_put_together_by_the_tool(given, text, structured):
    def tool() -> ToolResult:
        return given

    definition, result = await called(tool)
    assert definition.output_schema is None
    assert [block.text for block in result.content] == text
    assert (result.structured_content or None) == structured


async def test_a_result_with_meta_and_error():
    _, result = await called(lambda: ToolResult("no", is_error=True, meta={"took": 1}))
    assert result.is_error
    assert result.meta["took"] == 1


@pytest.mark.parametrize("kind", [CallToolResult, ToolResult])
async def test_the_structured_content_of_a_whole_result_may_be_declared(kind):
    text = [TextContent(type="text", text="fine")]

    def good() -> Annotated[kind, Model]:
        return kind(content=text, structured_content={"status": "ok", "rows": 3})

    def bad() -> Annotated[kind, Model]:
        return kind(content=text, structured_content={"rows": "three"})

    definition, result = await called(good)
    assert definition.output_schema["properties"]["status"] == {"type": "string"}
    assert result.structured_content == {"status": "ok", "rows": 3}
    definition, result = await called(bad)
    assert result.is_error
    assert "does not fit its output schema" in result.content[0].text


@pytest.mark.parametrize("annotation", [list, list[Any], tuple, tuple[Any, ...]])
async def test_a_list_of_anything_may_hold_content(annotation):
    def media():
        return [TextContent(text="x"), Media(b"1", "image/png"), {"a": 1}]

    def data():
        return [1, "a"]

    media.__annotations__["return"] = data.__annotations__["return"] = annotation
    definition, result = await called(media)
    assert definition.output_schema is None
    assert [block.type for block in result.content] == ["text", "image", "text"]
    _, result = await called(data)
    assert result.structured_content == {"result": [1, "a"]}


# What cannot be returned


class Thing:
    pass


async def test_a_value_without_json_form_is_named():
    _, result = await called(lambda: Thing())
    assert result.content[0].text == (
        "`tool` returned an instance of `Thing`, which has no JSON form; use text, numbers, lists, "
        "dicts, or a dataclass, TypedDict, struct or pydantic model"
    )
    _, result = await called(lambda: {"a": [Thing()]})
    assert "returned a `dict` that contains an instance of `Thing`" in result.content[0].text

    def annotated() -> dict[str, Any]:
        return {"image": Media(b"1", "image/png")}

    _, result = await called(annotated)
    assert "is or contains an instance of `Media`, which has no JSON form" in result.content[0].text
