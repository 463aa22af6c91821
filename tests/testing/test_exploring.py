"""Calls made up from schemas: what is found, and that it is as small as can be."""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta
from pydantic import BaseModel, Field

from mcpearl import Client, Server, SyncClient, ToolError
from mcpearl.testing import check_tools, explore

app = Server("explored")


@app.tool
def divide(a: int, b: int) -> float:
    return a / b


@app.tool
def at(items: list[int], index: Annotated[int, Meta(ge=0, le=3)]) -> int:
    return items[index]


@app.tool
def careful(a: int) -> int:
    if a > 5:
        raise ToolError("too large")
    return a


@app.tool(annotations={"destructiveHint": True})
def destroy(all: bool) -> None:
    raise AssertionError("this was not to be called")


@app.tool
async def hang(seconds: int) -> int:
    if seconds > 3:
        await asyncio.Event().wait()
    return seconds


@app.tool
def lie(a: int) -> int:
    return "no" if a > 100 else a  # type: ignore[return-value]


@app.tool(lenient=True)
def lax(a: int) -> int:
    return a


async def found(name: str, **options: Any) -> list[Any]:
    async with Client(app) as client:
        return (await explore(client, [name], examples=30, **options)).findings


async def test_a_crash_is_found_and_made_small():
    (finding,) = await found("divide")
    assert (finding.kind, finding.arguments) == ("crash", {"a": 0, "b": 0})
    assert "ZeroDivisionError: division by zero (" in finding.said
    assert "test_exploring.py" in finding.said
    assert "await client.call_tool('divide', {'a': 0, 'b': 0})" in str(finding)
    (finding,) = await found("at")
    assert (finding.kind, finding.arguments) == ("crash", {"items": [], "index": 0})


async def test_a_tool_that_says_no_is_not_broken():
    assert await found("careful") == []


async def test_a_hang_is_found_once():
    (finding,) = await found("hang", timeout=0.2)
    assert finding.kind == "hang"
    assert finding.arguments["seconds"] > 3


async def test_bad_output_is_found_and_made_small():
    (finding,) = await found("lie")
    assert (finding.kind, finding.arguments) == ("bad output", {"a": 101})


async def test_invalid_arguments_that_are_accepted():
    (finding,) = await found("lax")
    assert finding.kind == "accepted"
    assert await found("lax", invalid=False) == []


async def test_destructive_tools_are_left_out():
    async with Client(app) as client:
        report = await explore(client, ["destroy"])
        assert (report.calls, report.left_out) == (0, ["destroy"])
        report = await explore(client, ["destroy"], examples=1, destructive=True)
        assert report.findings[0].kind == "crash"
        with pytest.raises(ValueError, match="no tool 'nothing'"):
            await explore(client, ["nothing"])


async def test_tools_that_do_not_exist_are_refused():
    with pytest.raises(
        TypeError, match=re.escape("`tools` must be a list, as in `tools=['careful']`")
    ):
        await check_tools(app, "careful")
    with pytest.raises(ValueError, match="no tool 'carefull'; did you mean `careful`"):
        await check_tools(app, ["carefull"])


async def test_calls_that_fail_are_not_logged_as_well(caplog: pytest.LogCaptureFixture):
    async with Client(app) as client:
        report = await explore(client, ["lie", "divide"], examples=20)
        assert {each.kind for each in report.findings} == {"bad output", "crash"}
        assert [each for each in caplog.records if each.name == "mcpearl.server"] == []
        await client.call_tool("divide", {"a": 1, "b": 0})
    assert "tools/call divide raised" in caplog.text


async def test_the_report_is_the_message_of_the_failure():
    with pytest.raises(AssertionError) as failed:
        await check_tools(app, ["divide", "careful"], examples=20)
    assert "tools: 2, findings: 1" in str(failed.value)
    assert "tool `divide` crashed: ZeroDivisionError" in str(failed.value)
    assert (await check_tools(app, ["careful"], examples=5)).tools == ["careful"]


def test_from_a_test_that_is_not_async():
    with SyncClient(app) as client:
        assert client.run(explore, ["careful"], examples=5).findings == []


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Node:
    name: Annotated[str, Meta(min_length=2, max_length=4)]
    children: "list[Node]" = field(default_factory=list)


class Order(BaseModel):
    count: int = Field(ge=1, le=9, multiple_of=3)
    code: str = Field(pattern="^[A-Z]{3}$")
    price: float = Field(gt=0)


async def test_arguments_are_made_for_everything_that_schemas_describe():
    """What is made up for a schema is what the tool of the schema takes."""
    many = Server("many")
    called = []

    @many.tool
    def take(
        colour: Colour,
        kind: Literal["a", 1],
        node: Node,
        when: datetime,
        day: date,
        wait: timedelta,
        key: UUID,
        money: Decimal,
        data: bytes,
        pair: tuple[int, str],
        table: dict[str, list[float]],
        maybe: int | str | None = None,
        tags: Annotated[set[str], Meta(max_length=3)] = frozenset(),  # type: ignore[assignment]
        anything: Any = None,
    ) -> None:
        called.append(node)

    @many.tool
    def order(order: Order, maybe: Order | None = None) -> None:
        called.append(order)

    report = await check_tools(many, examples=40)
    assert len(called) >= 80
    assert report.findings == []


@settings(max_examples=30)
@given(st.data())
def test_schemas_written_by_hand(data: st.DataObject):
    from mcpearl.schema import compile_schema
    from mcpearl.testing.strategies import fitting, unfitting

    schema = {
        "type": "object",
        "properties": {
            "a": {
                "oneOf": [{"type": "string", "format": "date"}, {"type": "integer", "minimum": 3}]
            },
            "b": {"allOf": [{"type": "number"}, {"exclusiveMinimum": 0}, {"maximum": 1}]},
            "c": {"type": ["array", "null"], "items": {"$ref": "#/$defs/c"}, "uniqueItems": True},
            "d": {"const": {"x": [1]}},
            "e": {
                "prefixItems": [{"type": "boolean"}],
                "type": "array",
                "items": {"type": "string"},
            },
        },
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {"c": {"enum": [1, "two", None]}},
    }
    compile_schema(schema, where="it").check(data.draw(fitting(schema)))
    with pytest.raises(ValueError):
        compile_schema(schema, where="it").check(data.draw(unfitting(schema)))
