"""Headers mirror the message, value for value, and tools with bad annotations are left out."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.transports.mirrored_headers import ToolHeaders, annotated, decode_value, encode_value
from mcpearl.types.tools import Tool


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        ("file:///path/to/file%20name.txt", "file:///path/to/file%20name.txt"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("a\tb", "=?base64?YQli?="),
        ("a\x7fb", "=?base64?YX9i?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?open", "=?base64?open"),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
    ],
)
def test_values_as_the_specification_encodes_them(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header) == value


@given(st.text())
def test_every_text_travels(text: str) -> None:
    header = encode_value(text)
    assert header.isascii()
    assert header == header.strip()
    assert not any(ord(character) < 32 for character in header)
    assert decode_value(header) == text


@pytest.mark.parametrize(
    "value", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?="]
)
def test_a_badly_wrapped_value_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="not Base64"):
        decode_value(value)


def tool(name: str = "t", **properties: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object", "properties": properties})


def marked(header: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def test_the_values_of_a_call() -> None:
    headers = ToolHeaders()
    inner = {"type": "object", "properties": {"tenant": marked("TenantId")}}
    headers.learn(
        [
            tool(
                region=marked("Region"),
                priority=marked("Priority", "integer"),
                verbose=marked("Verbose", "boolean"),
                method=marked("Method"),
                empty=marked("Empty"),
                inner=inner,
                query={"type": "string"},
            )
        ]
    )
    arguments = {
        "region": "Zürich",
        "priority": -7,
        "verbose": False,
        "method": "x",
        "empty": "",
        "inner": {"tenant": "acme"},
        "query": "no",
    }
    assert sorted(headers.of("t", arguments)) == [
        ("Mcp-Param-Empty", ""),
        ("Mcp-Param-Method", "x"),
        ("Mcp-Param-Priority", "-7"),
        ("Mcp-Param-Region", "=?base64?WsO8cmljaA==?="),
        ("Mcp-Param-TenantId", "acme"),
        ("Mcp-Param-Verbose", "false"),
    ]


@pytest.mark.parametrize(
    "arguments", [{}, {"a": None}, {"a": {}}, {"a": [1]}, {"b": {"c": None}}, {"b": 5}, [], None]
)
def test_what_is_absent_or_null_has_no_header(arguments: Any) -> None:
    headers = ToolHeaders()
    headers.learn([tool(a=marked("A"), b={"type": "object", "properties": {"c": marked("C")}})])
    assert headers.of("t", arguments) == []


def test_a_whole_number_is_written_as_one() -> None:
    headers = ToolHeaders()
    headers.learn([tool(a=marked("A", "integer"))])
    assert headers.of("t", {"a": 42.0}) == [("Mcp-Param-A", "42")]


BAD: dict[str, dict[str, Any]] = {
    "empty": {"a": marked("")},
    "no text": {"a": marked(5)},
    "a space": {"a": marked("My Region")},
    "a colon": {"a": marked("Region:Primary")},
    "not ASCII": {"a": marked("Région")},
    "a control character": {"a": marked("Region\t1")},
    "a line break": {"a": marked("Region\n")},
    "the same twice": {"a": marked("Region"), "b": marked("Region")},
    "the same in another case": {"a": marked("Region"), "b": marked("REGION")},
    "an array": {"a": marked("A", "array")},
    "an object": {"a": marked("A", "object")},
    "null": {"a": marked("A", "null")},
    "a number": {"a": marked("A", "number")},
    "several types": {"a": marked("A", ["string", "null"])},
    "no type": {"a": {"x-mcp-header": "A"}},
    "inside items": {"a": {"type": "array", "items": marked("A")}},
    "inside a list of items": {"a": {"type": "array", "prefixItems": [marked("A")]}},
    "inside anyOf": {"a": {"anyOf": [marked("A"), {"type": "null"}]}},
    "properties below anyOf": {"a": {"anyOf": [{"properties": {"b": marked("A")}}]}},
    "inside not": {"a": {"not": marked("A")}},
    "inside then": {"a": {"if": {}, "then": {"properties": {"b": marked("A")}}}},
    "inside additionalProperties": {"a": {"additionalProperties": marked("A")}},
    "inside patternProperties": {"a": {"patternProperties": {"^x": marked("A")}}},
}


@pytest.mark.parametrize("properties", BAD.values(), ids=BAD)
def test_a_bad_annotation_costs_the_tool(
    properties: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    headers = ToolHeaders()
    good = tool("good", region=marked("Region"))
    with caplog.at_level(logging.WARNING, "mcpearl.http"):
        assert headers.learn([tool("bad", **properties), good]) == [good]
    assert "'bad'" in caplog.text
    assert headers.of("bad", {"a": "x"}) == []
    assert headers.mirrors("good")


@pytest.mark.parametrize(
    "schema",
    [
        marked("A", "object"),
        {"$defs": {"x": marked("A")}},
        {"allOf": [{"properties": {"a": marked("A")}}]},
    ],
)
def test_an_annotation_no_property_leads_to_is_bad(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="properties"):
        annotated(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        None,
        {"properties": None},
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"properties": {"a": {"const": marked("A"), "default": marked("A"), "examples": [marked("")]}}},
        {"properties": {"a": True}, "x-other": marked("A")},
    ],
)  # fmt: skip
def test_what_only_looks_like_an_annotation_is_none(schema: Any) -> None:
    assert annotated(schema) == {}


def test_the_newest_schema_counts() -> None:
    headers = ToolHeaders()
    headers.learn([tool(a=marked("A"))])
    headers.learn([tool(a=marked("B"))])
    assert headers.of("t", {"a": "x"}) == [("Mcp-Param-B", "x")]
    headers.learn([tool(a={"type": "string"})])
    assert not headers.mirrors("t")


def test_the_headers_of_the_tools_learned_last_are_kept_within_the_bound() -> None:
    headers = ToolHeaders(max_bytes=2000)
    schema = {"type": "object", "properties": {"q": {"type": "string", "x-mcp-header": "Q"}}}
    for number in range(100):
        headers.learn([Tool(name=f"t{number}", input_schema=schema)])
    kept = [number for number in range(100) if headers.mirrors(f"t{number}")]
    assert kept
    assert kept == list(range(kept[0], 100))
    assert len(kept) < 40
