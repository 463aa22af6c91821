"""Extensions on the client's side: announced, claiming results, taking notifications."""

import asyncio
from typing import Any, ClassVar

import pytest

from mcpearl import Client, ClientExtension, InvalidResult
from mcpearl.client.extensions import Requester
from mcpearl.types import CallToolResult, NotificationParams, Result
from tests.waiting import eventually

from .peers import DISCOVERED, Message, client_of, legacy_peer, modern_peer


class Deferred(Result, kw_only=True):
    """A result that has to be fetched."""

    ticket: str


class Ticked(NotificationParams, kw_only=True):
    """A notification of the extension."""

    count: int


class Tickets(ClientExtension):
    """Fetches results that a server defers."""

    identifier = "com.example/tickets"
    results: ClassVar = {("tools/call", "ticket"): Deferred}
    notifications: ClassVar = {"notifications/ticked": Ticked}

    def settings(self) -> dict[str, Any]:
        return {"max": 3}

    def __init__(self) -> None:
        self.ticked: list[int] = []

    async def resolve(self, client: Requester, asked: Any, result: Result) -> Result:
        assert isinstance(result, Deferred)
        return await client.request("tickets/fetch", {"ticket": result.ticket}, CallToolResult)

    def noticed(self, client: Requester, notice: Any) -> None:
        self.ticked.append(notice.params.count)


def fetched(message: Message) -> Message:
    text = f"fetched {message['params']['ticket']}"
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


async def test_a_claimed_result_is_resolved_and_a_notification_taken() -> None:
    peer = modern_peer(
        tools_call=lambda _: {"resultType": "ticket", "ticket": "t7"}, tickets_fetch=fetched
    )
    tickets = Tickets()
    async with await client_of(peer, extensions=[tickets], validate_output=False) as client:
        result = await client.call_tool("x")
        assert result.content[0].text == "fetched t7"  # type: ignore[union-attr]
        peer.send(method="notifications/ticked", params={"count": 4})
        await eventually(lambda: tickets.ticked == [4])
    meta = peer.asked("tools/call")[0]["params"]["_meta"]
    declared = meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared["com.example/tickets"] == {"max": 3}


async def test_a_type_that_is_not_claimed_for_the_method_is_refused() -> None:
    peer = modern_peer(resources_read=lambda _: {"resultType": "ticket", "ticket": "t7"})
    async with await client_of(peer, extensions=[Tickets()]) as client:
        with pytest.raises(InvalidResult, match="unknown resultType 'ticket'"):
            await client.read_resource("x://")


async def test_a_claimed_result_that_does_not_fit_its_type_is_named() -> None:
    peer = modern_peer(tools_call=lambda _: {"resultType": "ticket", "ticket": 7})
    async with await client_of(peer, extensions=[Tickets()]) as client:
        with pytest.raises(InvalidResult, match=r"the result of `tools/call` is not valid"):
            await client.call_tool("x")


async def test_what_an_extension_resolves_to_has_to_be_a_result_of_the_method() -> None:
    class Wrong(Tickets):
        async def resolve(self, client: Requester, asked: Any, result: Result) -> Result:
            return Result()

    peer = modern_peer(tools_call=lambda _: {"resultType": "ticket", "ticket": "t"})
    async with await client_of(peer, extensions=[Wrong()]) as client:
        with pytest.raises(InvalidResult, match="to a Result in place of a TypedToolResult"):
            await client.call_tool("x")


def test_two_extensions_may_not_claim_the_same() -> None:
    class Other(Tickets):
        identifier = "com.example/other"

    class Taken(ClientExtension):
        identifier = "com.example/taken"
        notifications: ClassVar = {"notifications/progress": NotificationParams}

    for given, text in (
        ([Tickets(), Tickets()], "two extensions `com.example/tickets`"),
        ([Tickets(), Other()], "claim the resultType 'ticket' of `tools/call`"),
        ([Taken()], "`notifications/progress` is taken already"),
    ):
        with pytest.raises(ValueError, match=text):
            Client("http://127.0.0.1:1/mcp", extensions=given)


async def test_a_request_of_ones_own_carries_any_params() -> None:
    peer = modern_peer()
    peer["x/y"] = lambda m: {"resultType": "complete", "got": m["params"]["a"]}
    async with await client_of(peer) as client:
        result = await client.request("x/y", {"a": [1, {"b": 2}]})
    assert result.extra == {"got": [1, {"b": 2}]}
    assert DISCOVERED["resultType"] == result.result_type


async def test_a_legacy_handshake_announces_extensions_too() -> None:
    peer = legacy_peer()
    async with await client_of(peer, extensions=[Tickets()]):
        pass
    declared = peer.asked("initialize")[0]["params"]["capabilities"]["extensions"]
    assert declared["com.example/tickets"] == {"max": 3}
    await asyncio.sleep(0)
