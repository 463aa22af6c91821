"""Lists: one page, all pages, and lists that never end."""

from typing import Any

import pytest

from mcpearl import Client, InvalidResult, McpError, Server
from mcpearl.client import pages

from .peers import Error, client_of, modern_peer


def an_app(count: int, page_size: int) -> Server:
    app = Server("lists", page_size=page_size)
    for number in range(count):
        app.add_tool(lambda: 1, name=f"t{number}")
        app.add_prompt(lambda: "x", name=f"p{number}")
        app.add_resource(f"r://{number}", lambda: "x")
        app.add_resource(f"r{number}://{{name}}", lambda name: name)
    return app


BOTH = pytest.mark.mcpearl(era=["legacy", "modern"])


def offering(count: int, page_size: int) -> Any:
    return pytest.mark.mcpearl(app=an_app(count, page_size))


@BOTH
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, marks=offering(1, 1)),
        pytest.param(7, marks=offering(7, 2), id="7 by 2"),
        pytest.param(7, marks=offering(7, 7), id="7 by 7"),
        pytest.param(8, marks=offering(8, 2)),
    ],
)
async def test_walking_over_all_pages(mcp_client: Client, count: int) -> None:
    numbers = range(count)
    assert [t.name async for t in mcp_client.tools()] == [f"t{n}" for n in numbers]
    assert [p.name async for p in mcp_client.prompts()] == [f"p{n}" for n in numbers]
    assert [r.uri async for r in mcp_client.resources()] == [f"r://{n}" for n in numbers]
    templates = [t.uri_template async for t in mcp_client.resource_templates()]
    assert templates == [f"r{n}://{{name}}" for n in numbers]


@BOTH
@offering(5, 2)
async def test_all_pages_as_a_list(mcp_client: Client) -> None:
    tools = await mcp_client.tools()
    assert [tool.name for tool in tools] == ["t0", "t1", "t2", "t3", "t4"]
    assert len(await mcp_client.prompts()) == len(await mcp_client.resources()) == 5
    begun = mcp_client.resource_templates()
    assert (await anext(begun)).uri_template == "r0://{name}"
    assert [rest.uri_template for rest in await begun] == [f"r{n}://{{name}}" for n in range(1, 5)]


@BOTH
@offering(5, 2)
async def test_one_page_after_the_other_by_hand(mcp_client: Client) -> None:
    first = await mcp_client.list_tools()
    assert [t.name for t in first.tools] == ["t0", "t1"]
    second = await mcp_client.list_tools(first.next_cursor)
    assert [t.name for t in second.tools] == ["t2", "t3"]
    third = await mcp_client.list_tools(cursor=second.next_cursor)
    assert ([t.name for t in third.tools], third.next_cursor) == (["t4"], None)


async def test_an_empty_cursor_is_a_cursor() -> None:
    peer = modern_peer()

    def pages(message: dict[str, Any]) -> dict[str, Any]:
        cursor = message["params"].get("cursor")
        return {
            "prompts": [{"name": repr(cursor)}],
            **({"nextCursor": ""} if cursor is None else {}),
        }

    peer["prompts/list"] = pages
    async with await client_of(peer) as client:
        assert [p.name async for p in client.prompts()] == ["None", "''"]


async def test_the_first_page_is_asked_for_without_a_cursor() -> None:
    peer = modern_peer(prompts_list=lambda _: {"prompts": []})
    async with await client_of(peer) as client:
        await client.list_prompts()
    assert "cursor" not in peer.asked("prompts/list")[0]["params"]


@pytest.mark.parametrize("circle", [["a"], ["a", "b"], ["a", "b", "c"]])
async def test_a_repeated_cursor_ends_the_walk_with_an_error(circle: list[str]) -> None:
    peer = modern_peer()

    def next_page(message: dict[str, Any]) -> dict[str, Any]:
        cursor = message["params"].get("cursor")
        place = 0 if cursor is None else circle.index(cursor) + 1
        return {"prompts": [], "nextCursor": circle[place % len(circle)]}

    peer["prompts/list"] = next_page
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult, match="same cursor"):
            async for _ in client.prompts():
                pass
    assert len(peer.asked("prompts/list")) <= len(circle) + 1


async def test_a_list_with_too_many_pages_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGES", 50)
    peer = modern_peer()
    peer["prompts/list"] = lambda m: {"prompts": [], "nextCursor": str(m["id"])}
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult, match="more than 50 pages"):
            async for _ in client.prompts():
                pass
    assert len(peer.asked("prompts/list")) == 50


async def test_an_error_on_a_later_page_reaches_the_walker() -> None:
    peer = modern_peer()
    peer["prompts/list"] = lambda m: (
        Error(-32602, "which cursor?")
        if "cursor" in m["params"]
        else {"prompts": [{"name": "one"}], "nextCursor": "2"}
    )
    async with await client_of(peer) as client:
        walk = client.prompts()
        assert (await anext(walk)).name == "one"
        with pytest.raises(McpError, match="which cursor"):
            await anext(walk)


async def test_a_list_that_is_answered_with_questions_is_an_error() -> None:
    peer = modern_peer(
        tools_list=lambda _: {"resultType": "input_required", "requestState": "more?"}
    )
    async with await client_of(peer) as client:
        with pytest.raises(InvalidResult, match="input_required"):
            await client.list_tools()
