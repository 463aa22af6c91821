"""What a change of an offer means for callers."""

from typing import Any

import pytest

from mcpearl import Client, Context, Server
from mcpearl.testing import compare_offers, offer_of


def tool(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"tools": {"add": {"inputSchema": schema, **more}}}


def giving(schema: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    whole = {"type": "object", "properties": {"sum": schema}, "required": list(required)}
    return tool({}, outputSchema=whole)


NUMBER, TEXT = {"type": "number"}, {"type": "string"}
WHOLE = {"type": "integer"}


@pytest.mark.parametrize(
    ("before", "after", "breaking", "says"),
    [
        (tool({}), {}, True, "tool `add`: it is gone"),
        ({}, tool({}), False, "tool `add`: it is new"),
        (tool({}), tool({"a": WHOLE}, ("a",)), True, "argument `a`: it is new and required"),
        (tool({}), tool({"a": WHOLE}), False, "argument `a`: it is new"),
        (tool({"a": WHOLE}), tool({}), True, "argument `a`: it is gone"),
        (tool({"a": WHOLE}), tool({"a": WHOLE}, ("a",)), True, "argument `a`: it is required now"),
        (tool({"a": WHOLE}, ("a",)), tool({"a": WHOLE}), False, "`a`: it is optional now"),
        (tool({"a": NUMBER}), tool({"a": WHOLE}), True, "`a`: it cannot be a number any more"),
        (tool({"a": WHOLE}), tool({"a": NUMBER}), False, "`a`: it can be a number now"),
        (
            tool({"a": {"anyOf": [TEXT, {"type": "null"}]}}),
            tool({"a": TEXT}),
            True,
            "`a`: it cannot be null any more",
        ),
        (
            tool({"a": {"enum": ["x", "y"]}}),
            tool({"a": {"enum": ["x", "z"]}}),
            True,
            '`a`: it cannot be "y" any more',
        ),
        (tool({"a": WHOLE}), tool({"a": {**WHOLE, "maximum": 9}}), True, "`maximum` is 9"),
        (
            tool({"a": {**WHOLE, "minimum": 5}}),
            tool({"a": {**WHOLE, "minimum": 1}}),
            False,
            "`minimum` is 1, and was 5",
        ),
        (
            tool({"a": {"type": "array", "items": NUMBER}}),
            tool({"a": {"type": "array", "items": TEXT}}),
            True,
            "`a`, items: it cannot be a number any more",
        ),
        (
            tool({"a": {"$ref": "#/$defs/A"}}) | {"x": 1},
            tool({"a": {"$ref": "#/$defs/B"}}),
            False,
            None,
        ),
        (
            tool({}),
            tool({}, description="More."),
            False,
            "tool `add`: its description is different",
        ),
        (giving(WHOLE), tool({}), True, "it no longer has structured content"),
        (giving(WHOLE), giving(NUMBER), True, "result, member `sum`: it can be a number now"),
        (
            giving(NUMBER),
            giving(WHOLE),
            False,
            "result, member `sum`: it cannot be a number any more",
        ),
        (giving(WHOLE, ("sum",)), giving(WHOLE), True, "member `sum`: it is optional now"),
        (
            {"prompts": {"p": {"arguments": []}}},
            {"prompts": {"p": {"arguments": [{"name": "x", "required": True}]}}},
            True,
            "prompt `p`, argument `x`: it is new and required",
        ),
        (
            {"resources": {"a://b": {"mimeType": "text/plain"}}},
            {"resources": {"a://b": {"mimeType": "text/html"}}},
            True,
            "resource `a://b`: its type is text/html, and was text/plain",
        ),
        (
            {"capabilities": {"prompts": {}}},
            {"capabilities": {}},
            True,
            "the server: it no longer has the capability `prompts`",
        ),
        ({"instructions": "a"}, {"instructions": "b"}, False, "its instructions is different"),
    ],
)
def test_changes(before: Any, after: Any, breaking: bool, says: str | None):
    changes = compare_offers(before, after)
    if says is None:
        assert changes == []
        return
    assert any(says in f"{each.where}: {each.what}" for each in changes), changes
    assert any(each.breaking for each in changes) is breaking, changes


def test_references_are_followed_also_where_a_schema_is_a_part_of_itself():
    def tree(value: dict[str, Any]) -> dict[str, Any]:
        node = {
            "type": "object",
            "properties": {"value": value, "next": {"$ref": "#/$defs/Node"}},
        }
        schema = {"properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
        return {"tools": {"walk": {"inputSchema": schema}}}

    changes = compare_offers(tree(NUMBER), tree(TEXT))
    assert {each.where for each in changes} == {"tool `walk`, argument `root`, argument `value`"}
    assert any(each.breaking for each in changes)
    assert compare_offers(tree(NUMBER), tree(NUMBER)) == []


async def test_an_offer_has_everything():
    app = Server("all", instructions="Use it.")

    @app.tool
    def zeta(a: int) -> int:
        return a

    @app.tool
    def alpha(*, ctx: Context) -> None: ...

    @app.resource("info://about")
    def about() -> str:
        return ""

    @app.resource("info://{topic}")
    def topic(topic: str) -> str:
        return topic

    @app.prompt
    def brief(tone: str = "short") -> str:
        return tone

    async with Client(app) as client:
        offer = await offer_of(client)
    assert list(offer["tools"]) == ["alpha", "zeta"]
    assert offer["tools"]["zeta"]["inputSchema"]["properties"] == {"a": {"type": "integer"}}
    assert list(offer["resources"]) == ["info://about"]
    assert list(offer["resourceTemplates"]) == ["info://{topic}"]
    assert list(offer["prompts"]) == ["brief"]
    assert (offer["server"]["name"], offer["instructions"]) == ("all", "Use it.")
