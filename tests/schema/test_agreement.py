"""The decoder and the published schema agree: what is accepted validates, what fits is accepted.

Signatures and values are drawn at random; `jsonschema_rs` is the judge.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import pathlib
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta
from typing_extensions import TypedDict

from mcpearl.schema import ArgumentsError, compile_output, compile_signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@dataclasses.dataclass
class Point:
    x: int
    y: float | None = None


class Movie(TypedDict):
    name: str
    colour: Colour


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Wire(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    two_words: Annotated[str, Meta(max_length=3)]


def records(**fields: Any) -> Any:
    return st.fixed_dictionaries(fields)


text = st.text(max_size=4)
integers = st.integers(-(2**70), 2**70)
floats = st.floats(allow_nan=False, allow_infinity=False)
words = st.sampled_from(["red", "two", "1", "2024-01-02", "aGk=", "a", "", "null", "x\n", "٣", "é"])
json_values = st.recursive(
    st.none() | st.booleans() | integers | floats | text | words,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "name", "colour", "twoWords", "1"]), inner)
    ),
    max_leaves=6,
)
instants = st.datetimes(min_value=dt.datetime(1900, 1, 1)).map(lambda at: at.isoformat() + "Z")

# Annotation, and JSON values that fit it.
LEAVES: list[tuple[Any, Any]] = [
    (int, integers),
    (float, floats | st.integers(-(2**53), 2**53)),
    (bool, st.booleans()),
    (str, text),
    (Any, json_values),
    (Annotated[int, Meta(ge=-5, lt=5)], st.integers(-5, 4)),
    (Annotated[int, Meta(multiple_of=3)], st.integers(-30, 30).map(lambda n: 3 * n)),
    (Annotated[float, Meta(gt=0, le=1)], st.floats(0, 1, exclude_min=True)),
    (Annotated[str, Meta(min_length=1, max_length=3)], st.text(min_size=1, max_size=3)),
    (Annotated[str, Meta(pattern=r"^\w\d?$")], st.from_regex(r"\A[a-z][0-9]?\Z")),
    (Annotated[bytes, Meta(min_length=1, max_length=4)], st.just("aGk=")),
    (Literal["red", 1], st.sampled_from(["red", 1])),
    (Literal[True, "two"], st.sampled_from([True, "two"])),
    (Colour, st.sampled_from(["red", "blue"])),
    (Mixed, st.sampled_from([1, "two"])),
    (dt.datetime, instants),
    (dt.date, st.dates().map(str)),
    (dt.time, st.times().map(str)),
    (dt.timedelta, st.integers(0, 9**9).map(lambda n: f"PT{n}S")),
    (uuid.UUID, st.uuids().map(str)),
    (
        decimal.Decimal,
        st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str)
        | st.integers(-99, 99),
    ),
    (bytes, st.binary(max_size=9).map(lambda raw: base64.b64encode(raw).decode())),
    (pathlib.PurePosixPath, text),
    (Point, records(x=integers) | records(x=integers, y=floats | st.none(), z=json_values)),
    (Movie, records(name=text, colour=st.sampled_from(["red", "blue"]))),
    (Pair, st.tuples(integers).map(list) | st.tuples(integers, text).map(list)),
]
STRUCTS: list[tuple[Any, Any]] = [(Wire, records(twoWords=st.text(max_size=3)))]


def composed(inner: Any) -> Any:
    """Containers and unions of what is given."""
    return st.one_of(
        inner.map(lambda of: (list[of[0]], st.lists(of[1], max_size=3))),
        inner.map(lambda of: (dict[str, of[0]], st.dictionaries(text, of[1], max_size=3))),
        inner.map(lambda of: (of[0] | None, of[1] | st.none())),
        inner.map(
            lambda of: (Annotated[list[of[0]], Meta(max_length=2)], st.lists(of[1], max_size=2))
        ),
        st.tuples(inner, inner).map(lambda of: (of[0][0] | of[1][0], of[0][1] | of[1][1])),
        st.tuples(inner, inner).map(
            lambda of: (tuple[of[0][0], of[1][0]], st.tuples(of[0][1], of[1][1]).map(list))
        ),
        st.tuples(inner).map(lambda of: (tuple[of[0][0], ...], st.lists(of[0][1], max_size=2))),
        st.sampled_from(
            [
                (set[int], st.lists(integers, max_size=3)),
                (frozenset[str], st.lists(text, max_size=3)),
                (dict[int, str], st.dictionaries(integers.map(str), text, max_size=2)),
                (
                    dict[Literal["x", "y"], int],
                    st.dictionaries(st.sampled_from("xy"), integers),
                ),
            ]
        ),
    )


plain = st.recursive(st.sampled_from(LEAVES + STRUCTS), composed, max_leaves=4)
with_pydantic = st.recursive(st.sampled_from(LEAVES), composed, max_leaves=4)


def function_of(annotations: list[Any], *, optional: bool) -> Any:
    def tool(**given: Any) -> Any:
        return given

    keyword_only = inspect.Parameter.KEYWORD_ONLY
    tool.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                f"p{at}",
                keyword_only,
                annotation=annotation,
                default=None if optional and at else inspect.Parameter.empty,
            )
            for at, annotation in enumerate(annotations)
        ]
    )
    return tool


def check(draw: Any, drawn: list[tuple[Any, Any]], optional: bool, wrap: Any) -> None:
    compiled = compile_signature(
        function_of([wrap(annotation) for annotation, _ in drawn], optional=optional)
    )
    validator = jsonschema_rs.validator_for(compiled.input_schema)

    fitting = {f"p{at}": draw(values) for at, (_, values) in enumerate(drawn)}
    compiled.decode(msgspec.json.encode(fitting))
    assert validator.is_valid(fitting), list(validator.iter_errors(fitting))

    for name in fitting:
        other = {**fitting, name: draw(json_values)}
        accepted(compiled, validator, other)
    accepted(compiled, validator, {**fitting, "q": 1})
    accepted(compiled, validator, {"p0": fitting["p0"]})


def accepted(compiled: Any, validator: Any, value: Any) -> None:
    """What the decoder accepts, the schema accepts."""
    try:
        compiled.decode(msgspec.json.encode(value))
    except ArgumentsError as error:
        assert str(error)
        return
    assert validator.is_valid(value), (value, compiled.input_schema)


many = settings(
    max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@many
@given(st.data(), st.lists(plain, min_size=1, max_size=3), st.booleans())
def test_msgspec(data, drawn, optional):
    check(data.draw, drawn, optional, lambda annotation: annotation)


@settings(many, max_examples=80)
@given(st.data(), st.lists(with_pydantic, min_size=1, max_size=3), st.booleans())
def test_pydantic(data, drawn, optional):
    check(data.draw, drawn, optional, lambda each: Annotated[each, pydantic.Field()])


@many
@given(st.data(), plain)
def test_output(data, drawn):
    """What is encoded validates against what was published."""
    annotation, values = drawn
    output = compile_output(annotation, where="tool", name="t")
    if output is None:
        assert annotation is Any
        return
    function = compile_signature(function_of([annotation], optional=False))
    value = function.decode(msgspec.json.encode({"p0": data.draw(values)})).p0
    published = jsonschema_rs.validator_for(output.schema)
    content = msgspec.json.decode(output.encode(value))
    assert published.is_valid(content), list(published.iter_errors(content))


@pytest.mark.parametrize("value", ["a\n", "٣", "a٣"])
def test_patterns_mean_what_json_schema_means(value):
    compiled = compile_signature(
        function_of([Annotated[str, Meta(pattern=r"^\w\d?$")]], optional=False)
    )
    assert compiled.input_schema["properties"]["p0"]["pattern"] == r"^\w\d?$"
    assert not jsonschema_rs.is_valid(compiled.input_schema, {"p0": value})
    with pytest.raises(ArgumentsError, match="matching the pattern"):
        compiled.decode(msgspec.json.encode({"p0": value}))
