"""Resources: fixed and templated, text and bytes, and what is not one."""

from typing import Any

import pytest

from mcpearl import Context, Media, ResourceNotFound, Server
from mcpearl.types import Annotations, ReadResourceResult, ResourceContents
from tests.server.wire import ERAS, LEGACY, MODERN, VERSIONS, wire


async def read(app: Server, uri: str, version: str = MODERN) -> Any:
    async with wire(app, version) as client:
        return await client.ask("resources/read", {"uri": uri})


def contents(answer: Any) -> Any:
    (only,) = answer["result"]["contents"]
    return only


# What a resource is announced as


async def test_everything_said_of_a_resource_is_told() -> None:
    app = Server("resources")

    @app.resource(
        "config://app",
        name="config",
        title="Configuration",
        mime_type="text/x-ini",
        size=5,
        annotations=Annotations(audience=["user"], priority=0.5),
        meta={"example.com/a": 1},
    )
    def config() -> str:
        """The settings."""
        return "a = 1"

    async with wire(app) as client:
        (resource,) = (await client.ask("resources/list"))["result"]["resources"]
    assert resource == {
        "uri": "config://app",
        "name": "config",
        "title": "Configuration",
        "description": "The settings.",
        "mimeType": "text/x-ini",
        "size": 5,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "_meta": {"example.com/a": 1},
    }


async def test_templates_have_a_list_of_their_own() -> None:
    app = Server("resources")

    @app.resource("weather://{city}/now")
    def now(city: str) -> str:
        return city

    async with wire(app) as client:
        assert (await client.ask("resources/list"))["result"]["resources"] == []
        (template,) = (await client.ask("resources/templates/list"))["result"]["resourceTemplates"]
    assert template == {"uriTemplate": "weather://{city}/now", "name": "now"}


def test_mistakes_are_refused_at_once() -> None:
    app = Server("resources")
    with pytest.raises(TypeError, match="needs the URI"):
        app.resource(lambda: "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="city"):
        app.add_resource("weather://now", lambda city: city)
    with pytest.raises(TypeError, match="town"):
        app.add_resource("weather://{town}", lambda city: city)


# What reading gives


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("value", "mime_type", "expected"),
    [
        ("text", None, {"mimeType": "text/plain", "text": "text"}),
        ("# a", "text/markdown", {"mimeType": "text/markdown", "text": "# a"}),
        (b"\x00\xff", None, {"mimeType": "application/octet-stream", "blob": "AP8="}),
        (bytearray(b"\x00"), "image/x", {"mimeType": "image/x", "blob": "AA=="}),
        (Media(b"\x00", "image/png"), None, {"mimeType": "image/png", "blob": "AA=="}),
        ({"a": [1]}, None, {"mimeType": "application/json", "text": '{"a":[1]}'}),
        (None, None, {"mimeType": "application/json", "text": "null"}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_contents(value: Any, mime_type: Any, expected: Any, version: str) -> None:
    app = Server("resources")
    app.add_resource("data://it", lambda: value, mime_type=mime_type, name="it")
    assert contents(await read(app, "data://it", version)) == {"uri": "data://it", **expected}


async def test_several_contents_and_whole_results() -> None:
    app = Server("resources")
    parts = [ResourceContents(uri="a://1", text="one"), ResourceContents(uri="a://2", text="two")]
    app.add_resource("a://list", lambda: parts, name="list")
    app.add_resource("a://whole", lambda: ReadResourceResult(contents=parts), name="whole")
    for uri in ("a://list", "a://whole"):
        answer = await read(app, uri)
        assert [part["text"] for part in answer["result"]["contents"]] == ["one", "two"]


async def test_how_long_a_result_keeps() -> None:
    app = Server("resources", list_ttl_ms=5000)
    app.add_resource("a://1", lambda: "x", name="one", ttl_ms=1000, cache_scope="public")
    app.add_resource("a://2", lambda: "x", name="two")
    one = (await read(app, "a://1"))["result"]
    assert (one["ttlMs"], one["cacheScope"]) == (1000, "public")
    two = (await read(app, "a://2"))["result"]
    assert (two["ttlMs"], two["cacheScope"]) == (0, "private")
    assert "ttlMs" not in (await read(app, "a://1", LEGACY))["result"]
    async with wire(app) as client:
        assert (await client.ask("resources/list"))["result"]["ttlMs"] == 5000


# Templates


async def test_variables_are_arguments_of_their_type() -> None:
    app = Server("resources")

    @app.resource("weather://{city}/{day}{?unit}")
    async def on_day(city: str, day: int, ctx: Context, unit: str = "C") -> dict[str, Any]:
        return {"city": city, "day": day, "unit": unit, "uri": ctx.params.uri}

    answer = await read(app, "weather://New%20York/3?unit=F")
    assert '"city":"New York","day":3,"unit":"F"' in contents(answer)["text"]
    answer = await read(app, "weather://oslo/3")
    assert '"unit":"C"' in contents(answer)["text"]
    answer = await read(app, "weather://oslo/monday")
    assert answer["error"]["data"] == {"uri": "weather://oslo/monday"}


@pytest.mark.parametrize(
    "uri",
    [
        "files://a/b",
        "files://../etc/passwd",
        "files://a/../b",
        "files://",
        "files:///",
        "files://a?x=1",
        "files://a#b",
        "files://a\x00b",
        "files://a%2Fb%ZZ",
        "FILES://a",
    ],
)
async def test_a_variable_stays_in_its_segment(uri: str) -> None:
    app = Server("resources")
    app.add_resource("files://{name}", lambda name: name, name="file")
    assert "error" in await read(app, uri)


@pytest.mark.parametrize("spelled", ["%2e%2e%2f", "..%2Fetc%2Fpasswd", "%2Fetc", "a%00b"])
async def test_a_variable_that_decodes_to_more_than_a_segment_is_no_surprise(spelled: str) -> None:
    """Either it is refused, or the handler gets exactly the decoded text and never a path part."""
    app = Server("resources")
    seen: list[str] = []

    @app.resource("files://{name}/end")
    def file(name: str) -> str:
        seen.append(name)
        return "x"

    answer = await read(app, f"files://{spelled}/end")
    if "error" in answer:
        assert seen == []
    else:
        from urllib.parse import unquote

        assert seen == [unquote(spelled)]


async def test_the_most_specific_template_wins_whatever_the_order() -> None:
    for order in (("{a}", "fixed-{a}"), ("fixed-{a}", "{a}")):
        app = Server("resources")
        for template in order:
            app.add_resource(f"x://{template}", lambda a, t=template: t, name=template)
        app.add_resource("x://exact", lambda: "exact", name="exact")
        assert contents(await read(app, "x://fixed-1"))["text"] == "fixed-{a}"
        assert contents(await read(app, "x://other"))["text"] == "{a}"
        assert contents(await read(app, "x://exact"))["text"] == "exact"


# What is not there, and what fails


@pytest.mark.parametrize("version", VERSIONS)
async def test_not_found(version: str) -> None:
    app = Server("resources")
    app.add_resource("a://1", lambda: "x", name="one")

    @app.resource("b://{key}")
    def of_key(key: str) -> str:
        raise ResourceNotFound(f"b://{key}")

    for uri in ("a://2", "b://missing", ""):
        error = (await read(app, uri, version))["error"]
        assert error["code"] == (-32602 if version == MODERN else -32002)
        assert error["data"] == {"uri": uri}


@pytest.mark.parametrize("version", ERAS)
async def test_a_resource_that_raises(version: str) -> None:
    app = Server("resources")

    @app.resource("a://1")
    def fails() -> str:
        raise ValueError("the reason")

    error = (await read(app, "a://1", version))["error"]
    assert error["code"] == -32603
    assert "ValueError: the reason" in error["message"]
    assert error["data"] == {"uri": "a://1"}


async def test_reading_ones_own_resource() -> None:
    app = Server("resources")
    app.add_resource("a://1", lambda: "x", name="one")

    @app.tool
    async def look(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri))[0].text or ""

    async with wire(app) as client:
        assert (await client.call("look", {"uri": "a://1"}))["result"]["structuredContent"] == {
            "result": "x"
        }
        assert "error" in await client.call("look", {"uri": "a://2"})


@pytest.mark.parametrize("version", ERAS)
async def test_a_value_that_does_not_fit_its_variable_is_named(version: str) -> None:
    app = Server("resources")

    @app.resource("page://{number}")
    def page(number: int) -> str:
        return f"page {number}"

    async with wire(app, version) as client:
        answer = await client.ask("resources/read", {"uri": "page://three"})
    assert answer["error"]["message"] == (
        'Resource not found: page://three (argument `number`: expected integer, got string "three")'
    )
