"""Arguments as models send them by mistake: taken where the server says so."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import annotated_types
import pydantic
import pytest

from mcpearl import Client, Server
from mcpearl.schema import ArgumentsError, compile_signature


@dataclass
class Point:
    x: int


@dataclass
class Bounded:
    x: Annotated[int, annotated_types.Ge(1)]
    ids: list[int] = field(default_factory=list)


class Model(pydantic.BaseModel):
    x: int


def test_mistakes_inside_a_record_with_constraints():
    def place(at: Bounded) -> Bounded:
        return at

    signature = compile_signature(place)
    arguments = signature.decode_lenient(b'{"at":{"x":"3","ids":["1"]}}')
    assert signature.call(arguments, None) == Bounded(3, [1])
    with pytest.raises(ArgumentsError, match=r"`at.x`: expected integer >= 1, got string \"0\""):
        signature.decode_lenient(b'{"at":{"x":"0"}}')


def plain(
    days: int = 0,
    size: float = 0.0,
    on: bool = False,
    ids: list[int] | None = None,
    at: Point | None = None,
    name: str = "",
    kind: Literal["a", "b"] = "a",
    any: Any = None,
) -> tuple[Any, ...]:
    return days, size, on, ids, at, name, kind, any


def modelled(
    days: int = 0,
    size: float = 0.0,
    on: bool = False,
    ids: list[int] | None = None,
    at: Model | None = None,
    name: str = "",
    kind: Literal["a", "b"] = "a",
    any: Any = None,
) -> tuple[Any, ...]:
    return days, size, on, ids, at, name, kind, any


@pytest.mark.parametrize(("function", "point"), [(plain, Point), (modelled, Model)])
@pytest.mark.parametrize(
    ("raw", "name", "meant"),
    [
        (b'{"days":"3"}', "days", 3),
        (b'{"days":3.0}', "days", 3),
        (b'{"size":"1.5"}', "size", 1.5),
        (b'{"on":"true"}', "on", True),
        (b'{"on":"false"}', "on", False),
        (b'{"ids":"[1,2]"}', "ids", [1, 2]),
        (b'{"ids":["1","2"]}', "ids", [1, 2]),
        (b'{"at":"{\\"x\\": 1}"}', "at", 1),
        (b'{"at":{"x":"1"}}', "at", 1),
        (b'{"name":"[1]"}', "name", "[1]"),
        (b'{"name":"3"}', "name", "3"),
        (b'{"any":"[1]"}', "any", "[1]"),
    ],
)
def test_mistakes_that_are_taken(function, point, raw: bytes, name: str, meant: Any):
    signature = compile_signature(function)
    values = signature.call(signature.decode_lenient(raw), None)
    found = dict(zip(signature.input_schema["properties"], values, strict=True))[name]
    assert found == (point(x=meant) if name == "at" else meant)
    assert type(found) is (point if name == "at" else type(meant))


@pytest.mark.parametrize("function", [plain, modelled])
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"days":"three"}', "argument `days`"),
        (b'{"ids":"1,2"}', "argument `ids`"),
        (b'{"dais":"3"}', "unknown argument `dais`"),
        (b'{"kind":"c"}', "argument `kind`"),
        (b"[1]", "the arguments must be an object, got array"),
    ],
)
def test_what_cannot_be_meant_is_refused(function, raw: bytes, said: str):
    with pytest.raises(ArgumentsError) as refused:
        compile_signature(function).decode_lenient(raw)
    assert said in str(refused.value)


async def test_a_server_or_a_tool_may_be_lenient():
    app, strict = Server("lenient", lenient=True), Server("strict")

    def double(n: int) -> int:
        return 2 * n

    app.add_tool(double)
    app.add_tool(double, name="exact", lenient=False)
    strict.add_tool(double)
    strict.add_tool(double, name="soft", lenient=True)
    for server, taken, refused in ((app, "double", "exact"), (strict, "soft", "double")):
        async with Client(server) as client:
            result = await client.call_tool(taken, {"n": "3"})
            assert result.structured_content == {"result": 6}
            assert (await client.call_tool(refused, {"n": "3"})).is_error
            for tool in [tool async for tool in client.tools()]:
                assert tool.input_schema["properties"]["n"] == {"type": "integer"}


async def test_a_schema_written_by_hand_is_applied_as_it_is():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def double(n: int) -> int:
        return 2 * n

    app = Server("lenient", lenient=True)
    app.add_tool(double, input_schema=schema)
    async with Client(app) as client:
        assert (await client.call_tool("double", {"n": "3"})).is_error
    with pytest.raises(TypeError, match="leave out one of them"):
        app.add_tool(double, name="other", input_schema=schema, lenient=True)
