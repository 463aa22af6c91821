"""Tools, their calls and their results."""

import json

import msgspec
import pytest

from mcpearl.types import (
    CallToolRequestParams,
    CallToolResult,
    TaskMetadata,
    Tool,
    ToolAnnotations,
    ToolExecution,
    decode,
    encode,
)


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


@pytest.mark.parametrize("value", [b"null", b"0", b'"x"', b"[]", b'{"a":null}'])
def test_structured_content_is_any_json(value: bytes) -> None:
    wire = b'{"content":[],"structuredContent":' + value + b"}"
    assert encode(decode(CallToolResult, wire)) == wire


def test_no_structured_content_is_not_null() -> None:
    assert decode(CallToolResult, b'{"content":[]}').structured_content is msgspec.UNSET
