"""Each feature in each combination of eras: legacy or modern client, legacy or modern upstream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, McpError
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.testing import Heard
from mcpearl.types import CreateMessageResult, ElicitResult, TextContent
from tests.gateway.upstream_server import LEGACY, MODERN
from tests.interop.peers import prepared_here
from tests.waiting import eventually

SERVER = prepared_here(Path(__file__).with_name("upstream_server.py"))
OF = {"legacy": LEGACY, "modern": MODERN}
CELLS = [(client, upstream) for client in OF for upstream in OF]
Cell = tuple[str, str]


@pytest.fixture(params=CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


@asynccontextmanager
async def through(
    cell: Cell, stateless: bool = False, **options: Any
) -> AsyncIterator[tuple[Client, Gateway]]:
    """A client of a gateway over HTTP, with an upstream in a process."""
    command = [*SERVER, ",".join(OF[cell[1]])]
    gateway = Gateway({"up": command}, upstreams=UpstreamSettings(stateless=stateless))
    async with (
        gateway.serving("http", port=0) as url,
        Client(url, protocol=OF[cell[0]][0], **options) as client,
    ):
        yield client, gateway


async def test_tools_resources_prompts_and_completions(cell: Cell) -> None:
    async with through(cell) as (client, _):
        names = [tool.name async for tool in client.tools()]
        assert "up__add" in names
        assert (await client.call_tool("up__add", {"a": 1, "b": 2})).data == 3
        assert [r.uri async for r in client.resources()] == ["note://one"]
        assert [t.uri_template async for t in client.resource_templates()] == ["note://by/{id}"]
        assert (await client.read_resource("note://one"))[0].text == "first"
        assert (await client.read_resource("note://by/7"))[0].text == "note 7"
        got = await client.get_prompt("up__greet", {"name": "Ada"})
        assert got.messages[0].content.text == "Greet Ada"  # type: ignore[union-attr]
        ref = {"type": "ref/prompt", "name": "up__greet"}
        assert (await client.complete(ref, "name", "A")).values == ["Ada"]


async def test_errors_are_the_upstreams(cell: Cell) -> None:
    async with through(cell) as (client, _):
        failed = await client.call_tool("up__fail")
        assert failed.is_error
        assert "no luck" in (failed.text or "")
        wrong = await client.call_tool("up__add", {"a": "x", "b": 1})
        assert wrong.is_error
        with pytest.raises(McpError, match="Unknown tool: nothing"):
            await client.call_tool("nothing")
        with pytest.raises(McpError):
            await client.read_resource("note://nothing")


async def test_forms(cell: Cell) -> None:
    def answer(params: Any) -> Any:
        return {"value": f"yes to {params.message}"}

    async with through(cell, elicitation=answer) as (client, gateway):
        result = await client.call_tool("up__ask", {"question": "Sure?"})
        assert result.data == "Sure? accept yes to Sure?"
        assert (await client.call_tool("up__ask_twice")).data == "yes to first? yes to second?"
        assert len(gateway.upstreams["up"].parked) == 0


async def test_several_questions_at_once_reach_their_own_clients(cell: Cell) -> None:
    def answering(name: str) -> Any:
        async def answer(params: Any) -> Any:
            await asyncio.sleep(0.01)
            return {"value": f"{name}: {params.message}"}

        return answer

    async with (
        through(cell, elicitation=answering("a")) as (client, gateway),
        gateway.serving("http", port=0) as url,
        Client(url, protocol=OF[cell[0]][0], elicitation=answering("b")) as other,
    ):
        calls = [
            each.call_tool("up__ask", {"question": f"{number}?"})
            for number in range(4)
            for each in (client, other)
        ]
        results = [result.data for result in await asyncio.gather(*calls)]
    expected = [f"{n}? accept {name}: {n}?" for n in range(4) for name in ("a", "b")]
    assert results == expected


async def test_visits_refusals_samples_and_roots(cell: Cell) -> None:
    def answer(params: Any) -> ElicitResult:
        assert params.url == "https://example.com/login"
        return ElicitResult(action="decline")

    def model(params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="ho"), model="m")

    options = {"elicitation": answer, "sampling": model, "roots": ["file:///tmp/here"]}
    async with through(cell, **options) as (client, _):
        assert (await client.call_tool("up__visit")).data == "decline"
        assert (await client.call_tool("up__sample")).data == "m: ho"
        assert (await client.call_tool("up__roots")).data == ["file:///tmp/here"]


async def test_a_client_that_cannot_be_asked_is_not_asked(cell: Cell) -> None:
    async with through(cell) as (client, _):
        try:
            result = await client.call_tool("up__ask", {"question": "Sure?"})
        except McpError as error:
            assert "elicitation" in error.message
        else:
            assert result.is_error
            assert "elicitation" in (result.text or "")


async def test_progress_and_logs(cell: Cell) -> None:
    heard = Heard()
    async with through(cell, **heard.options, log_level="warning") as (client, _):
        await client.call_tool("up__steps")
        await eventually(lambda: heard.logs)
    assert [each.message for each in heard.progress] == ["step 1", "step 2", "step 3"]
    assert [(each.level, each.data, each.logger) for each in heard.logs] == [
        ("warning", "careful", "steps")
    ]


async def test_meta_and_trace_context_pass_through(cell: Cell) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x": [1]}
    async with through(cell) as (client, _):
        result = await client.call_tool("up__meta", meta=trace)
        assert result.data == trace
        tagged = await client.call_tool("up__tagged")
        assert (tagged.meta or {})["example.com/tag"] == [1]


async def test_cancellation_reaches_the_upstream(cell: Cell) -> None:
    async with through(cell, stateless=True) as (client, gateway):

        async def says(**expected: int) -> bool:
            return bool((await client.call_tool("up__waited")).data == expected)

        call = asyncio.create_task(client.call_tool("up__slow", {"seconds": 100}))
        await eventually(lambda: says(begun=1, cancelled=0))
        call.cancel()
        await eventually(lambda: says(begun=1, cancelled=1))
        await eventually(lambda: gateway.mounts["up"].calls == 0)


async def test_subscriptions_and_changes_of_lists(cell: Cell) -> None:
    heard: list[Any] = []

    def note(notice: Any) -> None:
        heard.append((notice.method, getattr(notice.params, "uri", None)))

    # A modern client with a process of its own for each call would hear nothing of what they do.
    async with through(cell, stateless=True, on_notification=note) as (client, _):
        await client.subscribe("note://one")
        assert "up__add" in [tool.name async for tool in client.tools()]
        await client.call_tool("up__touch")
        await eventually(lambda: ("notifications/resources/updated", "note://one") in heard)
        await client.unsubscribe("note://one")
        if cell == ("legacy", "legacy"):
            return  # the list is that of the process all clients share
        await client.call_tool("up__grow", {"name": "fresh"})

        async def grown() -> bool:
            return "up__fresh" in [tool.name async for tool in client.tools()]

        await eventually(grown)
        if cell[0] == "legacy":
            assert ("notifications/tools/list_changed", None) in heard
