"""Tools of plain types are compiled when they are first needed, and only where nothing can be refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from mcpearl import Client, Server
from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.registry.late_tools import LateTool, can_be_late
from mcpearl.server.registry.tools import ToolEntry

HUGE = 2**70


def annotated(function: Callable[..., Any], **annotations: Any) -> Callable[..., Any]:
    """Give a function annotations that are not text, as in a module without `annotations`."""
    function.__annotations__ = annotations
    return function


def pair(a, b):  # type: ignore[no-untyped-def]
    return a


def with_defaults(a, b=1, *, c="x", d=None):  # type: ignore[no-untyped-def]
    return a


async def waiting(text):  # type: ignore[no-untyped-def]
    return text


def huge(a=HUGE):  # type: ignore[no-untyped-def]
    return a


def many(*a):  # type: ignore[no-untyped-def]
    return a


def free(**a):  # type: ignore[no-untyped-def]
    return a


def one(a):  # type: ignore[no-untyped-def]
    return a


def nothing():  # type: ignore[no-untyped-def]
    return None


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function, so that each case has annotations of its own."""
    copy = type(pair)(
        function.__code__, {}, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


LATE: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (pair, {"a": int, "b": int, "return": int}, {}),
    (pair, {"a": list[str], "b": dict[str, list[float]]}, {}),
    (pair, {"a": int | None, "b": None | str, "return": None}, {}),
    (with_defaults, {"a": bool, "b": int, "c": str, "d": str | None}, {}),
    (waiting, {"text": str, "return": list[int]}, {"timeout": 2.5, "lenient": True}),
    (nothing, {}, {"name": "other", "title": "Nothing", "description": "Does nothing."}),
]

AT_ONCE: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (pair, {"a": int}, {}),  # `b` has no annotation
    (pair, {"a": int, "b": "int"}, {}),  # which has to be resolved
    (pair, {"a": int, "b": Annotated[int, msgspec.Meta(ge=1)]}, {}),
    (pair, {"a": int, "b": int | str}, {}),
    (pair, {"a": int, "b": dict[int, str]}, {}),
    (pair, {"a": int, "b": set}, {}),
    (pair, {"a": int, "b": int, "return": bytes}, {}),
    (with_defaults, {"a": int, "b": str, "c": str, "d": str | None}, {}),  # the default is no `str`
    (huge, {"a": int}, {}),
    (many, {"a": int}, {}),
    (free, {"a": int}, {}),
    (one, {"a": int}, {"name": "two words"}),
    (one, {"a": int}, {"name": 1}),
    (one, {"a": int}, {"output_schema": {"type": "object"}}),
    (one, {"a": int}, {"scopes": ("read",)}),
]


@pytest.fixture
def pool() -> ThreadPool:
    return ThreadPool()


@pytest.mark.parametrize(("function", "annotations", "options"), LATE)
def test_what_is_compiled_late_can_be_compiled(
    function: Callable[..., Any],
    annotations: dict[str, Any],
    options: dict[str, Any],
    pool: ThreadPool,
) -> None:
    function = annotated(fresh(function), **annotations)
    assert can_be_late(function, options)
    late, entry = LateTool(function, pool, options), ToolEntry(function, pool, **options)
    assert (late.name, late.definition) == (entry.name, entry.definition)
    assert (late.at_once, late.scopes, late.mirrored, late.tasks, late.meter) == (
        entry.at_once,
        entry.scopes,
        entry.mirrored,
        entry.tasks,
        entry.meter,
    )


@pytest.mark.parametrize(("function", "annotations", "options"), AT_ONCE)
def test_what_has_to_be_checked_is_compiled_at_once(
    function: Callable[..., Any], annotations: dict[str, Any], options: dict[str, Any]
) -> None:
    assert not can_be_late(annotated(fresh(function), **annotations), options)


def test_wrapped_functions_and_callable_objects_are_compiled_at_once() -> None:
    plain = annotated(fresh(one), a=int)
    assert not can_be_late(functools.wraps(plain)(fresh(many)), {})
    assert not can_be_late(functools.partial(plain, 1), {})
    assert not can_be_late(print, {})


def server() -> Server:
    app = Server("late")
    for name in ("first", "second", "third"):
        app.add_tool(annotated(fresh(one), a=int, **{"return": int}), name=name)
    return app


async def test_a_tool_can_be_called_before_it_is_listed() -> None:
    async with Client(server()) as client:
        assert (await client.call_tool("second", {"a": 2})).data == 2
        refused = await client.call_tool("third", {"a": "three"})
        assert refused.is_error
        assert "argument `a`" in refused.text


async def test_compiled_tools_stay_where_they_were() -> None:
    app = server()
    async with Client(app) as client:
        await client.call_tool("third", {"a": 1})
        assert [tool.name for tool in await client.list_tools()] == ["first", "second", "third"]
        entries = app._registry.tools.values()
        assert [type(entry) for entry in entries] == [ToolEntry] * 3


async def test_a_tool_added_after_the_others_were_listed_is_compiled_at_once() -> None:
    app = server()
    async with Client(app) as client:
        await client.list_tools()
        app.add_tool(annotated(fresh(nothing)), name="fourth")
        assert type(app._registry.tools.get("fourth")) is ToolEntry


def test_a_removed_tool_does_not_come_back() -> None:
    tools = server()._registry.tools
    late = tools.get("second")
    assert isinstance(late, LateTool)
    tools.remove("second")
    tools.replace("second", late, late.compiled())
    assert tools.get("second") is None


async def test_a_mount_gets_the_compiled_tool() -> None:
    app = Server("outer")
    inner = server()
    app.mount("inner", inner)
    async with Client(app) as client:
        assert (await client.call_tool("inner__first", {"a": 3})).data == 3
