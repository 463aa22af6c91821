"""Signatures that use pydantic: the same promises, the same words."""

from __future__ import annotations

import dataclasses
import decimal
import socket
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, Field

from mcpearl.schema import ArgumentsError, OutputError, SignatureError, compile_output
from mcpearl.schema import compile_signature as compile_


class Stop(BaseModel):
    """A place to wait."""

    name: str
    lines: list[int] = Field(default=[], description="Numbers.")


class Nested(BaseModel):
    stops: list[Stop]
    inner: Nested | None = None


@dataclasses.dataclass
class Holder:
    stop: Stop


STOP = {
    "type": "object",
    "description": "A place to wait.",
    "properties": {
        "name": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {"type": "integer"},
            "default": [],
            "description": "Numbers.",
        },
    },
    "required": ["name"],
}


def test_schema_and_call():
    def plan(
        stop: Stop,
        days: Annotated[int, Field(ge=1, description="From the annotation.")] = 3,
        tone: str = Field("short", max_length=8),
        copy: bytes = b"",
        *,
        ctx: Any = None,
    ):
        """Plan.

        Args:
            stop: Where.
            days: From the docstring.
        """
        return stop, days, tone, copy, ctx

    compiled = compile_(plan, skip=lambda parameter: parameter.name == "ctx")
    assert compiled.input_schema == {
        "type": "object",
        "properties": {
            "stop": {"$ref": "#/$defs/Stop", "description": "Where."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "default": 3,
                "description": "From the annotation.",
            },
            "tone": {"type": "string", "maxLength": 8, "default": "short"},
            "copy": {"type": "string", "contentEncoding": "base64", "default": ""},
        },
        "required": ["stop"],
        "additionalProperties": False,
        "$defs": {"Stop": STOP},
    }
    raw = msgspec.Raw(b'{"stop":{"name":"a","lines":[1]},"copy":"aGk="}')
    expected = (Stop(name="a", lines=[1]), 3, "short", b"hi", "c")
    assert compiled.call(compiled.decode(raw), {"ctx": "c"}) == expected


def tool(stop: Stop, days: Annotated[int, Field(ge=1)] = 3): ...


@pytest.mark.parametrize(
    ("raw", "says", "argument"),
    [
        (b"{}", "missing required argument `stop`", "stop"),
        (
            b'{"stop":{"name":"a"},"day":1}',
            "unknown argument `day` (allowed: `stop`, `days`)",
            "day",
        ),
        (
            b'{"stop":{"name":"a"},"days":"3"}',
            'argument `days`: expected a valid integer, got string "3"',
            "days",
        ),
        (
            b'{"stop":{"name":"a","lines":[1,"x"]},"days":0}',
            'argument `stop.lines[1]`: expected a valid integer, got string "x"; '
            "argument `days`: expected greater than or equal to 1, got integer 0",
            "stop",
        ),
        (b'{"stop":{}}', "argument `stop`: object missing required field `name`", "stop"),
        (b"[]", "the arguments must be an object, got array", None),
    ],
)
def test_error_text(raw, says, argument):
    with pytest.raises(ArgumentsError) as raised:
        compile_(tool).decode(raw)
    assert str(raised.value) == says
    assert raised.value.argument == argument


def test_malformed_json():
    with pytest.raises(msgspec.DecodeError):
        compile_(tool).decode(b"{x")


@pytest.mark.parametrize(
    "annotation",
    [
        Stop,
        list[Stop],
        Stop | None,
        dict[str, list[Stop]],
        Holder,
        pydantic.AnyUrl,
        Annotated[int, Field(ge=1)],
        list[Annotated[int, Field(ge=1)]],
        Annotated[int, pydantic.BeforeValidator(int)],
    ],
    ids=str,
)
def test_recognised(annotation):
    def tool(it: int): ...

    tool.__annotations__["it"] = annotation
    decoded = compile_(tool)._compiled
    assert type(decoded).__name__ == "PydanticArguments"


def test_field_as_default():
    def tool(a: int = Field(ge=1), b: int = Field(2, description="B."), c: int = Field(alias="C")):
        return a, b, c

    compiled = compile_(tool)
    assert compiled.input_schema["properties"] == {
        "a": {"type": "integer", "minimum": 1},
        "b": {"type": "integer", "default": 2, "description": "B."},
        "C": {"type": "integer"},
    }
    assert compiled.input_schema["required"] == ["a", "C"]
    assert compiled.call(compiled.decode(b'{"a":1,"C":3}'), None) == (1, 2, 3)


def test_msgspec_constraints_hold_too():
    def tool(
        stop: Stop, n: Annotated[int, msgspec.Meta(ge=1, description="N.")], s: Annotated[str, "S."]
    ): ...

    compiled = compile_(tool)
    properties = compiled.input_schema["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "description": "N."}
    assert properties["s"] == {"type": "string", "description": "S."}
    with pytest.raises(ArgumentsError, match="argument `n`"):
        compiled.decode(b'{"stop":{"name":"a"},"n":0,"s":""}')


def test_keyword_arguments():
    def tool(stop: Stop, **rest: int):
        return stop.name, rest

    compiled = compile_(tool)
    assert compiled.input_schema["additionalProperties"] == {"type": "integer"}
    assert compiled.call(compiled.decode(b'{"stop":{"name":"a"},"x":1}'), None) == ("a", {"x": 1})
    with pytest.raises(ArgumentsError, match="argument `x`: expected a valid integer"):
        compiled.decode(b'{"stop":{"name":"a"},"x":"1"}')


def test_names_that_models_have_themselves():
    def tool(stop: Stop, copy: int, json: int, model_config: int, schema: int, _private: int):
        return copy, json, model_config, schema, _private

    compiled = compile_(tool)
    raw = b'{"stop":{"name":"a"},"copy":1,"json":2,"model_config":3,"schema":4,"_private":5}'
    assert compiled.call(compiled.decode(raw), None) == (1, 2, 3, 4, 5)


def test_none_as_default_and_sets():
    def tool(stop: Stop = None, many: set[int] = frozenset()):
        return stop, many

    compiled = compile_(tool)
    assert compiled.input_schema["properties"]["stop"] == {
        "anyOf": [{"$ref": "#/$defs/Stop"}, {"type": "null"}],
        "default": None,
    }
    assert "uniqueItems" not in compiled.input_schema["properties"]["many"]
    assert compiled.call(compiled.decode(b'{"stop":null,"many":[1,1]}'), None) == (None, {1})


def test_decode_strings_and_bind():
    def tool(stop: Stop, days: int):
        return stop, days

    compiled = compile_(tool)
    expected = (Stop(name="a"), 3)
    decoded = compiled.decode_strings({"stop": '{"name":"a"}', "days": "3"})
    assert compiled.call(decoded, None) == expected
    assert compiled.call(compiled.bind({"stop": {"name": "a"}, "days": 3}), None) == expected


def test_validators_of_the_author_are_heard():
    class Even(BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("must be even")
            return n

    def tool(it: Even): ...

    with pytest.raises(ArgumentsError, match=r"^argument `it\.n`: must be even, got integer 3$"):
        compile_(tool).decode(b'{"it":{"n":3}}')


def test_unsupported():
    def tool(stop: Stop, it: socket.socket): ...

    with pytest.raises(SignatureError, match=r"tool `tool`: parameter `it` .*`socket\.socket`"):
        compile_(tool)


# --- results -----------------------------------------------------------------------------------


def test_output_of_a_model():
    output = compile_output(Stop, where="tool", name="t")
    assert output.wrapped is False
    assert output.schema["type"] == "object"
    assert output.schema["properties"]["name"] == {"type": "string"}
    assert output.encode(Stop(name="a")) == b'{"name":"a","lines":[]}'
    assert output.encode({"name": "a"}) == b'{"name":"a","lines":[]}'
    with pytest.raises(
        OutputError, match="tool `t`: the result does not fit: `result`: object missing"
    ):
        output.encode({})


def test_output_of_a_recursive_model():
    output = compile_output(Nested, where="tool", name="t")
    assert output.schema["type"] == "object"
    assert set(output.schema["$defs"]) == {"Nested", "Stop"}


def test_output_of_models_in_a_list():
    output = compile_output(list[Stop], where="tool", name="t")
    assert output.wrapped is True
    items = {"type": "array", "items": {"$ref": "#/$defs/Stop"}}
    assert output.schema["properties"] == {"result": items}
    assert output.encode([Stop(name="a")]) == b'{"result":[{"name":"a","lines":[]}]}'


def test_output_of_a_model_that_no_longer_fits():
    stop = Stop(name="a")
    stop.name = 3  # type: ignore[assignment]
    with pytest.raises(OutputError, match="tool `t`"):
        compile_output(Stop, where="tool", name="t").encode(stop)


def test_output_with_aliases_and_decimals():
    class Price(BaseModel):
        amount: decimal.Decimal = Field(alias="theAmount")

    output = compile_output(Price, where="tool", name="t")
    assert list(output.schema["properties"]) == ["theAmount"]
    assert output.encode(Price(theAmount="1.5")) == b'{"theAmount":"1.5"}'


def test_output_unsupported():
    def inner() -> Annotated[socket.socket, Field()]: ...

    with pytest.raises(SignatureError, match="tool `inner`: return value"):
        compile_output(compile_(inner).returns, where="tool", name="inner")
