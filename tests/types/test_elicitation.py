"""Elicitation: forms, addresses and answers."""

import json
from typing import Any

import msgspec
import pytest

from mcpearl.types import (
    BooleanSchema,
    ElicitRequestParams,
    ElicitResult,
    EnumOption,
    LegacyTitledEnumSchema,
    NumberSchema,
    RequestedSchema,
    StringSchema,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UntitledItems,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
    decode,
    encode,
    primitive_schema,
    schema_defaults,
)

KINDS: list[tuple[dict[str, Any], Any]] = [
    (
        {"type": "string", "minLength": 1, "format": "email"},
        StringSchema(min_length=1, format="email"),
    ),
    ({"type": "number", "minimum": 0.5}, NumberSchema(type="number", minimum=0.5)),
    ({"type": "integer", "default": 0}, NumberSchema(type="integer", default=0)),
    ({"type": "boolean", "default": False}, BooleanSchema(default=False)),
    ({"type": "string", "enum": ["a", "b"]}, UntitledSingleSelectEnumSchema(enum=["a", "b"])),
    (
        {"type": "string", "enum": ["a"], "enumNames": ["A"]},
        LegacyTitledEnumSchema(enum=["a"], enum_names=["A"]),
    ),
    (
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        TitledSingleSelectEnumSchema(one_of=[EnumOption(const="a", title="A")]),
    ),
    (
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 1},
        UntitledMultiSelectEnumSchema(items=UntitledItems(enum=["a"]), max_items=1),
    ),
    (
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": ["a"]},
        TitledMultiSelectEnumSchema(
            items=TitledItems(any_of=[EnumOption(const="a", title="A")]), default=["a"]
        ),
    ),
]


@pytest.mark.parametrize(("definition", "schema"), KINDS)
def test_a_property_gets_the_type_its_members_say(definition: dict[str, Any], schema: Any) -> None:
    assert primitive_schema(definition) == schema
    assert json.loads(encode(schema)) == definition


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"type": "object"},
        {"type": ["string", "null"]},
        {"type": "array"},
        {"type": "array", "items": {"type": "number"}},
        {"type": "string", "minLength": "1"},
        {"type": "string", "format": "colour"},
        {"type": "number", "default": "1"},
        {"type": "string", "enum": [1]},
        {"type": "string", "oneOf": [{"const": "a"}]},
    ],
)
def test_what_is_no_primitive_schema_is_refused(definition: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        primitive_schema(definition)


def test_defaults_come_from_dicts_and_structs_alike() -> None:
    form = RequestedSchema(
        properties={
            "name": {"type": "string", "default": ""},
            "age": NumberSchema(type="integer", default=0),
            "sure": {"type": "boolean", "default": False},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": []},
            "city": {"type": "string"},
            "zip": StringSchema(),
        }
    )
    assert schema_defaults(form) == {"name": "", "age": 0, "sure": False, "tags": []}


def test_a_form_on_the_wire() -> None:
    params = ElicitRequestParams(
        message="Who?",
        requested_schema=RequestedSchema(properties={"name": StringSchema()}, required=["name"]),
    )
    assert json.loads(encode(params)) == {
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    }


def test_a_form_must_be_an_object() -> None:
    raw = b'{"message":"m","requestedSchema":{"type":"array","properties":{}}}'
    with pytest.raises(msgspec.ValidationError, match="array"):
        decode(ElicitRequestParams, raw)


@pytest.mark.parametrize(
    "wire",
    [
        b'{"message":"m","mode":"url","url":"https://a.example","elicitationId":"1"}',
        b'{"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{}}}',
        b'{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"x":1}}}}',
    ],
)
def test_the_mode_is_kept_as_it_was_given(wire: bytes) -> None:
    assert encode(decode(ElicitRequestParams, wire)) == wire


def test_an_answer_keeps_the_kinds_of_its_values() -> None:
    wire = b'{"action":"accept","content":{"a":"x","b":1,"c":1.5,"d":true,"e":["y"]}}'
    result = decode(ElicitResult, wire)
    assert result.content == {"a": "x", "b": 1, "c": 1.5, "d": True, "e": ["y"]}
    assert encode(result) == wire


def test_an_answer_is_flat() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(ElicitResult, b'{"action":"accept","content":{"a":{}}}')
