"""Results of tools as Python values: `data`, by the output schema or by a type that is asked for."""

import dataclasses
import datetime
import json
import uuid
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from mcpearl import Client, InvalidResult, McpError, Server, ToolError
from mcpearl.client.tool_data import reader_by_schema

from .peers import Error, client_of, modern_peer


@dataclasses.dataclass
class Trip:
    city: str
    leaves: datetime.date
    days: int = 3


class Hotel(pydantic.BaseModel):
    name: str
    stars: int = pydantic.Field(ge=1)


def an_app() -> Server:
    app = Server("travel")

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    def plan(trip: Trip, hotels: list[Hotel] | None = None) -> Trip:
        return trip

    @app.tool
    def rate(hotel: Hotel) -> list[Hotel]:
        return [hotel]

    @app.tool
    def size(path: Path) -> dict[str, Any]:
        return {"path": str(path)}

    @app.tool
    def say() -> list[Any]:
        raise ToolError("no")

    @app.tool
    def nothing() -> None: ...

    return app


LEAVES = datetime.date(2026, 11, 16)


async def test_data_is_the_value_that_the_tool_returned() -> None:
    async with Client(an_app()) as client:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.data == 5
        assert result.structured_content == {"result": 5}
        assert result.text == "5"
        assert result.is_error is False
        assert (await client.call_tool("nothing")).data is None


async def test_objects_have_the_attributes_of_the_schema() -> None:
    async with Client(an_app()) as client:
        trip = (await client.call_tool("plan", {"trip": Trip("Oslo", LEAVES)})).data
        assert (trip.city, trip.leaves, trip.days) == ("Oslo", LEAVES, 3)
        (hotel,) = (await client.call_tool("rate", {"hotel": Hotel(name="Bo", stars=2)})).data
        assert hotel.name == "Bo"


async def test_data_is_of_the_type_that_is_asked_for() -> None:
    async with Client(an_app()) as client:
        trip = Trip("Oslo", LEAVES)
        assert (await client.call_tool("plan", {"trip": trip}, returns=Trip)).data == trip
        hotel = Hotel(name="Bo", stars=2)
        assert (await client.call_tool("rate", {"hotel": hotel}, returns=list[Hotel])).data == [
            hotel
        ]
        assert (await client.call_tool("add", {"a": 1, "b": 1}, returns=float)).data == 2.0
        with pytest.raises(InvalidResult, match=r"the result of tool `add` is not a `str`: .*int"):
            await client.call_tool("add", {"a": 1, "b": 1}, returns=str)
        failed = await client.call_tool("say", returns=int)
        assert failed.is_error is True
        assert failed.text == "no"


@pytest.mark.parametrize(
    ("result", "kind", "data"),
    [
        ({"structuredContent": {"result": 3}}, int, 3),
        ({"structuredContent": {"result": 3}}, dict[str, int], {"result": 3}),
        ({"content": [{"type": "text", "text": "3"}]}, int, 3),
        ({"content": [{"type": "text", "text": "3"}]}, str, "3"),
        ({"content": [{"type": "text", "text": '{"a": [1]}'}]}, dict[str, list[int]], {"a": [1]}),
    ],
)
async def test_a_type_finds_its_value_where_servers_put_it(
    result: dict[str, Any], kind: Any, data: Any
) -> None:
    answer = {"resultType": "complete", "content": [], **result}
    peer = modern_peer(tools_call=lambda _: answer)
    async with await client_of(peer, validate_output=False) as client:
        assert (await client.call_tool("t", returns=kind)).data == data


async def test_arguments_are_whatever_has_fields_or_a_text_form() -> None:
    got: list[Any] = []
    peer = modern_peer(
        tools_call=lambda message: (
            got.append(message["params"]["arguments"]),
            {"resultType": "complete", "content": []},
        )[1]
    )
    async with await client_of(peer, validate_output=False) as client:
        await client.call_tool("t", Trip("Oslo", LEAVES))
        await client.call_tool("t", Hotel(name="Bo", stars=2))
        await client.call_tool("t", {"p": Path("/a"), "h": [Hotel(name="Bo", stars=2)], "u": UUID})
    assert got == [
        {"city": "Oslo", "leaves": "2026-11-16", "days": 3},
        {"name": "Bo", "stars": 2},
        {"p": "/a", "h": [{"name": "Bo", "stars": 2}], "u": str(UUID)},
    ]


UUID = uuid.UUID(int=7)


async def test_arguments_without_a_json_form_are_named() -> None:
    async with Client(an_app()) as client:
        with pytest.raises(
            TypeError, match="argument `b` of `add` cannot be sent: a `object` has no JSON"
        ):
            await client.call_tool("add", {"a": 1, "b": object()})
        with pytest.raises(TypeError, match="the arguments of `add` are a list; pass a dict"):
            await client.call_tool("add", [1, 2])
        with pytest.raises(TypeError, match="an argument of `p` cannot be sent"):
            await client.get_prompt("p", {"a": object()})


async def test_an_unknown_tool_gets_suggestions() -> None:
    app = Server("weather")

    @app.tool
    def forecast() -> str:
        return ""

    async with Client(app) as client:
        with pytest.raises(McpError, match=r"forcast.*did you mean `forecast`"):
            await client.call_tool("forcast")
        with pytest.raises(McpError) as caught:
            await client.call_tool("quite_another_thing")
        assert "did you mean" not in str(caught.value)


async def test_the_suggestions_are_of_the_server_that_refused() -> None:
    tool = {"name": "forecast", "inputSchema": {"type": "object"}}
    peer = modern_peer(
        tools_call=lambda _: Error(-32602, "No tool of that name"),
        tools_list=lambda _: {
            "resultType": "complete",
            "tools": [tool],
            "ttlMs": 0,
            "cacheScope": "private",
        },
    )
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="No tool of that name; did you mean `forecast`"):
            await client.call_tool("forecasts")
        with pytest.raises(McpError) as caught:
            await client.call_tool("forecast")  # it exists: its arguments are wrong
        assert caught.value.message == "No tool of that name"


# By schema


@pytest.mark.parametrize(
    ("schema", "content", "data"),
    [
        ({"type": "object"}, {"a": 1}, {"a": 1}),
        ({"type": "object", "properties": {"a-b": {}}}, {"a-b": 1}, {"a-b": 1}),
        ({"type": "object", "properties": {"_a": {}}}, {"_a": 1}, {"_a": 1}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
            {"a": "2026-01-02"},
            {"a": datetime.date(2026, 1, 2)},
        ),
        ({"type": "array", "items": {"$ref": "#/$defs/No"}}, [1], [1]),
        ({"type": ["integer", "null"]}, None, None),
        ({"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}, str(UUID), UUID),
        # What cannot be told apart, or does not fit after all, stays plain.
        ({"anyOf": [{"type": "string"}, {"type": "string", "format": "uuid"}]}, "x", "x"),
        ({"type": "string", "format": "date-time"}, "yesterday", "yesterday"),
        ({"type": 7, "properties": 7, "$defs": 7}, {"a": 1}, {"a": 1}),
        ({"x-fastmcp-wrap-result": True, "properties": 7}, {"result": 1}, 1),
    ],
)
def test_a_schema_makes_data(schema: dict[str, Any], content: Any, data: Any) -> None:
    assert reader_by_schema(schema)(content) == data


def test_a_recursive_schema_ends() -> None:
    node = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/N"}},
    }
    read = reader_by_schema({"$ref": "#/$defs/N", "$defs": {"N": node}})
    data = read({"n": 1, "next": {"n": 2}})
    assert data.n == 1
    assert data.next == {"n": 2}


def test_a_huge_schema_is_looked_at_in_part() -> None:
    wide = {
        "type": "object",
        "properties": {f"f{n}": {"type": "string", "format": "date"} for n in range(3000)},
    }
    data = reader_by_schema(wide)({f"f{n}": "2026-01-02" for n in range(3000)})
    assert data.f0 == datetime.date(2026, 1, 2)
    assert data.f2999 == "2026-01-02"


def test_a_result_with_data_goes_over_the_wire_as_any_other() -> None:
    from mcpearl import TypedToolResult

    raw = b'{"content":[],"structuredContent":{"a":1}}'
    result: TypedToolResult[Any] = msgspec.json.decode(raw, type=TypedToolResult)
    result.read_with(lambda content: content["a"])
    assert result.data == 1
    assert msgspec.json.encode(result) == raw
    assert json.loads(raw) == result.to_dict()


Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


async def test_constraints_of_the_type_are_checked() -> None:
    async with Client(an_app()) as client:
        with pytest.raises(InvalidResult, match="<= 100"):
            await client.call_tool("add", {"a": 100, "b": 1}, returns=Percent)
