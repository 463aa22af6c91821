"""Pages: every list has them, cursors are good for their list only, and nothing is skipped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl import McpError, Server
from mcpearl.server.registry.pagination import Registered
from tests.server.wire import ERAS, wire

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def server(count: int = 10, name: str = "pages", page_size: int = 3) -> Server:
    app = Server(name, page_size=page_size)
    for number in range(count):
        app.add_tool(lambda: 1, name=f"item{number}")
        app.add_resource(f"item://{number}", lambda: "x", name=f"item{number}")
        app.add_resource(f"item{number}://{{key}}", lambda key: "x", name=f"item{number}")
        app.add_prompt(lambda: "x", name=f"item{number}")
    return app


def names(result: dict[str, Any], method: str) -> list[str]:
    return [item["name"] for item in result[LISTS[method]]]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", LISTS)
async def test_all_pages_give_everything_once_in_the_order_of_adding(
    method: str, version: str
) -> None:
    async with wire(server(), version) as client:
        seen: list[str] = []
        params: dict[str, Any] = {}
        sizes = []
        while True:
            result = (await client.ask(method, params))["result"]
            seen += names(result, method)
            sizes.append(len(names(result, method)))
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
    assert seen == [f"item{number}" for number in range(10)]
    assert sizes == [3, 3, 3, 1]


@pytest.mark.parametrize("count", [0, 1, 3, 6])
async def test_the_last_page_has_no_cursor(count: int) -> None:
    listing: Registered[int] = Registered("tools", "s", 3)
    for number in range(count):
        listing.add(str(number), number)
    pages, cursor = 0, None
    while True:
        _, cursor = listing.page(cursor)
        pages += 1
        if cursor is None:
            break
    assert pages == max(1, -(-count // 3))


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", LISTS)
async def test_cursors_from_elsewhere_are_refused(method: str, version: str) -> None:
    cursors: dict[str, str] = {}
    async with wire(server(), version) as client, wire(server(name="other"), version) as other:
        for each in LISTS:
            cursors[each] = (await client.ask(each))["result"]["nextCursor"]
        own = cursors.pop(method)
        foreign = (await other.ask(method))["result"]["nextCursor"]
        bad = ["", "garbage", "MTIz", own + "A", own[:-1], f"{own}~~", f" {own}", own.swapcase()]
        bad += ["x" * 100_000, "é", "\x00", foreign, *cursors.values()]
        for cursor in bad:
            error = (await client.ask(method, {"cursor": cursor}))["error"]
            assert error["code"] == -32602, cursor
            assert len(error["data"]["cursor"]) <= 65
        assert (await client.ask(method, {"cursor": 5}))["error"]["code"] == -32602
        assert "result" in await client.ask(method, {"cursor": own})


async def test_servers_with_very_long_names_tell_their_lists_apart() -> None:
    async with wire(server(name="n" * 100)) as client:
        cursor = (await client.ask("tools/list"))["result"]["nextCursor"]
        assert "error" in await client.ask("prompts/list", {"cursor": cursor})


async def test_another_worker_of_the_same_server_takes_the_cursor() -> None:
    async with wire(server()) as one, wire(server()) as other:
        cursor = (await one.ask("tools/list"))["result"]["nextCursor"]
        result = (await other.ask("tools/list", {"cursor": cursor}))["result"]
        assert names(result, "tools/list") == ["item3", "item4", "item5"]


@given(
    page_size=st.integers(1, 4),
    start=st.integers(0, 8),
    changes=st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=12),
)
def test_what_stays_is_seen_whatever_comes_and_goes_between_pages(
    page_size: int, start: int, changes: list[tuple[bool, int]]
) -> None:
    listing: Registered[int] = Registered("tools", "s", page_size)
    for number in range(start):
        listing.add(str(number), number)
    stayed = {str(number) for number in range(start)}
    seen: list[int] = []
    cursor: str | None = None
    todo = list(changes)
    while True:
        entries, cursor = listing.page(cursor)
        seen += entries
        if cursor is None:
            break
        if todo:
            adds, number = todo.pop()
            if adds:
                listing.add(str(number), number)
            else:
                listing.remove(str(number))
                stayed.discard(str(number))
    assert {str(number) for number in seen} >= stayed
    assert len(seen) <= start + len(changes)


def test_replacing_keeps_the_place() -> None:
    listing: Registered[str] = Registered("tools", "s", 10)
    for key in "abc":
        listing.add(key, key)
    listing.add("b", "B")
    assert listing.page(None) == (["a", "B", "c"], None)
    assert listing.get("b") == "B"
    assert listing.remove("b")
    assert not listing.remove("b")
    listing.add("b", "again")
    assert listing.values() == ["a", "c", "again"]


def test_a_cursor_of_an_entry_that_is_gone_still_works() -> None:
    listing: Registered[int] = Registered("tools", "s", 2)
    for number in range(5):
        listing.add(str(number), number)
    _, cursor = listing.page(None)
    listing.remove("0")
    listing.remove("1")
    assert listing.page(cursor)[0] == [2, 3]
    for number in range(2, 5):
        listing.remove(str(number))
    assert listing.page(cursor) == ([], None)
    with pytest.raises(McpError):
        listing.page("nonsense")


@pytest.mark.parametrize("page_size", [0, -1, None, "10"])
def test_a_page_has_at_least_one_entry(page_size: Any):
    with pytest.raises(ValueError, match="`page_size` must be a whole number over 0"):
        Server("pages", page_size=page_size)
