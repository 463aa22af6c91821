"""What is published for a return annotation, and what passes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import inspect
import pathlib
import socket
from collections.abc import Awaitable, Coroutine
from typing import Annotated, Any, NamedTuple, Never, TypedDict

import jsonschema_rs
import msgspec
import pytest

from mcpearl.schema import OutputError, SignatureError, compile_output, compile_signature


@dataclasses.dataclass
class Point:
    """Somewhere."""

    x: int
    y: int = 0


@dataclasses.dataclass
class Node:
    children: list[Node]


class Movie(TypedDict):
    name: str


class Pair(NamedTuple):
    left: int
    right: int


class Forecast(msgspec.Struct, rename="camel"):
    wind_speed: float


class Text(msgspec.Struct):
    """Content, as a server would have it."""

    text: str


def compiled(annotation):
    return compile_output(
        annotation, where="tool", name="t", is_content=lambda each: each in (Text, bytes)
    )


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        type(None),
        inspect.Signature.empty,
        Any,
        object,
        Never,
        Text,
        bytes,
        list[Text],
        Text | None,
        list[Text | str],
        tuple[Text, int],
        Annotated[Text, "The text."],
        Awaitable[None],
    ],
    ids=str,
)
def test_nothing_to_publish(annotation):
    assert compiled(annotation) is None


def test_no_annotation():
    def tool(): ...

    assert compiled(compile_signature(tool).returns) is None


INTEGER = {"type": "integer"}

# annotation, schema of the object or of `result`, wrapped, [(value, JSON)], [what does not fit]
CASES: list[Any] = [
    (int, INTEGER, True, [(1, "1"), (-(2**70), str(-(2**70)))], ["1", True, 1.5, None]),
    (bool, {"type": "boolean"}, True, [(True, "true"), (False, "false")], [1, "true"]),
    (str, {"type": "string"}, True, [('a"é\n', '"a\\"é\\n"')], [1, None]),
    (float, {"type": "number"}, True, [(1.5, "1.5"), (2, "2")], [float("nan"), "1"]),
    (int | None, {"anyOf": [INTEGER, {"type": "null"}]}, True, [(None, "null"), (1, "1")], ["1"]),
    (list[int], {"type": "array", "items": INTEGER}, True, [([1], "[1]"), ((1,), "[1]")], [["a"]]),
    (
        set[int],
        {"type": "array", "items": INTEGER, "uniqueItems": True},
        True,
        [({1}, "[1]")],
        [{"a"}],
    ),
    (list[Any], {"type": "array"}, True, [([None], "[null]")], [{}, [socket]]),
    (dict, {"type": "object"}, False, [({"a": 1}, '{"a":1}')], [[], {"a": object()}]),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": INTEGER},
        False,
        [({"a": 1}, '{"a":1}')],
        [{"a": "b"}, 1],
    ),
    (
        Point,
        {
            "type": "object",
            "description": "Somewhere.",
            "properties": {"x": INTEGER, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
        },
        False,
        [(Point(1), '{"x":1,"y":0}'), ({"x": 1}, '{"x":1}')],
        [Point("a"), {"y": 1}, None],
    ),
    (
        Movie,
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        False,
        [({"name": "M"}, '{"name":"M"}')],
        [{}],
    ),
    (
        Forecast,
        {
            "type": "object",
            "properties": {"windSpeed": {"type": "number"}},
            "required": ["windSpeed"],
        },
        False,
        [(Forecast(1.5), '{"windSpeed":1.5}')],
        [Forecast("a"), {"wind_speed": 1}],
    ),
    (
        decimal.Decimal,
        {"type": "string", "format": "decimal"},
        True,
        [(decimal.Decimal("1.10"), '"1.10"')],
        ["x"],
    ),
    (
        dt.datetime,
        {"type": "string"},
        True,
        [(dt.datetime(2024, 1, 2), '"2024-01-02T00:00:00"')],
        [1],
    ),
    (
        pathlib.PurePath,
        {"type": "string", "format": "path"},
        True,
        [(pathlib.PurePath("a"), '"a"')],
        [1],
    ),
    (Awaitable[int], INTEGER, True, [(1, "1")], ["1"]),
    (Coroutine[Any, Any, int], INTEGER, True, [(1, "1")], ["1"]),
]


@pytest.mark.parametrize(
    ("annotation", "schema", "wrapped", "good", "bad"), CASES, ids=[str(c[0]) for c in CASES]
)
def test_annotation(annotation, schema, wrapped, good, bad):
    output = compiled(annotation)
    assert output.wrapped is wrapped
    if wrapped:
        schema = {
            "type": "object",
            "properties": {"result": schema},
            "required": ["result"],
            "x-fastmcp-wrap-result": True,
        }
    assert output.schema == schema
    for value, raw in good:
        expected = f'{{"result":{raw}}}' if wrapped else raw
        assert output.encode(value).decode() == expected
        assert jsonschema_rs.is_valid(output.schema, msgspec.json.decode(output.encode(value)))
    for value in bad:
        with pytest.raises(OutputError, match=r"^tool `t`: the result "):
            output.encode(value)


def test_records_inside_are_defined_once():
    output = compiled(list[Point])
    assert output.schema["properties"]["result"]["items"] == {"$ref": "#/$defs/Point"}
    assert list(output.schema["$defs"]) == ["Point"]


def test_recursive_record():
    output = compiled(Node)
    assert output.schema["type"] == "object"
    assert output.schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert jsonschema_rs.is_valid(
        output.schema, msgspec.json.decode(output.encode(Node([Node([])])))
    )


def test_named_tuple_is_an_array():
    assert compiled(Pair).encode(Pair(1, 2)) == b'{"result":[1,2]}'


def test_error_text():
    with pytest.raises(OutputError) as raised:
        compiled(list[Point]).encode([Point(1), Point("two")])
    assert str(raised.value) == (
        'tool `t`: the result does not fit: `result[1].x`: expected integer, got string "two"'
    )


def test_unsupported():
    with pytest.raises(
        SignatureError, match=r"^tool `t`: return value has annotation `socket\.socket`"
    ):
        compiled(socket.socket)
