"""Following changes: streams of modern servers, subscriptions of legacy ones."""

import asyncio
from typing import Any

import pytest

from mcpearl import (
    CapabilityMissing,
    Client,
    ConnectionLost,
    Handler,
    LimitReached,
    McpearlError,
    McpError,
    RequestTimeout,
    Server,
)
from mcpearl.client import subscription as subscriptions_module
from mcpearl.types import ReadResourceResult
from tests.waiting import eventually

from .peers import Error, Message, Peer, client_of, legacy_peer, modern_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
UPDATED = "notifications/resources/updated"


def an_app() -> Server:
    app = Server("changing")

    @app.resource("x://one")
    async def one() -> str:
        return "1"

    @app.resource("x://two")
    async def two() -> str:
        return "2"

    app.add_tool(lambda: 1, name="t")
    app.add_prompt(lambda: "p", name="p")
    return app


def listening_peer(granted: Message | None = None) -> Peer:
    """A peer that acknowledges every subscription and leaves it open."""
    peer = modern_peer()

    def listen(message: Message) -> None:
        asked = message["params"]["notifications"]
        notify(peer, message["id"], "subscriptions/acknowledged", notifications=granted or asked)

    peer["subscriptions/listen"] = listen
    return peer


def notify(peer: Peer, subscription: Any, method: str, **params: Any) -> None:
    meta = {"io.modelcontextprotocol/subscriptionId": subscription}
    peer.send(method=f"notifications/{method}", params={"_meta": meta, **params})


# Subscribing to one resource, the same in both eras


@BOTH
async def test_updates_of_a_resource_reach_the_application(protocol: str) -> None:
    app = an_app()
    heard: list[str] = []
    async with Client(
        app, protocol=protocol, on_notification=lambda n: heard.append(n.params.uri)
    ) as client:
        await client.subscribe("x://one")
        await client.subscribe("x://one")
        for uri in ("x://one", "x://two", "x://one"):
            app.notify_resource_updated(uri)
        await client.unsubscribe("x://one")
        app.notify_resource_updated("x://one")
        await client.unsubscribe("x://one")
        await asyncio.sleep(0)
    assert heard == ["x://one", "x://one"]


async def test_unread_updates_do_not_end_a_subscription_to_a_uri(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions_module, "MAX_UNREAD", 10)
    app = an_app()
    heard: list[Any] = []
    async with Client(app, on_notification=heard.append) as client:
        await client.subscribe("x://one")
        for _ in range(100):
            app.notify_resource_updated("x://one")
        await eventually(lambda: len(heard) == 100)


async def test_a_subscription_the_server_ended_can_be_made_again() -> None:
    peer = listening_peer()
    async with await client_of(peer) as client:
        await client.subscribe("x://one")
        peer.send(id=peer.asked("subscriptions/listen")[0]["id"], result={})
        await asyncio.sleep(0)
        await client.subscribe("x://one")
    assert len(peer.asked("subscriptions/listen")) == 2


async def test_a_server_that_cannot_be_subscribed_to_is_not_asked() -> None:
    class Plain(Handler):
        async def read_resource(self, uri: str, ctx: Any) -> ReadResourceResult:
            return ReadResourceResult(contents=[])

    for protocol in ("2025-11-25", "2026-07-28"):
        async with Client(Server("plain", handler=Plain()), protocol=protocol) as client:
            with pytest.raises(CapabilityMissing, match=r"resources\.subscribe"):
                await client.subscribe("x://one")


async def test_a_subscription_that_was_refused_leaves_nothing() -> None:
    peer = modern_peer(subscriptions_listen=lambda _: Error(-32603, "too many"))
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="too many"):
            await client.subscribe("x://one")
        assert not len(client._subscriptions)
        assert not client._link.connection._listeners


# Streams


async def test_a_stream_of_changes() -> None:
    app = an_app()
    async with (
        Client(app) as client,
        client.listen(
            tools=True, prompts=True, resource_list=True, resources=["x://one"]
        ) as changes,
    ):
        assert changes.granted is not None
        assert changes.granted.resource_subscriptions == ["x://one"]
        app.add_tool(lambda: 2, name="t2")
        app.add_prompt(lambda: "q", name="q")
        app.notify_resource_updated("x://one")
        seen = [(await anext(changes)).method for _ in range(3)]
    assert sorted(seen) == [
        "notifications/prompts/list_changed",
        UPDATED,
        "notifications/tools/list_changed",
    ]
    assert app.core.subscriptions.counts() == {"uris": 0, "tools": 0, "prompts": 0, "resources": 0}


async def test_each_stream_gets_its_own_notifications() -> None:
    peer = listening_peer()
    async with (
        await client_of(peer) as client,
        client.listen(tools=True) as first,
        client.listen(resources=["x://"]) as second,
    ):
        one, two = (m["id"] for m in peer.asked("subscriptions/listen"))
        notify(peer, two, "resources/updated", uri="x://")
        notify(peer, one, "tools/list_changed")
        notify(peer, 4711, "tools/list_changed")
        assert (await anext(first)).method == "notifications/tools/list_changed"
        assert (await anext(second)).params.uri == "x://"
        assert not first._unread
        assert not second._unread
    ended = {m["params"]["requestId"] for m in peer.asked("notifications/cancelled")}
    assert ended == {one, two}


async def test_the_granted_filter_is_available() -> None:
    peer = listening_peer({"toolsListChanged": True})
    async with await client_of(peer) as client, client.listen(tools=True, prompts=True) as changes:
        assert changes.granted is not None
        assert (changes.granted.tools_list_changed, changes.granted.prompts_list_changed) == (
            True,
            None,
        )


@pytest.mark.parametrize("how", ["result", "cancelled"])
async def test_a_stream_the_server_ends_is_read_to_its_end(how: str) -> None:
    peer = listening_peer()
    async with await client_of(peer) as client:
        async with client.listen(tools=True) as changes:
            id = peer.asked("subscriptions/listen")[0]["id"]
            notify(peer, id, "tools/list_changed")
            if how == "result":
                peer.send(id=id, result={"resultType": "complete"})
            else:
                peer.send(method="notifications/cancelled", params={"requestId": id})
            assert len([change async for change in changes]) == 1
            assert changes.ended
        assert not client._link.connection._listeners
    assert not peer.asked("notifications/cancelled")


async def test_a_stream_whose_connection_is_lost_raises() -> None:
    peer = listening_peer()
    async with await client_of(peer) as client, client.listen(tools=True) as changes:
        reading = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await peer.close()
        with pytest.raises(ConnectionLost):
            await reading


async def test_a_stream_that_is_not_read_is_closed_at_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions_module, "MAX_UNREAD", 10)
    peer = listening_peer()
    async with await client_of(peer) as client, client.listen(tools=True) as changes:
        for _ in range(50):
            notify(peer, peer.asked("subscriptions/listen")[0]["id"], "tools/list_changed")
        read = 0
        with pytest.raises(LimitReached, match="10 notifications"):
            async for _ in changes:
                read += 1
        assert read == 10
    assert len(peer.asked("notifications/cancelled")) == 1


async def test_a_subscription_that_is_never_acknowledged_times_out() -> None:
    peer = modern_peer()
    async with await client_of(peer, timeout=0.05) as client:
        with pytest.raises(RequestTimeout, match="subscriptions/listen"):
            await client.listen(tools=True).open()
        assert not client._link.connection._listeners
    assert peer.asked("notifications/cancelled")


async def test_opening_a_stream_can_be_cancelled() -> None:
    peer = modern_peer()
    async with await client_of(peer) as client:
        opening = asyncio.ensure_future(client.listen(tools=True).open())
        await eventually(lambda: peer.asked("subscriptions/listen"))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert peer.asked("notifications/cancelled")


async def test_an_error_answer_to_listen_is_raised() -> None:
    peer = modern_peer(subscriptions_listen=lambda _: Error(-32602, "no such list"))
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="no such list"):
            await client.listen(tools=True).open()


async def test_a_stream_may_last_longer_than_any_timeout() -> None:
    peer = listening_peer()
    async with (
        await client_of(peer, timeout=0.5, max_timeout=0.5) as client,
        client.listen(tools=True) as changes,
    ):
        # Only the stream waits for an answer, and it has no deadline.
        pending = client._link.connection.end.pending
        assert len(pending) == 1
        assert pending.next_deadline() is None
        notify(peer, peer.asked("subscriptions/listen")[0]["id"], "tools/list_changed")
        assert (await anext(changes)).method == "notifications/tools/list_changed"


async def test_closing_the_client_ends_its_streams() -> None:
    peer = listening_peer()
    async with await client_of(peer) as client:
        stream = client.listen(tools=True)
        await stream.open()
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
    with pytest.raises(McpearlError):
        await reading


async def test_legacy_servers_have_no_streams() -> None:
    async with await client_of(legacy_peer()) as client:
        with pytest.raises(McpError, match=r"2025-11-25.*subscribe"):
            client.listen(tools=True)
