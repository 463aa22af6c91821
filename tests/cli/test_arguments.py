"""Words on a command line become arguments as a schema says."""

from typing import Any

import pytest

from mcpearl.cli.arguments import read_arguments
from mcpearl.cli.exits import CommandFailed, Exit

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 3},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "array", "items": {"type": "integer"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "kind": {"enum": ["sun", "rain", 3]},
        "trip": {"$ref": "#/$defs/Trip"},
        "several": {"type": ["integer", "null"]},
        "anything": {},
        "looped": {"$ref": "#/properties/looped"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Trip": {"type": "object", "properties": {"to": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["days=7"], {"days": 7}),
        (["share=0.5"], {"share": 0.5}),
        (["share=null"], {"share": None}),
        (["exact=yes"], {"exact": True}),
        (["exact=n"], {"exact": False}),
        (["exact=0"], {"exact": False}),
        (["tags=x,y"], {"tags": ["x", "y"]}),
        (["tags=x", "tags=y"], {"tags": ["x", "y"]}),
        (["tags="], {"tags": []}),
        (['tags=["a,b"]'], {"tags": ["a,b"]}),
        (["counts=1,2"], {"counts": [1, 2]}),
        (["counts=1", "counts=2"], {"counts": [1, 2]}),
        (["either=5"], {"either": 5}),
        (["either=five"], {"either": "five"}),
        (["kind=rain"], {"kind": "rain"}),
        (["kind=3"], {"kind": 3}),
        (['trip={"to": "Rome"}'], {"trip": {"to": "Rome"}}),
        (["several=null"], {"several": None}),
        (["anything=[1]"], {"anything": [1]}),
        (["anything=text"], {"anything": "text"}),
        (["looped=text"], {"looped": "text"}),
        (["days:=7"], {"days": 7}),
        (['{"days": 7}', "exact=true"], {"days": 7, "exact": True}),
    ],
)
def test_values(words: list[str], values: dict[str, Any]):
    assert read_arguments(["city=Oslo", *words], SCHEMA, "tool `t`") == {"city": "Oslo", **values}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["days=1"], "tool `t` needs city"),
        (["city=a", "days=many"], "days=many does not fit tool `t`: it must be a whole number"),
        (["city=a", "exact=perhaps"], "it must be true or false"),
        (["city=a", "kind=rian"], "it must be one of sun, rain, 3; did you mean `rain`?"),
        (["city=a", "trip=Rome"], "it must be a JSON object"),
        (["city=a", "trip=[1]"], "it must be a JSON object"),
        (["city=a", "counts=1,x"], "it must be a whole number"),
        (["city=a", "dais=1"], "no argument 'dais'; did you mean `days`?"),
        (["city=a", "city=b"], "it is there twice, and is not a list"),
        (["Oslo"], "'Oslo' is not an argument of tool `t`"),
        (["{"], "the arguments are not JSON"),
        (["city:={"], "city:={ is not JSON"),
    ],
)
def test_what_does_not_fit(words: list[str], says: str):
    with pytest.raises(CommandFailed) as failed:
        read_arguments(words, SCHEMA, "tool `t`")
    assert says in str(failed.value)
    assert failed.value.code is Exit.USAGE


def test_text_stays_text():
    assert read_arguments(["city=7"], SCHEMA, "tool") == {"city": "7"}
    assert read_arguments(["city=a=b"], SCHEMA, "tool") == {"city": "a=b"}


def test_more_members_where_the_schema_allows_them():
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    assert read_arguments(["a=1"], schema, "tool") == {"a": 1}
    with pytest.raises(CommandFailed, match="has no argument 'a'"):
        read_arguments(["a=1"], {"type": "object"}, "tool")


def test_members_of_objects():
    words = ["city=Oslo", "trip.to=Rome", "anything.deep.down=1"]
    assert read_arguments(words, SCHEMA, "it")["trip"] == {"to": "Rome"}
    with pytest.raises(CommandFailed, match=r"no argument 'trip.too'; did you mean `to`") as raised:
        read_arguments(["city=Oslo", "trip.too=Rome"], SCHEMA, "it")
    assert raised.value.hint == "`trip` takes: to?: string"
    with pytest.raises(CommandFailed, match="trip is not an object"):
        read_arguments(["city=Oslo", "trip:=3", "trip.to=Rome"], SCHEMA, "it")


def test_what_is_missing_is_shown_with_the_members_of_objects():
    with pytest.raises(CommandFailed) as raised:
        read_arguments([], SCHEMA, "it")
    assert "trip has: to?: string" in str(raised.value.hint)
