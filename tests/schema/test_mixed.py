"""Constraints and descriptions of every library, at every depth, in arguments and results."""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import annotated_types as at
import attrs
import msgspec
import pydantic
import pytest
from msgspec import Meta
from typing_extensions import TypeAliasType

from mcpearl.schema import (
    ArgumentsError,
    OutputError,
    SchemaMismatch,
    SignatureError,
    compile_output,
    compile_schema,
    compile_signature,
)

WORDS = {
    "meta": Annotated[int, Meta(ge=1, description="how many")],
    "annotated_types": Annotated[int, at.Ge(1), "how many"],
    "pydantic": Annotated[int, pydantic.Field(ge=1, description="how many")],
    "mixed": Annotated[int, pydantic.Field(ge=1), "how many"],
    "mixed too": Annotated[int, Meta(ge=1), pydantic.Field(description="how many")],
    "interval": Annotated[int, at.Interval(ge=1), Meta(description="how many")],
}


class Model(pydantic.BaseModel):
    name: str = "m"


def record(kind: str, count: Any) -> Any:
    """Make a record of a kind with one field that has this annotation."""
    match kind:
        case "dataclass":
            return dataclass(type("Part", (), {"__annotations__": {"count": count}}))
        case "typed dict":
            return TypedDict("Part", {"count": count})
        case "named tuple":
            return NamedTuple("Part", [("count", count)])
        case "struct":
            return msgspec.defstruct("Part", [("count", count)])
        case "attrs":
            return attrs.define(type("Part", (), {"__annotations__": {"count": count}}))
    raise AssertionError(kind)


def signature_with(part: Any, *, beside_a_model: bool) -> Any:
    def tool(part: Any, parts: Any = None, model: Any = None) -> Any:
        return part, parts, model

    tool.__annotations__ = {"part": part, "parts": list[list[part]] | None}
    tool.__annotations__["model"] = (Model if beside_a_model else int) | None
    return compile_signature(tool)


KINDS = ["dataclass", "typed dict", "named tuple", "struct", "attrs"]
OF_PYDANTIC = {"pydantic", "mixed", "mixed too"}
RECORDS = [
    (kind, words)
    for kind in KINDS
    for words in WORDS
    if kind != "attrs" or words not in OF_PYDANTIC  # which does not take attrs classes
]


@pytest.mark.parametrize(
    ("kind", "words", "beside_a_model"),
    [
        (kind, words, beside_a_model)
        for kind, words in RECORDS
        for beside_a_model in (False, True)
        if kind != "attrs" or not beside_a_model
    ],
)
def test_fields_of_records_say_the_same_in_every_library(kind, words, beside_a_model):
    part = record(kind, WORDS[words])
    signature = signature_with(part, beside_a_model=beside_a_model)
    definition = signature.input_schema["$defs"]["Part"]
    field = (
        definition["prefixItems"][0] if kind == "named tuple" else definition["properties"]["count"]
    )
    assert field == {"type": "integer", "minimum": 1, "description": "how many"}

    def written(count: int) -> str:
        return f"[{count}]" if kind == "named tuple" else f'{{"count":{count}}}'

    good = f'{{"part":{written(1)},"parts":[[{written(2)}]]}}'.encode()
    value, parts, _ = signature.call(signature.decode(good), None)
    assert type(value) is (dict if kind == "typed dict" else part)
    assert (value["count"] if kind == "typed dict" else value.count) == 1
    assert type(parts[0][0]) is type(value)
    for bad in (
        f'{{"part":{written(0)}}}',
        f'{{"part":{written(1)},"parts":[[{written(0)}]]}}',
    ):
        with pytest.raises(ArgumentsError, match="1, got integer 0") as refused:
            signature.decode(bad.encode())
        assert "part" in str(refused.value)


@pytest.mark.parametrize(("kind", "words"), RECORDS)
def test_results_are_held_to_the_same(kind, words):
    part = record(kind, WORDS[words])
    output = compile_output(list[part], where="tool", name="parts")
    raw = output.encode([part(count=1)])
    assert raw == (b'{"result":[[1]]}' if kind == "named tuple" else b'{"result":[{"count":1}]}')
    compile_schema(output.schema, where="output").check_json(raw)
    with pytest.raises(OutputError, match="1, got integer 0"):
        output.encode([part(count=0)])


@dataclass
class Inner:
    size: Annotated[int, at.Gt(0), "the size"] = 1
    tags: list[Annotated[str, at.MinLen(2)]] = field(default_factory=lambda: ["ab"])


@dataclass
class Outer:
    """What holds it."""

    inner: Inner
    later: list[Outer] | None = None


@pytest.mark.parametrize("beside_a_model", [False, True])
def test_records_in_records_and_in_themselves(beside_a_model):
    signature = signature_with(Outer, beside_a_model=beside_a_model)
    raw = b'{"part":{"inner":{},"later":[{"inner":{"size":2,"tags":["xy"]}}]}}'
    value, _, _ = signature.call(signature.decode(raw), None)
    assert value == Outer(Inner(1, ["ab"]), [Outer(Inner(2, ["xy"]))])
    assert signature.input_schema["$defs"]["Outer"]["description"] == "What holds it."
    assert set(signature.input_schema["$defs"]) >= {"Outer", "Inner"}
    with pytest.raises(ArgumentsError, match=r"`part.later\[0\].inner.tags\[0\]`"):
        signature.decode(b'{"part":{"inner":{},"later":[{"inner":{"tags":["x"]}}]}}')


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T
    count: Annotated[int, at.Ge(1)] = 1


def test_a_generic_record():
    signature = signature_with(Box[str], beside_a_model=False)
    value, _, _ = signature.call(signature.decode(b'{"part":{"content":"x"}}'), None)
    assert value == Box("x")
    with pytest.raises(ArgumentsError, match="expected string, got integer 3"):
        signature.decode(b'{"part":{"content":3}}')


class Renamed(msgspec.Struct, rename="camel", tag="r", forbid_unknown_fields=True):
    full_name: Annotated[str, "all of it"]


@pytest.mark.parametrize("beside_a_model", [False, True])
def test_a_struct_keeps_its_names(beside_a_model):
    signature = signature_with(Renamed, beside_a_model=beside_a_model)
    assert signature.input_schema["$defs"]["Renamed"]["properties"]["fullName"] == {
        "type": "string",
        "description": "all of it",
    }
    raw = b'{"part":{"type":"r","fullName":"A"}}'
    value, _, _ = signature.call(signature.decode(raw), None)
    assert value == Renamed(full_name="A")


class Optionally(TypedDict):
    need: Annotated[str, "this"]
    may: NotRequired[Annotated[int, at.Le(5)]]


@pytest.mark.parametrize("beside_a_model", [False, True])
def test_fields_that_may_be_absent_stay_absent(beside_a_model):
    signature = signature_with(Optionally, beside_a_model=beside_a_model)
    assert signature.input_schema["$defs"]["Optionally"]["required"] == ["need"]
    value, _, _ = signature.call(signature.decode(b'{"part":{"need":"x"}}'), None)
    assert value == {"need": "x"}
    with pytest.raises(ArgumentsError, match="5, got integer 6"):
        signature.decode(b'{"part":{"need":"x","may":6}}')


def test_a_time_zone_is_asked_for_beside_a_model():
    def meet(when: Annotated[datetime, Meta(tz=True)], model: Model) -> None: ...

    signature = compile_signature(meet)
    signature.decode(b'{"when":"2026-01-01T10:00:00Z","model":{}}')
    with pytest.raises(ArgumentsError, match="expected a time with a zone"):
        signature.decode(b'{"when":"2026-01-01T10:00:00","model":{}}')


class Mistaken(pydantic.BaseModel):
    count: Annotated[int, Meta(ge=1)]


class Deeper(pydantic.BaseModel):
    counts: list[Annotated[int, Meta(ge=1)]]


@pytest.mark.parametrize("model", [Mistaken, Deeper])
def test_what_a_model_cannot_honour_is_refused(model):
    def tool(it) -> None: ...

    tool.__annotations__["it"] = model
    with pytest.raises(SignatureError, match="pydantic does not apply") as refused:
        compile_signature(tool)
    assert "write it as `pydantic.Field(…)`" in str(refused.value)


@dataclass
class Odd:
    size: Annotated[int, at.Predicate(lambda value: value % 2 == 1)]


def test_a_constraint_without_json_form_is_refused_inside_a_record():
    with pytest.raises(SignatureError, match="the constraint `Predicate` has no JSON form"):
        signature_with(Odd, beside_a_model=False)


def test_a_record_that_says_nothing_foreign_is_left_as_it_is():
    from mcpearl.schema.adapt import Adapter

    @dataclass
    class Plain:
        count: Annotated[int, Meta(ge=1)]
        names: list[str]

    plain_tuple = namedtuple("Pair", "a b")
    adapt = Adapter().adapt
    assert adapt(Plain) is Plain
    assert adapt(list[Plain]) == list[Plain]
    assert adapt(plain_tuple) is plain_tuple


Item = TypeVar("Item")
Age = TypeAliasType("Age", Annotated[int, at.Ge(0), "in years"])
Pair = TypeAliasType("Pair", tuple[Item, Annotated[int, at.Le(5)]], type_params=(Item,))


def of_aliases(age: Age, pair: Pair[str] | None = None) -> Any:
    return age, pair


def test_aliases():
    signature = holds_to_the_aliases(of_aliases)
    assert signature.call(signature.decode(b'{"age":3,"pair":["x",5]}'), None) == (3, ("x", 5))


Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Tree = TypeAliasType("Tree", dict[str, "Tree"] | int)
Nested = TypeAliasType("Nested", "list[Nested[Item]] | Item", type_params=(Item,))


def of_recursive_aliases(json: Any, tree: Any, nested: Any) -> Any:
    return json


@pytest.mark.parametrize(
    "annotations",
    [
        {"json": Json, "tree": Tree, "nested": Nested[int]},
        {"json": "Json", "tree": "Tree", "nested": "Nested[int]"},
    ],
    ids=["direct", "as text"],
)
def test_aliases_that_name_themselves_in_text(
    annotations: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(of_recursive_aliases, "__annotations__", annotations)
    signature = compile_signature(of_recursive_aliases)
    raw = b'{"json":{"a":[1,"x",null]},"tree":{"a":{"b":1}},"nested":[[1],2]}'
    assert signature.call(signature.decode(raw), None) == {"a": [1, "x", None]}
    published = compile_schema(signature.input_schema, where="input")
    published.check_json(raw)
    right = msgspec.json.decode(raw)
    for wrong in ({"json": {"a": [1.5]}}, {"tree": {"a": {"b": "x"}}}, {"nested": [["x"]]}):
        unfit = msgspec.json.encode({**right, **wrong})
        with pytest.raises(ArgumentsError):
            signature.decode(unfit)
        with pytest.raises(SchemaMismatch):
            published.check_json(unfit)


def test_an_alias_that_names_itself_in_text_is_a_result_too():
    output = compile_output(Json, where="tool", name="it")
    assert output is not None
    assert output.encode({"a": [1, None]}) == b'{"result":{"a":[1,null]}}'
    with pytest.raises(OutputError):
        output.encode({"a": [1.5]})


def test_an_alias_in_a_function_may_name_itself_in_text():
    Chain = TypeAliasType("Chain", "list[Chain]")

    def tool(chain: Chain) -> Any:
        return chain

    signature = compile_signature(tool)
    assert signature.call(signature.decode(b'{"chain":[[],[[]]]}'), None) == [[], [[]]]


def test_a_name_in_the_text_of_an_alias_that_is_not_there_is_named():
    def tool(value: Any) -> Any:
        return value

    alias: Any = TypeAliasType
    tool.__annotations__["value"] = alias("Missing", "list[NoSuchName]")
    with pytest.raises(SignatureError, match=r"alias `Missing` cannot be resolved.*NoSuchName"):
        compile_signature(tool)


if sys.version_info >= (3, 12):  # where `type` is a statement

    def test_aliases_of_the_statement():
        names: dict[str, Any] = {"Annotated": Annotated, "at": at}
        exec(
            "type Age = Annotated[int, at.Ge(0), 'in years']\n"
            "type Tree = dict[str, Tree] | int\n"
            "type Pair[T] = tuple[T, Annotated[int, at.Le(5)]]\n"
            "def tool(age: Age, tree: Tree = 0, pair: Pair[str] | None = None): return age, tree, pair",
            names,
        )
        signature = holds_to_the_aliases(names["tool"])
        raw = b'{"age":3,"tree":{"a":{"b":1}},"pair":["x",5]}'
        assert signature.call(signature.decode(raw), None) == (3, {"a": {"b": 1}}, ("x", 5))
        compile_schema(signature.input_schema, where="input").check_json(raw)
        with pytest.raises(ArgumentsError):
            signature.decode(b'{"age":1,"tree":{"a":{"b":"x"}}}')


def holds_to_the_aliases(tool: Any) -> Any:
    """Return the signature of a tool whose arguments are named by `Age` and `Pair`."""
    signature = compile_signature(tool)
    properties = signature.input_schema["properties"]
    assert properties["age"] == {"type": "integer", "minimum": 0, "description": "in years"}
    compile_schema(signature.input_schema, where="input").check_json(b'{"age":3,"pair":["x",5]}')
    for wrong in (b'{"age":-1}', b'{"age":1,"pair":["x",6]}'):
        with pytest.raises(ArgumentsError):
            signature.decode(wrong)
    return signature


class Measured(pydantic.BaseModel):
    value: float
    note: str | None = None


@dataclass
class Measurement:
    values: list[float]


@pytest.mark.parametrize(
    ("annotation", "value", "place"),
    [
        (float, float("nan"), "`result`: nan"),
        (list[float], [1.0, float("inf")], "`result[1]`: inf"),
        (Measurement, Measurement([float("-inf")]), "`result.values[0]`: -inf"),
        (Measured, Measured(value=float("nan")), "`result.value`: nan"),
    ],
)
def test_numbers_that_json_does_not_have_are_named(annotation, value, place):
    output = compile_output(annotation, where="tool", name="measure")
    with pytest.raises(OutputError) as refused:
        output.encode(value)
    assert str(refused.value) == (
        f"tool `measure`: the result does not fit: {place} has no JSON form; return None instead, "
        "with `float | None` as its annotation"
    )


def test_none_beside_a_number_is_fine():
    output = compile_output(Measured, where="tool", name="measure")
    assert output.encode(Measured(value=1.5)) == b'{"value":1.5,"note":null}'
