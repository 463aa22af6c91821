"""Changing what a part offers, before and while clients use it."""

from typing import Any

import pytest

from mcpearl import Client, McpError, Rewrite, Server
from mcpearl.auth import Principal
from tests.server.wire import LEGACY, MODERN, wire
from tests.waiting import eventually


def tracker() -> Server:
    app = Server("tracker")

    @app.tool
    def create_issue(title: str, project: str, draft: bool = False) -> str:
        """Create an issue."""
        return f"{project}: {title} {draft}"

    @app.tool
    def delete_issue(id: int) -> str:
        return "gone"

    @app.resource("issues://all")
    def everything() -> str:
        return "[]"

    return app


async def test_names_descriptions_and_arguments_are_changed() -> None:
    app = Server("outer")
    app.mount(
        "issues",
        tracker(),
        rewrite=Rewrite(
            rename={"create_issue": "report"},
            describe={"create_issue": "Report a problem."},
            fix={"create_issue": {"project": "weather"}},
            drop={"create_issue": ["draft"]},
            hide=["delete_*"],
            tags={"create_*": ["write"]},
        ),
    )
    async with Client(app) as c:
        (tool,) = [tool async for tool in c.tools()]
        assert tool.name == "issues__report"
        assert tool.description == "Report a problem."
        assert list(tool.input_schema["properties"]) == ["title"]
        assert tool.input_schema["required"] == ["title"]
        assert (tool.meta or {})["mcpearl/tags"] == ["write"]
        # What a caller passes all the same does not reach the tool.
        arguments = {"title": "Rain", "project": "secret", "draft": True}
        assert (await c.call_tool("issues__report", arguments)).data == "weather: Rain False"
        for gone in ("issues__create_issue", "issues__delete_issue"):
            with pytest.raises(McpError, match="Unknown tool"):
                await c.call_tool(gone, {"id": 1})


async def test_a_rewrite_is_changed_at_run_time_and_clients_are_notified() -> None:
    app = Server("outer")
    mount = app.mount("issues", tracker())
    changes: list[str] = []
    async with Client(
        app, protocol=LEGACY, on_notification=lambda n: changes.append(n.method)
    ) as c:
        assert len([tool async for tool in c.tools()]) == 2
        mount.rewrite = Rewrite(tags={"delete_*": ["danger"]}, hide_tags=["danger"])
        await eventually(lambda: "notifications/tools/list_changed" in changes)
        assert [tool.name async for tool in c.tools()] == ["issues__create_issue"]
        with pytest.raises(McpError, match="Unknown tool"):
            await c.call_tool("issues__delete_issue", {"id": 1})
        mount.rewrite = Rewrite(only=["delete_issue"])
        assert [tool.name async for tool in c.tools()] == ["issues__delete_issue"]


async def test_what_is_shown_depends_on_the_principal_and_on_scopes() -> None:
    app = Server("outer")
    app.mount(
        "issues",
        tracker(),
        rewrite=Rewrite(
            scopes={"delete_*": ["issues:delete"]},
            shown=lambda offered, ctx: (
                offered.kind != "tools" or ctx.principal is None or ctx.principal.subject == "ada"
            ),
        ),
    )
    ada = Principal(subject="ada", scopes=frozenset({"issues:delete"}))
    poor = Principal(subject="ada")
    eve = Principal(subject="eve", scopes=frozenset({"issues:delete"}))
    assert app.core.dispatcher.all_scopes() == {"issues:delete"}
    for who, expected in ((ada, 2), (poor, 1), (eve, 0)):
        async with wire(app, MODERN, principal=who) as c:
            tools = (await c.ask("tools/list"))["result"]["tools"]
            assert len(tools) == expected
            answer = await c.call("issues__delete_issue", {"id": 1})
            assert ("error" in answer) is (expected < 2)


async def test_versions_of_a_tool_stand_side_by_side() -> None:
    app = Server("outer")
    for version in ("1", "2"):
        part = Server(f"v{version}")
        part.add_tool(lambda version=version: f"by {version}", name="search")
        app.mount(
            f"v{version}",
            part,
            prefix=False,
            rewrite=Rewrite(rename={"search": f"search_v{version}"}),
        )
    async with Client(app) as c:
        assert [tool.name async for tool in c.tools()] == ["search_v1", "search_v2"]
        assert (await c.call_tool("search_v2")).text == "by 2"


async def test_without_a_prefix_the_second_of_two_equal_names_gets_one() -> None:
    app = Server("outer")
    app.add_tool(lambda: "own", name="search")
    part = Server("part")
    part.add_tool(lambda: "part", name="search")
    part.add_tool(lambda: "only", name="other")
    app.mount("part", part, prefix=False)
    async with Client(app) as c:
        assert [tool.name async for tool in c.tools()] == ["search", "part__search", "other"]
        assert (await c.call_tool("part__search")).text == "part"
        assert (await c.call_tool("search")).text == "own"


def test_what_makes_no_sense_in_a_rewrite_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"hide": "delete_*"}, "a list of names"),
        ({"drop": {"create_issue": "draft"}}, "takes a list"),
    ]
    for options, reason in wrong:
        with pytest.raises(TypeError, match=reason):
            Rewrite(**options)
    with pytest.raises(ValueError, match="both `a` and `b`"):
        Rewrite(rename={"a": "x", "b": "x"})
    app = Server("outer")
    app.mount("issues", tracker(), rewrite=Rewrite(rename={"create_isue": "report"}))
    assert app.core.dispatcher.scopes_of("tools/call", "issues__create_issue") == frozenset()
    assert "names 'create_isue', which it does not offer" in caplog.text
