"""Forms: which types make one, what the client is shown, what the handler gets."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest

from mcpearl import Client, Context, McpError, Server
from tests.server.wire import ERAS, MODERN


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


async def asked(kind: Any, content: Any, version: str = MODERN, **given: Any) -> tuple[Any, Any]:
    """Ask for a type; return the fields that the client was shown, and what the handler got."""
    app, shown, found = Server("asking"), [], []

    @app.tool
    async def ask(ctx: Context) -> str:
        found.append(await ctx.elicit("?", **(given or {"schema": kind})))
        return "done"

    def fill(form: Any) -> Any:
        shown.append(form.requested_schema)
        return content

    async with Client(app, protocol=version, elicitation=fill) as client:
        try:
            result = await client.call_tool("ask")
        except McpError as error:
            return shown, error
    if result.is_error:
        return shown, result.content[0].text
    return shown[-1].properties, found[-1]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("kind", "field", "answer", "meant"),
    [
        (str, {"type": "string"}, "x", "x"),
        (int, {"type": "integer"}, 3, 3),
        (int, {"type": "integer"}, 3.0, 3),
        (float, {"type": "number"}, 1.5, 1.5),
        (bool, {"type": "boolean"}, True, True),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Color, {"type": "string", "enum": ["red", "blue"]}, "blue", Color.BLUE),
        (["low", "high"], {"type": "string", "enum": ["low", "high"]}, "low", "low"),
        (
            list[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["a"],
            ["a"],
        ),
        (
            [["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["b", "a"],
            ["b", "a"],
        ),
        (
            Annotated[int, pydantic.Field(ge=1, le=5), "how many"],
            {"type": "integer", "minimum": 1, "maximum": 5, "description": "how many"},
            5,
            5,
        ),
    ],
)
async def test_one_question(version: str, kind: Any, field: Any, answer: Any, meant: Any):
    shown, got = await asked(kind, {"value": answer}, version)
    assert shown == {"value": field}
    assert got.accepted
    assert got.data == meant
    assert type(got.data) is type(meant)


async def test_response_type_is_another_name():
    _, got = await asked(None, {"value": "Ann"}, response_type=str)
    assert got.data == "Ann"
    _, said = await asked(None, {}, response_type=str, schema=int)
    assert "`response_type` is another name of `schema`" in said


@dataclass
class ByDataclass:
    count: Annotated[int, pydantic.Field(ge=1, le=5), "how many"]
    note: Annotated[str, "what for"] = "none"


class ByTypedDict(TypedDict):
    count: Annotated[int, annotated_types.Interval(ge=1, le=5), "how many"]
    note: Annotated[str, msgspec.Meta(description="what for")]


class ByStruct(msgspec.Struct):
    count: Annotated[int, annotated_types.Ge(1), msgspec.Meta(le=5, description="how many")]
    note: Annotated[str, "what for"] = "none"


class ByModel(pydantic.BaseModel):
    count: int = pydantic.Field(ge=1, le=5, description="how many")
    note: str = pydantic.Field("none", description="what for")


@pytest.mark.parametrize("kind", [ByDataclass, ByTypedDict, ByStruct, ByModel])
async def test_constraints_of_every_library_are_shown_and_held_to(kind: Any):
    shown, got = await asked(kind, {"count": 3, "note": "tea"})
    assert shown["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "how many",
    }
    assert shown["note"]["description"] == "what for"
    assert got.data == kind(count=3, note="tea")
    _, said = await asked(kind, {"count": 99, "note": "tea"})
    assert "The client's answer does not fit the form" in str(said)
    assert "`count`: expected " in str(said)
    assert "got integer 99" in str(said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (list[int], "form field `value` cannot be shown by clients"),
        (dict[str, int], "form field `value` cannot be shown by clients"),
        ([1, 2], "a form can offer a choice of texts"),
        ({"low": 1}, "this is not the schema of a form"),
    ],
)
async def test_what_a_client_cannot_show(kind: Any, said: str):
    _, got = await asked(kind, {})
    assert said in str(got)


async def test_a_form_of_a_class_inside_the_handler():
    app = Server("asking")

    @app.tool
    async def survey(ctx: Context) -> str:
        @dataclass
        class Answer:
            color: str

        answer = await ctx.elicit("?", response_type=Answer)
        return answer.data.color

    async with Client(app, elicitation=lambda form: {"color": "red"}) as client:
        for _ in range(2):
            result = await client.call_tool("survey")
            assert result.structured_content == {"result": "red"}
