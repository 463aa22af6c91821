"""What maps to what: each kind of annotation, its schema, values that fit and that do not."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import gc
import pathlib
import socket
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import annotated_types
import msgspec
import pytest
from msgspec import Meta

from mcpearl.schema import ArgumentsError, SignatureError, compile_signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Circle:
    """A round thing."""

    centre: Point
    radius: float


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    name: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    first_name: str


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    content: T


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}

# annotation, schema, {definitions}, [(JSON, value)], [JSON that does not fit]
CASES: list[Any] = [
    (int, INTEGER, {}, [("1", 1), (str(2**80), 2**80)], ["1.5", '"1"', "true", "null"]),
    (float, {"type": "number"}, {}, [("1", 1.0), ("1.5", 1.5)], ['"1"', "true"]),
    (bool, {"type": "boolean"}, {}, [("true", True)], ["1", '"true"']),
    (str, STRING, {}, [('"a"', "a")], ["1", "null"]),
    (None, NULL, {}, [("null", None)], ["0"]),
    (Any, {}, {}, [('{"a":[1]}', {"a": [1]}), ("null", None)], []),
    (object, {}, {}, [("1", 1)], []),
    (list, {"type": "array"}, {}, [("[1]", [1])], ["{}"]),
    (list[int], {"type": "array", "items": INTEGER}, {}, [("[1]", [1])], ['["a"]']),
    (Sequence[int], {"type": "array", "items": INTEGER}, {}, [("[1]", [1])], ['["a"]']),
    (Iterable[int], {"type": "array", "items": INTEGER}, {}, [("[1]", [1])], ['["a"]']),
    (set[int], {"type": "array", "items": INTEGER}, {}, [("[1,1]", {1})], ['["a"]']),
    (frozenset[str], {"type": "array", "items": STRING}, {}, [('["a"]', frozenset("a"))], ["[1]"]),
    (
        collections.deque[int],
        {"type": "array", "items": INTEGER},
        {},
        [("[1]", collections.deque([1]))],
        ['["a"]'],
    ),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [INTEGER, STRING],
            "items": False,
            "minItems": 2,
            "maxItems": 2,
        },
        {},
        [('[1,"a"]', (1, "a"))],
        ["[1]", '[1,"a",2]'],
    ),
    (tuple[int, ...], {"type": "array", "items": INTEGER}, {}, [("[1]", (1,))], ['["a"]']),
    (dict, {"type": "object"}, {}, [('{"a":1}', {"a": 1})], ["[]"]),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": INTEGER},
        {},
        [('{"a":1}', {"a": 1})],
        ['{"a":"b"}'],
    ),
    (
        Mapping[str, int],
        {"type": "object", "additionalProperties": INTEGER},
        {},
        [('{"a":1}', {"a": 1})],
        ['{"a":"b"}'],
    ),
    (
        dict[int, str],
        {"type": "object", "additionalProperties": STRING},
        {},
        [('{"1":"a"}', {1: "a"})],
        ['{"x":"a"}'],
    ),
    (
        dict[Literal["a", "b"], int],
        {
            "type": "object",
            "additionalProperties": INTEGER,
            "propertyNames": {"type": "string", "enum": ["a", "b"]},
        },
        {},
        [('{"a":1}', {"a": 1})],
        ['{"c":1}'],
    ),
    (
        collections.defaultdict[str, int],
        {"type": "object", "additionalProperties": INTEGER},
        {},
        [('{"a":1}', {"a": 1})],
        ['{"a":"b"}'],
    ),
    (
        collections.Counter[str],
        {"type": "object", "additionalProperties": INTEGER},
        {},
        [('{"a":1}', collections.Counter("a"))],
        ['{"a":"b"}'],
    ),
    (int | None, {"anyOf": [INTEGER, NULL]}, {}, [("null", None), ("1", 1)], ['"a"']),
    (int | str, {"anyOf": [INTEGER, STRING]}, {}, [('"a"', "a"), ("1", 1)], ["null"]),
    (
        Literal["a", "b"],
        {"type": "string", "enum": ["a", "b"]},
        {},
        [('"a"', "a")],
        ['"c"', "1"],
    ),
    (Literal[True], {"type": "boolean", "enum": [True]}, {}, [("true", True)], ["false", "1"]),
    (Literal[Colour.RED], {"type": "string", "enum": ["red"]}, {}, [('"red"', Colour.RED)], ["1"]),
    (Colour, {"type": "string", "enum": ["red", "blue"]}, {}, [('"red"', Colour.RED)], ['"x"']),
    (Level, {"type": "integer", "enum": [1, 2]}, {}, [("2", Level.HIGH)], ["3", '"1"']),
    (Mixed, {"enum": [1, "two"]}, {}, [("1", Mixed.ONE), ('"two"', Mixed.TWO)], ["true", '"1"']),
    (
        Annotated[int, Meta(ge=1, lt=9, multiple_of=2)],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        {},
        [("8", 8)],
        ["0", "3", "9", "10"],
    ),
    (
        Annotated[str, Meta(min_length=1, max_length=3, pattern="^a")],
        {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
        {},
        [('"ab"', "ab")],
        ['""', '"abcd"', '"b"'],
    ),
    (
        Annotated[int, annotated_types.Ge(1), annotated_types.Le(5)],
        {"type": "integer", "minimum": 1, "maximum": 5},
        {},
        [("5", 5)],
        ["0", "6"],
    ),
    (
        Annotated[float, annotated_types.Interval(gt=0, lt=1)],
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {},
        [("0.5", 0.5)],
        ["0", "1"],
    ),
    (
        Annotated[list[int], annotated_types.Len(1, 2)],
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
        {},
        [("[1]", [1])],
        ["[]", "[1,2,3]"],
    ),
    (
        Annotated[int | None, Meta(ge=1, description="How many.")],
        {"anyOf": [{"type": "integer", "minimum": 1}, NULL], "description": "How many."},
        {},
        [("null", None), ("1", 1)],
        ["0"],
    ),
    (Annotated[int, "How many."], {**INTEGER, "description": "How many."}, {}, [("1", 1)], []),
    (
        dt.datetime,
        {"type": "string", "format": "date-time"},
        {},
        [('"2024-01-02T03:04:05Z"', dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC))],
        ['"tomorrow"', "1"],
    ),
    (dt.date, {**STRING, "format": "date"}, {}, [('"2024-01-02"', dt.date(2024, 1, 2))], ['"x"']),
    (dt.time, {**STRING, "format": "time"}, {}, [('"03:04:05"', dt.time(3, 4, 5))], ['"x"']),
    (
        dt.timedelta,
        {"type": "string", "format": "duration"},
        {},
        [('"PT90S"', dt.timedelta(seconds=90))],
        ["90"],
    ),
    (
        uuid.UUID,
        {"type": "string", "format": "uuid"},
        {},
        [('"00000000-0000-0000-0000-000000000001"', uuid.UUID(int=1))],
        ['"x"'],
    ),
    (
        decimal.Decimal,
        {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]},
        {},
        [('"1.10"', decimal.Decimal("1.10")), ("1.5", decimal.Decimal("1.5"))],
        ['"x"', "true"],
    ),
    (
        bytes,
        {"type": "string", "contentEncoding": "base64"},
        {},
        [('"aGk="', b"hi")],
        ['"*"', "1"],
    ),
    (
        pathlib.Path,
        {"type": "string", "format": "path"},
        {},
        [('"a/b"', pathlib.Path("a/b"))],
        ["1"],
    ),
    (Point, {"$ref": "#/$defs/Point"}, {"Point": POINT}, [('{"x":1}', Point(1))], ['{"y":1}']),
    (
        list[Circle],
        {"type": "array", "items": {"$ref": "#/$defs/Circle"}},
        {
            "Circle": {
                "type": "object",
                "description": "A round thing.",
                "properties": {
                    "centre": {"$ref": "#/$defs/Point"},
                    "radius": {"type": "number"},
                },
                "required": ["centre", "radius"],
            },
            "Point": POINT,
        },
        [('[{"centre":{"x":1},"radius":2}]', [Circle(Point(1), 2.0)])],
        ['[{"centre":{"x":"a"},"radius":2}]'],
    ),
    (
        Node,
        {"$ref": "#/$defs/Node"},
        {
            "Node": {
                "type": "object",
                "properties": {
                    "value": INTEGER,
                    "children": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Node"},
                        "default": [],
                    },
                },
                "required": ["value"],
            }
        },
        [('{"value":1,"children":[{"value":2}]}', Node(1, [Node(2)]))],
        ['{"value":1,"children":[{}]}'],
    ),
    (
        Movie,
        {"$ref": "#/$defs/Movie"},
        {
            "Movie": {
                "type": "object",
                "properties": {"name": STRING, "year": INTEGER},
                "required": ["name"],
            }
        },
        [('{"name":"M"}', {"name": "M"})],
        ['{"year":1931}'],
    ),
    (
        Pair,
        {"$ref": "#/$defs/Pair"},
        {
            "Pair": {
                "type": "array",
                "prefixItems": [INTEGER, {"type": "string", "default": "r"}],
                "items": False,
                "minItems": 1,
                "maxItems": 2,
            }
        },
        [("[1]", Pair(1))],
        ["[]", '[1,"a",1]'],
    ),
    (
        Strict,
        {"$ref": "#/$defs/Strict"},
        {
            "Strict": {
                "type": "object",
                "properties": {"firstName": STRING},
                "required": ["firstName"],
                "additionalProperties": False,
            }
        },
        [('{"firstName":"A"}', Strict("A"))],
        ['{"firstName":"A","b":1}', '{"first_name":"A"}'],
    ),
    (
        Box[int],
        {"$ref": "#/$defs/Box_int"},
        {
            "Box_int": {
                "type": "object",
                "properties": {"content": INTEGER},
                "required": ["content"],
            }
        },
        [('{"content":1}', Box(1))],
        ['{"content":"a"}'],
    ),
    (
        Cat | Dog,
        {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        {
            "Cat": {
                "type": "object",
                "properties": {"type": {"type": "string", "enum": ["cat"]}, "lives": INTEGER},
                "required": ["type", "lives"],
            },
            "Dog": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["dog"]},
                    "tricks": {"type": "array", "items": STRING},
                },
                "required": ["type", "tricks"],
            },
        },
        [('{"type":"cat","lives":9}', Cat(9))],
        ['{"lives":9}', '{"type":"cow"}'],
    ),
    # Unions that msgspec alone refuses.
    (
        dt.date | str,
        {"anyOf": [{"type": "string", "format": "date"}, STRING]},
        {},
        [('"2024-01-02"', dt.date(2024, 1, 2)), ('"soon"', "soon")],
        ["1"],
    ),
    (
        list[int] | set[str] | None,
        {
            "anyOf": [
                {"type": "array", "items": INTEGER},
                {"type": "array", "items": STRING},
                NULL,
            ]
        },
        {},
        [("[1]", [1]), ('["a"]', {"a"}), ("null", None)],
        ['[1,"a"]', "1"],
    ),
    (
        list[Point | Node],
        {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Node"}]},
        },
        ...,
        [('[{"x":1},{"value":2}]', [Point(1), Node(2)])],
        ["[{}]", "[1]"],
    ),
]


@pytest.mark.parametrize(
    ("annotation", "schema", "definitions", "good", "bad"), CASES, ids=[str(c[0]) for c in CASES]
)
def test_annotation(annotation, schema, definitions, good, bad):
    def tool(it: annotation) -> None: ...

    tool.__annotations__["it"] = annotation
    compiled = compile_signature(tool)
    expected = {
        "type": "object",
        "properties": {"it": schema},
        "required": ["it"],
        "additionalProperties": False,
    }
    published = dict(compiled.input_schema)
    defs = published.pop("$defs", {})
    assert published == expected
    if definitions is not ...:
        assert defs == definitions
    for raw, value in good:
        decoded = compiled.decode(b'{"it":%s}' % raw.encode()).it
        assert decoded == value
        assert type(decoded) is type(value) or isinstance(decoded, dict)
    for raw in bad:
        with pytest.raises(ArgumentsError, match=r"^argument `it") as raised:
            compiled.decode(b'{"it":%s}' % raw.encode())
        assert raised.value.argument == "it"


PATTERN = Annotated[str, Meta(pattern="^a")]


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (list[int] | PATTERN, ["[1]", '"a"'], ['"b"', "1"]),
        (dict[str, int] | PATTERN | None, ['{"a":1}', '"a"', "null"], ['"b"', "1"]),
        (tuple[int, str] | Annotated[int, Meta(ge=1)], ['[1,"a"]', "1"], ["0", "[1]"]),
        (Annotated[dict[str, int], Meta(max_length=1)] | tuple[int, str], ["{}"], ["[]"]),
        (Annotated[int, Meta(multiple_of=3)] | float, ["3", "1", "1.5"], ['"a"']),
        (int | Annotated[int, Meta(ge=5)], ["1", "7"], ['"a"']),
    ],
    ids=str,
)
def test_unions_that_msgspec_must_not_be_given(annotation, good, bad):
    """Decoders of the first four, made and freed a few times over, end the process."""

    def tool(it): ...

    tool.__annotations__["it"] = annotation
    for _ in range(200):
        compiled = compile_signature(tool)
        for raw in good:
            compiled.decode(b'{"it":%s}' % raw.encode())
        for raw in bad:
            with pytest.raises(ArgumentsError):
                compiled.decode(b'{"it":%s}' % raw.encode())
    gc.collect()


def test_such_a_union_inside_of_a_record_is_refused():
    @dataclasses.dataclass
    class Holder:
        held: list[dict[str, int] | Annotated[str, Meta(pattern="^a")]]

    def tool(it: list[Holder]) -> None: ...

    with pytest.raises(SignatureError, match=r"parameter `it`.*combines a constraint"):
        compile_signature(tool)


def test_no_annotation_is_any_json_value():
    compiled = compile_signature(lambda it: it)
    assert compiled.input_schema["properties"] == {"it": {}}
    assert compiled.decode(b'{"it":[null]}').it == [None]


def test_default_dict_has_its_factory():
    def tool(it: collections.defaultdict[str, list[int]]) -> None: ...

    decoded = compile_signature(tool).decode(b'{"it":{}}').it
    assert decoded["new"] == []


def test_literal_string():
    def tool(it: typing.LiteralString) -> None: ...

    assert compile_signature(tool).input_schema["properties"] == {"it": STRING}


def test_same_name_twice():
    def one():
        @dataclasses.dataclass
        class Point:
            z: str

        return Point

    Other = one()

    def tool(a: Point, b: Other) -> None: ...

    compiled = compile_signature(tool)
    a, b = (each["$ref"] for each in compiled.input_schema["properties"].values())
    assert a != b
    definitions = compiled.input_schema["$defs"]
    assert definitions[a.rpartition("/")[2]] == POINT
    assert definitions[b.rpartition("/")[2]]["required"] == ["z"]


class Plain:
    attribute: int


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (socket.socket, "`socket.socket`, which has no JSON form;"),
        (list[socket.socket], "(because of `socket.socket`)"),
        (complex, "`complex`, which has no JSON form"),
        (Callable[[int], int], "which has no JSON form"),
        (Plain, "test_annotations.Plain`, which has no JSON form"),
        (type, "`type`, which has no JSON form"),
        (Annotated[str, Meta(ge=1)], "which cannot be used"),
        (Annotated[int, Meta(ge=2**63)], "which cannot be used"),
        (Annotated[int, annotated_types.Predicate(callable)], "constraint `Predicate`"),
    ],
    ids=str,
)
def test_unsupported(annotation, says):
    def forecast(city: str, it: int) -> None: ...

    forecast.__annotations__["it"] = annotation
    with pytest.raises(SignatureError) as raised:
        compile_signature(forecast)
    assert str(raised.value).startswith("tool `forecast`: parameter `it` has annotation `")
    assert says in str(raised.value)


def test_unsupported_inside_a_record():
    @dataclasses.dataclass
    class Holder:
        held: socket.socket

    def tool(it: Holder) -> None: ...

    with pytest.raises(SignatureError, match=r"parameter `it`.*because of `socket\.socket`"):
        compile_signature(tool, where="prompt")
