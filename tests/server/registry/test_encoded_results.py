"""Results of tools that are encoded at once: the same bytes as with the objects, where none looks."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl import Client, Context, Observer, Server
from mcpearl.protocol.codec import splice
from mcpearl.protocol.events import Call, EncodedToolResult
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.modern import Stamp
from mcpearl.protocol.versions import VERSIONS
from mcpearl.schema.errors import OutputError
from mcpearl.schema.output import compile_output
from mcpearl.server.registry.encoded import encoded_tool_result
from mcpearl.server.registry.results import tool_result
from mcpearl.types import CallToolResult, Implementation, TextContent, encode
from tests.server.wire import ERAS, LEGACY, wire


@dataclass
class Place:
    name: str
    at: tuple[float, float] | None = None


class Model(pydantic.BaseModel):
    some_name: str = pydantic.Field(alias="someName")
    more: list[int] = []


TEXT = st.text(st.characters(codec="utf-8"))
RETURNED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXT),
    (str | None, st.none() | TEXT),
    (int | str, st.integers() | TEXT),
    (Annotated[str, pydantic.Field(min_length=0)], TEXT),
    (list[str], st.lists(TEXT)),
    (dict[str, Any], st.dictionaries(TEXT, st.integers() | TEXT | st.none())),
    (Place, st.builds(Place, TEXT, st.none() | st.just((1.0, 2.5)))),
    (Model, st.builds(Model, someName=TEXT, more=st.lists(st.integers()))),
]
STAMP = Stamp(Implementation(name="a", version="1"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("annotation", "values"), RETURNED, ids=lambda each: str(each)[:40])
def test_the_bytes_are_the_same_in_every_version(
    annotation: Any, values: st.SearchStrategy[Any], version: str
) -> None:
    output = compile_output(annotation, where="tool", name="a")
    assert output is not None

    @given(values)
    def same(value: Any) -> None:
        whole = tool_result(value, output, "a")
        body = encoded_tool_result(value, output).body
        if not VERSIONS[version].modern:
            assert body == encode(narrow(whole, version))
        else:
            members, expected = STAMP.encode(whole, VERSIONS[version])
            assert members == STAMP.complete
            assert splice(members, body) == splice(members, expected)

    same()


@pytest.mark.parametrize("value", ["\ud800", "three", None])
def test_what_has_no_form_is_refused_in_both(value: Any) -> None:
    output = compile_output(str if value == "\ud800" else int, where="tool", name="a")
    assert output is not None
    for convert in (encoded_tool_result, lambda value, output: tool_result(value, output, "a")):
        with pytest.raises(OutputError):
            convert(value, output)


def test_structured_content_that_begins_with_blanks_is_an_object_too() -> None:
    for raw, kept in ((b' \n {"a": 1}', True), (b"{}", True), (b" [1]", False), (b"3", False)):
        result = CallToolResult(content=[], structured_content=msgspec.Raw(raw))
        narrowed = narrow(result, "2025-11-25").structured_content
        assert (narrowed is result.structured_content) is kept
        assert narrow(result, "2026-07-28") is result


class Answers(Observer):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def call_ended(self, began: Any, call: Call, outcome: str, size: int, answer: object) -> None:
        self.seen.append(answer)


def adding(**options: Any) -> Server:
    app = Server("adding", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


def is_three(result: Any) -> bool:
    return isinstance(result, CallToolResult) and result.content == [TextContent(text="3")]


@pytest.mark.parametrize("version", ERAS)
async def test_an_observer_gets_results(version: str) -> None:
    answers = Answers()
    async with wire(adding(observer=answers), version) as client:
        await client.call("add", {"a": 1, "b": 2})
    (answer,) = answers.seen
    assert is_three(answer)
    assert answer.structured_content == {"result": 3}


@pytest.mark.parametrize("version", ERAS)
async def test_middleware_gets_results_also_when_it_is_added_later(version: str) -> None:
    app = adding()
    seen: list[Any] = []
    async with wire(app, version) as client:
        before = await client.call("add", {"a": 1, "b": 2})

        @app.middleware
        async def look(ctx: Context, call_next: Any) -> Any:
            seen.append(await call_next())
            return seen[-1]

        after = await client.call("add", {"a": 1, "b": 2})
    assert before["result"] == after["result"]
    assert [is_three(result) for result in seen] == [True]


async def test_the_middleware_of_an_outer_server_gets_results() -> None:
    outer, seen = Server("outer"), []
    outer.mount("inner", adding())
    async with Client(outer) as client:
        (tool,) = [tool async for tool in client.tools()]
        assert (await client.call_tool(tool.name, {"a": 1, "b": 2})).data == 3

        @outer.middleware
        async def look(ctx: Context, call_next: Any) -> Any:
            result = await call_next()
            if ctx.method == "tools/call":
                seen.append(result)
            return result

        assert (await client.call_tool(tool.name, {"a": 1, "b": 2})).data == 3
    assert [is_three(result) for result in seen] == [True]


async def test_without_anything_around_it_a_result_is_encoded_at_once() -> None:
    app = adding()
    answers: list[Any] = []
    inner = app.core.dispatch

    async def look(call: Call, ctx: Context) -> Any:
        answers.append(await inner(call, ctx))
        return answers[-1]

    app.core.dispatch = look
    async with wire(app, LEGACY) as client:
        await client.call("add", {"a": 1, "b": 2})
    assert [type(answer) for answer in answers] == [EncodedToolResult]
