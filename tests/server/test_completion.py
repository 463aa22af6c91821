"""Completion: suggestions for arguments of prompts and templates, at most a hundred at a time."""

import threading
from typing import Any

import pytest

from mcpearl import Client, Context, Server
from mcpearl.auth import Principal
from mcpearl.types import Completion
from tests.server.wire import ERAS, MODERN, wire
from tests.waiting import eventually

CITIES = ["Oslo", "Osaka", "Ottawa"]


class Cities:
    async def __call__(self, typed: str) -> list[str]:
        return [city for city in CITIES if city.startswith(typed)]


def suggesting(completer: Any) -> Server:
    app = Server("completion")
    app.add_prompt(lambda city, country: "x", name="brief")
    app.add_resource("weather://{city}", lambda city: "x", name="weather")
    app.complete("brief", "city")(completer)
    app.complete("weather://{city}", "city")(completer)
    return app


@pytest.fixture
def mcp_app() -> Server:
    return suggesting(lambda typed: [city for city in CITIES if city.startswith(typed)])


@pytest.mark.mcpearl(era=["legacy", "modern"])
@pytest.mark.parametrize("reference", ["brief", "weather://{city}"])
async def test_suggestions(mcp_client: Client, reference: str) -> None:
    found = await mcp_client.complete(reference, "city", "Os")
    assert found == Completion(values=["Oslo", "Osaka"], total=2, has_more=False)


async def test_completers_may_be_of_any_kind() -> None:
    async def with_others(typed: str, others: dict[str, str]) -> list[str]:
        return [f"{typed}/{others['country']}"]

    def with_context(typed: str, others: dict[str, str], ctx: Context) -> list[str]:
        return [ctx.method]

    for completer, expected in (
        (with_others, ["O/no"]),
        (with_context, ["completion/complete"]),
        (Cities(), CITIES),
        (lambda typed: None, []),
        (lambda typed: "one", ["one"]),
        (lambda typed: (n for n in range(2)), ["0", "1"]),
    ):
        async with Client(suggesting(completer)) as client:
            found = await client.complete("brief", "city", "O", {"country": "no"})
        assert found.values == expected


@pytest.mark.parametrize("by_hand", [False, True])
async def test_never_more_than_a_hundred(by_hand: bool) -> None:
    values = [str(number) for number in range(250)]
    given: Any = Completion(values=values, total=1000) if by_hand else values
    async with Client(suggesting(lambda typed: given)) as client:
        found = await client.complete("brief", "city", "")
    assert found.values == values[:100]
    assert found.total == (1000 if by_hand else 250)
    assert found.has_more


async def test_an_unknown_argument_has_no_suggestions(mcp_client: Client) -> None:
    assert (await mcp_client.complete("brief", "country", "")).values == []


@pytest.mark.parametrize("version", ERAS)
async def test_what_is_not_there(version: str) -> None:
    argument = {"name": "city", "value": ""}
    async with wire(suggesting(lambda typed: CITIES), version) as client:
        prompt = {"ref": {"type": "ref/prompt", "name": "nothing"}, "argument": argument}
        error = (await client.ask("completion/complete", prompt))["error"]
        assert (error["code"], error["data"]) == (-32602, {"name": "nothing"})
        resource = {"ref": {"type": "ref/resource", "uri": "x://y"}, "argument": argument}
        error = (await client.ask("completion/complete", resource))["error"]
        assert error["code"] == (-32602 if version == MODERN else -32002)
        other = {"ref": {"type": "ref/tool", "name": "x"}, "argument": argument}
        assert (await client.ask("completion/complete", other))["error"]["code"] == -32602


async def test_a_completer_that_raises() -> None:
    def fails(typed: str) -> list[str]:
        raise ValueError("the reason")

    async with wire(suggesting(fails)) as client:
        params = {
            "ref": {"type": "ref/prompt", "name": "brief"},
            "argument": {"name": "city", "value": ""},
        }
        assert (await client.ask("completion/complete", params))["error"]["code"] == -32603


async def test_completers_share_the_threads_between_callers() -> None:
    go, running = threading.Event(), list[str]()

    def blocks(typed: str) -> list[str]:
        running.append(typed)
        if typed == "block":
            go.wait()
        return [typed]

    app = Server("completion", threads=4)
    app.add_prompt(lambda city: "x", name="brief")
    app.complete("brief", "city")(blocks)

    def asking(typed: str) -> dict[str, Any]:
        return {
            "ref": {"type": "ref/prompt", "name": "brief"},
            "argument": {"name": "city", "value": typed},
        }

    ann_is, bob_is = Principal("ann"), Principal("bob")
    async with wire(app, principal=ann_is) as ann, wire(app, principal=bob_is) as bob:
        for _ in range(20):
            ann.request("completion/complete", asking("block"))
        await eventually(lambda: running.count("block") == 3)
        answer = await bob.ask("completion/complete", asking("x"))
        assert answer["result"]["completion"]["values"] == ["x"]
        go.set()


async def test_without_completers_there_is_no_completion() -> None:
    app = Server("completion")
    app.add_prompt(lambda city: "x", name="brief")
    async with wire(app) as client:
        params = {
            "ref": {"type": "ref/prompt", "name": "brief"},
            "argument": {"name": "city", "value": ""},
        }
        assert (await client.ask("completion/complete", params))["error"]["code"] == -32601
