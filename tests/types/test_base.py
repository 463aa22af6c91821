"""The struct bases, and reading and writing with them."""

import json

import msgspec
import pytest

from mcpearl.types import (
    CallToolResult,
    EmptyResult,
    Implementation,
    InitializeResult,
    ListToolsResult,
    RequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
    convert,
    decode,
    encode,
    to_builtins,
)


def test_members_are_camel_case_and_defaults_stay_home() -> None:
    info = Implementation(name="a", version="1", website_url="https://a.example")
    assert json.loads(encode(info)) == {
        "name": "a",
        "version": "1",
        "websiteUrl": "https://a.example",
    }


def test_meta_has_an_underscore_on_the_wire() -> None:
    assert encode(RequestParams(meta={"progressToken": 7})) == b'{"_meta":{"progressToken":7}}'
    assert decode(RequestParams, b'{"_meta":{"a":null}}').meta == {"a": None}


def test_an_explicit_false_survives() -> None:
    wire = b'{"taskSupport":"optional"}'
    hints = b'{"readOnlyHint":false}'
    assert encode(decode(ToolAnnotations, hints)) == hints
    assert encode(decode(ToolExecution, wire)) == wire


def test_a_result_is_no_error_unless_it_says_so() -> None:
    for wire in (b'{"content":[]}', b'{"content":[],"isError":false}'):
        result = decode(CallToolResult, wire)
        assert result.is_error is False
        assert encode(result) == b'{"content":[]}'


def test_an_explicit_null_means_absent() -> None:
    assert encode(decode(CallToolResult, b'{"content":[],"isError":null,"_meta":null}')) == (
        b'{"content":[]}'
    )


def test_a_result_keeps_members_it_does_not_know() -> None:
    wire = {"content": [{"type": "text", "text": "x"}], "vendor": {"a": [1, None]}, "b": None}
    result = decode(CallToolResult, json.dumps(wire).encode())
    assert result.extra == {"vendor": {"a": [1, None]}, "b": None}
    assert result.content == [TextContent(text="x")]
    assert json.loads(encode(result)) == wire
    assert to_builtins(result) == wire


def test_an_empty_result_keeps_members_too() -> None:
    assert encode(decode(EmptyResult, b'{"a":1}')) == b'{"a":1}'
    assert encode(EmptyResult()) == b"{}"


def test_a_member_named_like_the_place_for_extras_is_an_extra() -> None:
    wire = b'{"content":[],"*":{"isError":true}}'
    result = decode(CallToolResult, wire)
    assert result.extra == {"*": {"isError": True}}
    assert result.is_error is False
    assert encode(result) == wire


def test_extras_do_not_override_what_the_result_says() -> None:
    result = CallToolResult(content=[], is_error=True, extra={"isError": False, "a": 1})
    assert encode(result) == b'{"content":[],"isError":true,"a":1}'
    assert to_builtins(result) == {"content": [], "isError": True, "a": 1}


def test_extras_that_are_all_known_add_nothing() -> None:
    assert encode(CallToolResult(content=[], extra={"content": 1})) == b'{"content":[]}'


def test_writing_leaves_the_extras_where_they_are() -> None:
    result = CallToolResult(content=[], extra={"a": 1})
    encode(result)
    assert result.extra == {"a": 1}


def test_what_is_not_open_drops_what_it_does_not_know() -> None:
    tool = decode(Tool, b'{"name":"a","inputSchema":{"type":"object"},"vendor":1}')
    assert encode(tool) == b'{"name":"a","inputSchema":{"type":"object"}}'


def test_unknown_members_below_a_result_are_no_error() -> None:
    raw = b'{"tools":[{"name":"a","inputSchema":{"type":"object"},"vendor":1}],"nextCursor":"c"}'
    result = decode(ListToolsResult, raw)
    assert [tool.name for tool in result.tools] == ["a"]
    assert result.extra == {}


def test_convert_reads_what_is_already_decoded() -> None:
    wire = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "s", "version": "1"},
        "own": 1,
    }
    result = convert(InitializeResult, wire)
    assert result.capabilities.tools is not None
    assert result.capabilities.tools.list_changed is True
    assert result.extra == {"own": 1}
    assert to_builtins(result) == wire


@pytest.mark.parametrize("raw", [memoryview(b'{"a":1}'), bytearray(b'{"a":1}')])
def test_decode_reads_any_buffer(raw: memoryview | bytearray) -> None:
    assert decode(EmptyResult, raw).extra == {"a": 1}


def test_decode_reads_raw_json() -> None:
    assert decode(Implementation, msgspec.Raw(b'{"name":"a","version":"1"}')).name == "a"
    assert decode(EmptyResult, msgspec.Raw(b'{"a":1}')).extra == {"a": 1}


@pytest.mark.parametrize("type_", [CallToolResult, Tool])
@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"content":[}', b'{"name":"a","inputSchema":{},"content":[]}}', b"\xff"],
)
def test_what_is_not_json_is_a_decode_error(type_: type, raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decode(type_, raw)
    assert not isinstance(caught.value, msgspec.ValidationError)


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b"{}", "content"),
        (b"[]", "object"),
        (b'{"content":[{"type":"hologram"}]}', "hologram"),
        (b'{"content":[{"type":"text"}],"own":1}', "text"),
        (b'{"content":[],"isError":"yes"}', "isError"),
    ],
)
def test_the_wrong_shape_is_a_validation_error_that_says_where(raw: bytes, where: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=where):
        decode(CallToolResult, raw)


def test_nesting_without_end_is_a_recursion_error() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(RecursionError):
        decode(CallToolResult, b'{"content":[],"structuredContent":' + deep + b"}")


@pytest.mark.parametrize("filler", ["", "x" * 5000], ids=["short", "long"])
def test_numbers_mean_the_same_in_short_and_long_messages(filler: str) -> None:
    numbers = ["1.5", "-0.0", "1e5", "1E-7", "8.988465674311580e307", "5e-324", "1e-400", "3"]
    raw = f'{{"content":[],"structuredContent":{{"a":"{filler}","n":[{",".join(numbers)}]}}}}'
    found = decode(CallToolResult, raw.encode()).structured_content
    assert found is not None
    assert [repr(number) for number in found["n"]] == [repr(json.loads(n)) for n in numbers]
    for wrong in ("1e400", "-1e999"):
        with pytest.raises(msgspec.DecodeError, match="out of range"):
            decode(CallToolResult, raw.replace("1e5", wrong).encode())
