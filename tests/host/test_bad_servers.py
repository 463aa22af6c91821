"""Servers that misbehave behind a host: each costs its own tools, and the others do not notice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcpearl import ConnectionLost, Host, McpearlError, Server
from mcpearl.host.records import HostChange
from mcpearl.testing.clock import MovableClock
from tests.client.hostile import Channel, Hostile, Message, serve
from tests.waiting import eventually


def good() -> Server:
    app = Server("good")

    @app.tool
    def ok() -> str:
        return "fine"

    return app


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


@pytest.fixture(params=[False, True], ids=["legacy", "modern"])
async def hostile(
    request: pytest.FixtureRequest, tmp_path: Path, certificate: Path
) -> AsyncIterator[Hostile]:
    server = Hostile(request.param)
    async with serve("tcp", server, tmp_path, certificate):
        yield server
        server.stop()


def page(server: Hostile, **result: Any) -> dict[str, Any]:
    return {"resultType": "complete", **result} if server.modern else result


async def test_ten_thousand_tools(hostile: Hostile) -> None:
    async def listed(message: Message, channel: Channel) -> None:
        start = int((message.get("params") or {}).get("cursor") or 0)
        more = {"nextCursor": str(start + 1000)} if start < 9000 else {}
        tools = [tool(f"t{number}") for number in range(start, start + 1000)]
        channel.send(id=message["id"], result=page(hostile, tools=tools, **more))

    hostile.tricks["tools/list"] = listed
    async with Host({"big": hostile.url, "good": good()}) as host:
        tools = await host.tools(timeout=60)
        assert len(tools) == 10_001
        assert len({each.name for each in tools}) == 10_001


async def test_more_tools_than_allowed_cost_only_their_server(hostile: Hostile) -> None:
    async def endless(message: Message, channel: Channel) -> None:
        start = int((message.get("params") or {}).get("cursor") or 0)
        tools = [tool(f"t{number}") for number in range(start, start + 100)]
        result = page(hostile, tools=tools, nextCursor=str(start + 100))
        channel.send(id=message["id"], result=result)

    hostile.tricks["tools/list"] = endless
    async with Host({"big": hostile.url, "good": good()}, max_offers=1000) as host:
        tools = await host.tools()
        assert [each.name for each in tools] == ["good__ok"]
        assert "more than 1000 tools; raise `Host(max_offers=…)`" in tools.missing["big"]
        assert host.servers["big"].state == "ready"


async def test_two_tools_of_one_name(hostile: Hostile) -> None:
    async def listed(message: Message, channel: Channel) -> None:
        tools = [{**tool("same"), "description": text} for text in ("first", "second")]
        channel.send(id=message["id"], result=page(hostile, tools=[*tools, tool("other")]))

    hostile.tricks["tools/list"] = listed
    async with Host({"s": hostile.url}) as host:
        tools = await host.tools()
        assert [(each.own_name, each.description) for each in tools] == [
            ("same", "first"),
            ("other", None),
        ]


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"result": {"tools": "none"}},
        {"result": []},
        {"error": "no"},
    ],
)
async def test_a_server_that_lies_about_what_it_can_do(
    hostile: Hostile, answer: dict[str, Any]
) -> None:
    async def lie(message: Message, channel: Channel) -> None:
        channel.send(id=message["id"], **answer)

    hostile.tricks["tools/list"] = lie
    async with Host({"liar": hostile.url, "good": good()}) as host:
        tools = await host.tools()
        assert [each.name for each in tools] == ["good__ok"]
        assert tools.missing["liar"]
        assert (await host.call_tool("good__ok")).data == "fine"


async def test_a_server_that_answers_late_or_under_another_id(
    hostile: Hostile, clock: MovableClock
) -> None:
    late: list[tuple[Message, Channel]] = []

    async def stray(message: Message, channel: Channel) -> None:
        channel.send(id=message["id"] + 1000, result=page(hostile, tools=[tool("stray")]))
        late.append((message, channel))

    hostile.tricks["tools/list"] = stray
    async with Host({"slow": hostile.url, "good": good()}) as host:
        asking = asyncio.ensure_future(host.tools(timeout=5))
        await eventually(lambda: late)
        await clock.advance(5)
        tools = await asking
        assert [each.name for each in tools] == ["good__ok"]
        assert tools.missing == {"slow": "no answer within 5 s"}
        message, channel = late[0]
        channel.send(id=message["id"], result=page(hostile, tools=[tool("late")]))
        await eventually(lambda: host._fleet.names["tools"].find("slow__late"))
        assert len(await host.tools()) == 2
        assert len(late) == 1


async def test_changes_without_end_are_told_now_and_then(
    tmp_path: Path, certificate: Path, clock: MovableClock
) -> None:
    server = Hostile(False)
    seen: list[HostChange] = []
    flood = 5000

    async def listed(message: Message, channel: Channel) -> None:
        channel.send(id=message["id"], result=page(server, tools=[tool("a")]))
        for _ in range(flood):
            channel.send(method="notifications/tools/list_changed")
        channel.send(method="notifications/prompts/list_changed")

    server.tricks["tools/list"] = listed
    async with serve("tcp", server, tmp_path, certificate):
        async with Host({"noisy": server.url, "good": good()}, on_change=seen.append) as host:
            assert len(await host.tools()) == 2
            await eventually(lambda: any(each.what == "prompts" for each in seen))
            await clock.advance(1)
            told = [each for each in seen if each.what == "tools"]
            assert 1 <= len(told) <= 3
            assert len(server.asked("tools/list")) == 1
            assert (await host.call_tool("good__ok")).data == "fine"
        server.stop()


async def test_a_server_that_asks_for_ever(hostile: Hostile) -> None:
    async def ask(message: Message, channel: Channel) -> None:
        if hostile.modern:
            asked = {"method": "roots/list"}
            result = {"resultType": "input_required", "inputRequests": {"r": asked}}
            channel.send(id=message["id"], result=result)
            return
        for number in range(1000):
            channel.send(id=f"q{number}", method="sampling/createMessage", params={})
        channel.send(id=message["id"], error={"code": -32000, "message": "enough"})

    hostile.tricks["tools/call"] = ask
    source = {"asks": hostile.url, "good": good()}
    async with Host(source, roots=["/tmp"], max_rounds=5) as host:
        with pytest.raises(McpearlError, match=r"enough|wanted input 6 times"):
            await host.call_tool("asks__x")
        assert (await host.call_tool("good__ok")).data == "fine"


async def test_an_address_that_is_not_mcp() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Host({"web": f"http://127.0.0.1:{port}/", "good": good()}) as host:
        assert host.servers["web"].state == "down"
        assert host.servers["web"].reason
        assert [each.name for each in await host.tools()] == ["good__ok"]


async def test_a_server_that_never_finishes_its_handshake(
    hostile: Hostile, clock: MovableClock
) -> None:
    async def silence(message: Message, channel: Channel) -> None:
        pass

    hostile.tricks["initialize"] = hostile.tricks["server/discover"] = silence
    host = Host({"mute": hostile.url, "good": good()}, patience=3)
    connecting = asyncio.ensure_future(host.connect())
    await eventually(lambda: hostile.messages)
    while not connecting.done():
        await clock.advance(0.5)
    await connecting
    try:
        assert host.servers["mute"].state == "connecting"
        listing = asyncio.ensure_future(host.tools(timeout=2))
        while not listing.done():
            await clock.advance(0.5)
        assert (await listing).missing == {"mute": "no answer within 2 s"}
        call = asyncio.ensure_future(host.call_tool("mute__x", timeout=1))
        while not call.done():
            await clock.advance(0.5)
        with pytest.raises(ConnectionLost, match="server `mute` is not connected: connecting"):
            await call
    finally:
        for channel in hostile.channels:
            channel.close()
        await host.close()
