"""Tools, their calls and their results."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mcpearl.types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    TaskMetadata,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolExecution,
    decode,
    encode,
)
from mcpearl.types.base import Wire


def test_a_tool_on_the_wire() -> None:
    tool = Tool(
        name="add",
        input_schema={"type": "object"},
        output_schema={"type": "integer"},
        annotations=ToolAnnotations(read_only_hint=True),
        execution=ToolExecution(task_support="optional"),
    )
    wire = {
        "name": "add",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "integer"},
        "annotations": {"readOnlyHint": True},
        "execution": {"taskSupport": "optional"},
    }
    assert json.loads(encode(tool)) == wire
    assert decode(Tool, encode(tool)) == tool


def test_arguments_stay_json() -> None:
    params = decode(CallToolRequestParams, b'{"name":"add","arguments":{"a": 1, "b": 2}}')
    assert isinstance(params.arguments, msgspec.Raw)
    assert bytes(params.arguments) == b'{"a": 1, "b": 2}'
    assert encode(params) == b'{"name":"add","arguments":{"a": 1, "b": 2}}'


def test_arguments_that_were_not_given_are_unset() -> None:
    params = decode(CallToolRequestParams, b'{"name":"now"}')
    assert params.arguments is msgspec.UNSET
    assert encode(params) == b'{"name":"now"}'


def test_a_call_as_a_task() -> None:
    params = CallToolRequestParams(
        name="add", arguments=msgspec.Raw(b"{}"), task=TaskMetadata(ttl=5)
    )
    assert json.loads(encode(params)) == {"name": "add", "arguments": {}, "task": {"ttl": 5}}


@pytest.mark.parametrize("value", [b"0", b'"x"', b"[]", b'{"a":null}'])
def test_structured_content_is_any_json(value: bytes) -> None:
    wire = b'{"content":[],"structuredContent":' + value + b"}"
    assert encode(decode(CallToolResult, wire)) == wire


def test_no_structured_content_is_none() -> None:
    for wire in (b'{"content":[]}', b'{"content":[],"structuredContent":null}'):
        assert decode(CallToolResult, wire).structured_content is None
    assert encode(CallToolResult(content=[], structured_content=None)) == b'{"content":[]}'


def test_a_null_can_be_sent_all_the_same() -> None:
    result = CallToolResult(content=[], structured_content=msgspec.Raw(b"null"))
    assert encode(result) == b'{"content":[],"structuredContent":null}'


def test_the_text_of_a_result() -> None:
    image = ImageContent(data="", mime_type="image/png")
    result = CallToolResult(content=[TextContent(text="a"), image, TextContent(text="b")])
    assert result.text == "a\nb"
    assert CallToolResult(content=[image]).text == ""


def test_lists_are_sequences_of_what_they_list() -> None:
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in "ab"]
    page = ListToolsResult(tools=tools, next_cursor="c")
    assert list(page) == tools
    assert len(page) == 2
    assert page[-1].name == "b"
    assert ListToolsResult(tools=[])  # a page is there, even if it is empty
    contents = ReadResourceResult(contents=[TextResourceContents(uri="a:b", text="x")])
    assert contents[0].text == "x"
    assert len(ListPromptsResult(prompts=[])) == len(ListResourcesResult(resources=[])) == 0
    assert list(ListResourceTemplatesResult(resource_templates=[])) == []


def test_a_value_as_plain_json() -> None:
    result = CallToolResult(content=[TextContent(text="a")], extra={"own": 1})
    assert result.to_dict() == {"content": [{"type": "text", "text": "a"}], "own": 1}


def _types(base: type[Wire]) -> Iterator[type[Wire]]:
    for type_ in base.__subclasses__():
        yield type_
        yield from _types(type_)


@pytest.mark.parametrize("type_", list(_types(Wire)), ids=lambda type_: type_.__name__)
def test_every_member_can_be_read_under_its_name_in_json(type_: Any) -> None:
    for own, written in zip(type_.__struct_fields__, type_.__struct_encode_fields__, strict=True):
        if written.isidentifier():
            assert getattr(type_, written) is getattr(type_, own), written


def test_members_can_be_read_under_the_names_of_the_specification() -> None:
    tool: Any = Tool(name="a", input_schema={"type": "object"}, meta={"b": 1})
    assert tool.inputSchema == {"type": "object"}
    assert tool._meta == {"b": 1}
    with pytest.raises(AttributeError, match="'Tool' object has no attribute 'inputschema'"):
        _ = tool.inputschema
