"""Mistakes at registration: each is refused there, in words that say what to write instead."""

import functools
import logging
from contextlib import asynccontextmanager
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

import pytest
from msgspec import Meta

from mcpearl import Client, Context, Server
from mcpearl.types import Annotations, Icon, ToolAnnotations


@pytest.fixture
def app() -> Server:
    return Server("registering")


def refusal(register: Any, error: type[Exception] = TypeError) -> str:
    with pytest.raises(error) as refused:
        register()
    return str(refused.value)


def add(a: int, b: int = 1) -> int:
    return a + b


# Names and options


async def test_a_name_may_be_given_by_position(app: Server):
    @app.tool("plus")
    def tool(a: int) -> int:
        return a + 1

    @app.prompt("ask")
    def prompt(about: str) -> str:
        return about

    app.tool(add, title="Addition")
    async with Client(app) as client:
        assert [each.name async for each in client.tools()] == ["plus", "add"]
        assert [each.name async for each in client.prompts()] == ["ask"]


def test_an_unknown_option_is_refused_with_the_known_ones(app: Server):
    said = refusal(lambda: app.tool(tittle="Plus"))
    assert said.startswith("`@app.tool` has no option `tittle`; did you mean `title`? The options")
    assert "`annotations`, " in said
    said = refusal(lambda: app.prompt(tags={"a"}))
    assert said.startswith("`@app.prompt` has no option `tags`. The options are `description`")
    assert "`app.add_tool` has no option" in refusal(lambda: app.add_tool(add, nam="x"))
    assert "`app.add_resource` has no" in refusal(lambda: app.add_resource("a:b", add, mime="x"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": 1}, "`name` must be text, as in `name='1'`, not 1"),
        ({"name": "x", "version": 1.2}, "`version` must be text, as in `version='1.2'`, not 1.2"),
        ({"name": "x", "instructions": ["a"]}, "`instructions` must be text"),
    ],
)
def test_a_server_is_described_by_text(options: dict[str, Any], said: str):
    assert refusal(lambda: Server(**options)).startswith(said)


def test_a_protocol_version_that_does_not_exist_is_refused():
    said = refusal(lambda: Server("x", versions=("2099-01-01",)), ValueError)
    assert "`2099-01-01`" in said
    assert "2026-07-28" in said
    assert "must be a list" in refusal(lambda: Server("x", versions="2025-11-25"))


# Duplicates


def test_a_duplicate_is_logged_and_replaces_the_first(app: Server, caplog):
    app.add_tool(add)
    with caplog.at_level(logging.WARNING, "mcpearl.server"):
        app.add_tool(lambda: 1, name="add")
    assert caplog.messages == [
        "tool `add` is registered already, and the new one takes its place; "
        "`Server(on_duplicate=…)` decides about this"
    ]


@pytest.mark.parametrize("kind", ["tool", "resource", "resource template", "prompt", "completion"])
async def test_duplicates_of_every_kind_follow_the_setting(kind: str):
    def register(app: Server, value: str) -> None:
        match kind:
            case "tool":
                app.add_tool(lambda: value, name="x")
            case "resource":
                app.add_resource("x://y", lambda: value)
            case "resource template":
                app.add_resource("x://{y}", lambda y: value)
            case "prompt":
                app.add_prompt(lambda: value, name="x")
            case "completion":
                app.complete("x", "y")(lambda typed: [value])

    strict = Server("strict", on_duplicate="error")
    register(strict, "first")
    said = refusal(lambda: register(strict, "second"), ValueError)
    assert said.startswith(f"{kind} `x")
    assert "choose another name" in said
    for setting, kept in (("ignore", "first"), ("replace", "second")):
        app = Server("lax", on_duplicate=setting)
        app.add_prompt(lambda y: y, name="other")
        register(app, "first")
        register(app, "second")
        if kind == "resource":
            async with Client(app) as client:
                result = await client.read_resource("x://y")
                assert result.contents[0].text == kept


def test_an_unknown_setting_for_duplicates_is_refused():
    said = refusal(lambda: Server("x", on_duplicate="warning"), ValueError)
    assert said == ("`on_duplicate` is one of 'warn', 'error', 'replace', 'ignore', not 'warning'")


# Functions


def test_a_method_that_is_not_bound_is_refused(app: Server):
    class Shop:
        def buy(self, item: str) -> str:
            return item

        @classmethod
        def open(cls) -> str:
            return cls.__name__

    said = refusal(lambda: app.tool(Shop.buy))
    assert said.startswith("tool `buy`: `self` would be an argument of every call")
    assert "`app.tool(instance.method)`" in said
    said = refusal(lambda: app.tool(vars(Shop)["open"]))
    assert "`app.tool(Class.method)`" in said
    app.tool(Shop().buy)
    app.tool(Shop.open)


def test_a_context_without_annotation_is_refused(app: Server):
    def tool(a: int, ctx):
        return a

    said = refusal(lambda: app.tool(tool))
    assert said == (
        "tool `tool`: parameter `ctx` has no annotation, so it would be an argument of every "
        "call; write `ctx: Context` to get the context of the call"
    )


def test_a_decorator_that_hides_the_signature_is_named_as_the_reason(app: Server):
    def logged(function):
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    said = refusal(lambda: app.tool(logged(add)))
    assert said.startswith("tool `wrapper`: the signature is `(*args, **kwargs)`")
    assert "`@functools.wraps(function)`" in said
    app.tool(functools.wraps(add)(logged(add)))


def test_something_that_is_not_a_function_is_refused(app: Server):
    assert "a tool is a function, and this is a `int`" in refusal(lambda: app.tool(3))


def test_a_lifespan_needs_its_decorator():
    async def database(app):
        yield 1

    said = refusal(lambda: Server("x", lifespan=database))
    assert said == (
        "`lifespan` must return an async context manager, and `database` is a generator; put "
        "`@contextlib.asynccontextmanager` above it"
    )
    Server("x", lifespan=asynccontextmanager(database))


# Annotations and icons


@pytest.mark.parametrize(
    "annotations",
    [
        {"readOnlyHint": True, "title": "T"},
        {"read_only_hint": True, "title": "T"},
        ToolAnnotations(read_only_hint=True, title="T"),
    ],
)
async def test_annotations_may_be_spelled_both_ways(app: Server, annotations):
    app.add_tool(add, annotations=annotations)
    async with Client(app) as client:
        (tool,) = [tool async for tool in client.tools()]
    assert tool.annotations == ToolAnnotations(read_only_hint=True, title="T")


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"readonlyHint": True}, "has no member `readonlyHint`; did you mean `readOnlyHint`?"),
        ({"readOnlyHint": "yes"}, "not a valid `ToolAnnotations`: Expected `bool"),
        (["readOnlyHint"], "expected `ToolAnnotations(…)` or a dict"),
    ],
)
def test_annotations_that_clients_would_not_see_are_refused(app: Server, annotations, said):
    found = refusal(lambda: app.add_tool(add, annotations=annotations))
    assert found.startswith("tool `add`: annotations: ")
    assert said in found


async def test_annotations_of_a_resource(app: Server):
    app.add_resource("a:b", lambda: "x", annotations={"priority": 0.5, "audience": ["user"]})
    app.add_resource("a:{b}", lambda b: "x", annotations=Annotations(last_modified="2026-01-01"))
    said = refusal(lambda: app.add_resource("a:c", lambda: "x", annotations={"prio": 1}))
    assert said.startswith("resource `a:c`: annotations: `Annotations` has no member `prio`")


@pytest.mark.parametrize(
    ("icons", "said"),
    [
        (["https://x/y.png"], "an icon is not text; write `Icon(src='https://x/y.png')`"),
        ("https://x/y.png", "`icons` must be a list, as in `icons=[Icon(src=…)]`"),
        ([{"source": "x"}], "icon: `Icon` has no member `source`"),
        ([Icon(src=1)], "icon: not a valid `Icon`: Expected `str`, got `int`"),
    ],
)
def test_bad_icons_are_refused_wherever_they_are_given(app: Server, icons, said):
    for register in (
        lambda: app.add_tool(add, icons=icons),
        lambda: app.add_prompt(lambda: "x", name="p", icons=icons),
        lambda: app.add_resource("a:b", lambda: "x", icons=icons),
        lambda: app.add_resource("a:{b}", lambda b: "x", icons=icons),
        lambda: Server("x", icons=icons),
    ):
        assert said in refusal(register)


# URIs


@pytest.mark.parametrize("uri", ["not a uri", "config", "//x", "a://b c", "1a://x", "x:", "{a}"])
def test_a_uri_that_is_none_is_refused(app: Server, uri: str):
    said = refusal(lambda: app.resource(uri)(lambda: "x"), ValueError)
    assert f"`{uri}`: not a URI; it begins with a scheme" in said


def test_variables_and_parameters_are_told_apart(app: Server):
    said = refusal(lambda: app.resource("users://{uid}")(lambda user_id: "x"))
    assert said == (
        "resource template `users://{uid}`: the parameter `user_id` is not a variable, and the "
        "variable `uid` is not a parameter of the function; give both the same name"
    )


# Schemas written by hand


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, 'the input schema must have `"type": "object"` at its root'),
        ({"type": "object", "properties": {"x": {}}}, "has a property `x`, but the function has"),
        ({"type": "object", "properties": {"a": {}}}, "the function needs `a`, but the input"),
    ],
)
def test_an_input_schema_that_does_not_fit_the_function_is_refused(app: Server, schema, said):
    assert said in refusal(lambda: app.add_tool(add, input_schema=schema), ValueError)


async def test_an_input_schema_that_fits_is_accepted(app: Server):
    fits = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    app.add_tool(add, name="one", input_schema=fits)
    composed = {"type": "object", "allOf": [fits]}
    app.add_tool(add, name="two", input_schema=composed)
    app.add_tool(lambda **any: 1, name="three", input_schema=fits)
    async with Client(app) as client:
        schemas = {tool.name: tool.input_schema async for tool in client.tools()}
    assert schemas == {"one": fits, "two": composed, "three": fits}


# Middleware


async def test_a_middleware_that_returns_nothing_is_named(app: Server):
    @app.middleware
    async def outer(ctx: Context, call_next):
        return await call_next()

    @app.middleware
    async def forgetful(ctx: Context, call_next):
        await call_next()

    app.add_tool(add)
    async with Client(app) as client:
        result = await client.call_tool("add", {"a": 1})
    assert result.is_error
    assert "middleware `forgetful` returned NoneType, not a `Result`" in result.content[0].text
    assert "`await call_next()`" in result.content[0].text


# Keyword arguments by a TypedDict


class Options(TypedDict, total=False):
    size: Annotated[int, Meta(ge=1)]
    color: str


class Needed(TypedDict):
    city: str
    days: NotRequired[int]


async def test_keyword_arguments_of_a_typed_dict(app: Server):
    @app.tool
    def draw(shape: str, **options: Unpack[Options]) -> dict[str, Any]:
        return {"shape": shape, **options}

    @app.tool
    def plan(**needed: Unpack[Needed]) -> dict[str, Any]:
        return dict(needed)

    async with Client(app) as client:
        tools = {tool.name: tool async for tool in client.tools()}
        assert tools["draw"].input_schema == {
            "type": "object",
            "properties": {
                "shape": {"type": "string"},
                "size": {"type": "integer", "minimum": 1},
                "color": {"type": "string"},
            },
            "required": ["shape"],
            "additionalProperties": False,
        }
        assert tools["plan"].input_schema["required"] == ["city"]
        result = await client.call_tool("draw", {"shape": "box", "size": 2})
        assert result.structured_content == {"shape": "box", "size": 2}
        result = await client.call_tool("draw", {"shape": "box", "size": 0})
        assert result.is_error
        result = await client.call_tool("plan", {"city": "Oslo"})
        assert result.structured_content == {"city": "Oslo"}
