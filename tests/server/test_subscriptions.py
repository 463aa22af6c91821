"""Following resources: legacy subscriptions, modern listening, and that nothing is left behind."""

import asyncio
import threading
from typing import Any

import pytest

from mcpearl import Handler, Limits, McpError, Server
from mcpearl.auth import Principal
from mcpearl.types import ListResourcesResult
from tests.server.wire import ERAS, LEGACY, MODERN, PREFIX, Wire, wire

ID = f"{PREFIX}subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def server(**options: Any) -> Server:
    app = Server("followed", **options)
    app.add_tool(lambda: 1, name="tool")
    for number in range(5):
        app.add_resource(f"a://{number}", lambda: "x", name="a")
    app.add_resource("b://{key}", lambda key: "x", name="b")
    return app


async def follow(client: Wire, *uris: str) -> Any:
    """Follow resources in the way of the client's era; the id of what to cancel."""
    if client.version == MODERN:
        id = client.request(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": list(uris)}}
        )
        assert (await client.next())["method"] == ACKNOWLEDGED
        return id
    for uri in uris:
        assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    return None


def counts(app: Server) -> tuple[int, int]:
    counted = app.core.subscriptions.counts()
    return counted["uris"], counted["tools"]


# Both eras


@pytest.mark.parametrize("version", ERAS)
async def test_only_what_is_followed_is_told(version: str) -> None:
    app = server()
    async with wire(app, version) as client, wire(app, version) as other:
        await follow(client, "a://1", "b://x")
        await follow(other, "a://2")
        for uri in ("a://1", "a://2", "a://3", "b://x", "b://y", "nothing://"):
            app.notify_resource_updated(uri)
        told = await client.silence()
        assert [message["params"]["uri"] for message in told] == ["a://1", "b://x"]
        assert all(message["method"] == UPDATED for message in told)
        assert [message["params"]["uri"] for message in await other.silence()] == ["a://2"]


@pytest.mark.parametrize("version", ERAS)
async def test_what_a_client_followed_goes_with_it(version: str) -> None:
    app = server()
    async with wire(app, version) as client:
        await follow(client, "a://1", "a://2")
        assert counts(app)[0] == 2
    assert counts(app) == (0, 0)


@pytest.mark.parametrize("version", ERAS)
async def test_updates_may_be_told_from_any_thread(version: str) -> None:
    app = server()
    async with wire(app, version) as client:
        await follow(client, "a://1")
        thread = threading.Thread(target=app.notify_resource_updated, args=("a://1",))
        thread.start()
        assert (await client.next())["params"]["uri"] == "a://1"
        thread.join()


@pytest.mark.parametrize("version", ERAS)
async def test_updates_without_a_loop_or_a_subscriber_are_dropped(version: str) -> None:
    app = server()
    await asyncio.to_thread(app.notify_resource_updated, "a://1")  # no loop runs there
    async with wire(app, version) as client:
        app.notify_resource_updated("a://1")
        await follow(client, "a://1")
        assert await client.silence() == []
        app.notify_resource_updated("a://1")
        assert [message["method"] for message in await client.silence()] == [UPDATED]


@pytest.mark.parametrize("version", ERAS)
async def test_there_is_a_bound_for_each_client(version: str) -> None:
    app = server(limits=Limits(max_subscriptions=3))
    async with wire(app, version) as client, wire(app, version) as other:
        await follow(client, "a://1", "a://2")
        await follow(client, "a://3")
        if version == MODERN:
            asked = {"notifications": {"resourceSubscriptions": ["a://4"]}}
            error = (await client.ask("subscriptions/listen", asked))["error"]
        else:
            await follow(client, "a://3")  # the same again is no more
            error = (await client.ask("resources/subscribe", {"uri": "a://4"}))["error"]
        assert "max_subscriptions" in error["message"]
        await follow(other, "a://4")


# Legacy


async def test_unsubscribing() -> None:
    app = server()
    async with wire(app, LEGACY) as client:
        await follow(client, "a://1", "a://2")
        assert (await client.ask("resources/unsubscribe", {"uri": "a://1"}))["result"] == {}
        assert (await client.ask("resources/unsubscribe", {"uri": "a://9"}))["result"] == {}
        app.notify_resource_updated("a://1")
        app.notify_resource_updated("a://2")
        assert [message["params"]["uri"] for message in await client.silence()] == ["a://2"]


async def test_following_what_is_not_there_is_refused() -> None:
    async with wire(server(), LEGACY) as client:
        error = (await client.ask("resources/subscribe", {"uri": "nothing://"}))["error"]
        assert error["code"] == -32002


async def test_the_modern_way_is_not_for_legacy_sessions_nor_the_other_way_round() -> None:
    app = server()
    async with wire(app, LEGACY) as client:
        answer = await client.ask("subscriptions/listen", {"notifications": {}})
        assert answer["error"]["code"] in (-32601, -32602)
    async with wire(app, MODERN) as client:
        answer = await client.ask("resources/subscribe", {"uri": "a://1"})
        assert answer["error"]["code"] == -32601


# Modern


async def test_the_acknowledgement_comes_first_and_says_what_was_granted() -> None:
    app = server()
    async with wire(app) as client:
        asked = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["a://1", "nothing://", "a://1"],
        }
        id = client.request("subscriptions/listen", {"notifications": asked}, id="sub")
        app.notify_resource_updated("a://1")  # nothing before the acknowledgement
        first = await client.next()
        assert id == "sub"
        assert first["method"] == ACKNOWLEDGED
        assert first["params"]["_meta"] == {ID: "sub"}
        assert first["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["a://1"],
        }


async def test_every_message_carries_the_id_of_its_subscription() -> None:
    app = server()
    async with wire(app) as client:
        one = await follow(client, "a://1")
        two = await follow(client, "a://1", "a://2")
        app.notify_resource_updated("a://1")
        app.notify_resource_updated("a://2")
        told = [(m["params"]["uri"], m["params"]["_meta"][ID]) for m in await client.silence()]
        assert told == [("a://1", one), ("a://1", two), ("a://2", two)]


async def test_kinds_not_asked_for_are_not_told() -> None:
    app = server()
    async with wire(app) as client:
        client.request("subscriptions/listen", {"notifications": {"resourcesListChanged": True}})
        acknowledged = await client.next()
        assert acknowledged["params"]["notifications"] == {"resourcesListChanged": True}
        app.add_tool(lambda: 1, name="new")
        app.notify_resource_updated("a://1")
        assert await client.silence() == []
        app.add_resource("c://1", lambda: "x", name="c")
        (told,) = await client.silence()
        assert told["method"] == "notifications/resources/list_changed"


async def test_a_modern_client_that_asked_for_nothing_is_told_nothing() -> None:
    app = server()
    async with wire(app) as client:
        await client.ask("tools/list")
        app.add_tool(lambda: 1, name="new")
        app.notify_resource_updated("a://1")
        assert await client.silence() == []


async def test_cancelling_ends_a_subscription_without_an_answer() -> None:
    app = server()
    async with wire(app) as client:
        kept = await follow(client, "a://1")
        id = await follow(client, "a://1", "a://2")
        client.cancel(id)
        app.notify_resource_updated("a://1")
        app.notify_resource_updated("a://2")
        told = await client.silence()
        assert [message["params"]["_meta"][ID] for message in told] == [kept]
        assert counts(app)[0] == 1
        await follow(client, "a://2")


async def test_shutting_down_ends_subscriptions_with_a_result() -> None:
    app = server()
    async with wire(app) as client:
        ids = [await follow(client, "a://1"), await follow(client, "a://2")]
        (connection,) = app.core.roster
        await connection.drain(1.0)
        for id in ids:
            answer = await client.answer_to(id)
            assert answer["result"]["resultType"] == "complete"
            assert answer["result"]["_meta"][ID] == id
        assert client.lost_reason is None
        assert counts(app) == (0, 0)


async def test_many_open_subscriptions_leave_room_for_calls() -> None:
    """Listening is no work: it counts neither as busy nor towards the calls in hand."""
    app = server(limits=Limits(max_in_flight=4))
    async with wire(app) as client:
        for _ in range(20):
            await follow(client, "a://1")
        assert "result" in await client.call("tool")
        (connection,) = app.core.roster
        await asyncio.wait_for(connection.drain(60.0), 30)


class Guarded(Handler):
    """A handler that lets people follow only what is public."""

    async def list_resources(self, cursor: Any, ctx: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[])

    async def subscribe(self, uri: str, ctx: Any) -> None:
        await asyncio.sleep(0)
        if uri == "broken://":
            raise RuntimeError("broken")
        if not uri.startswith("public://"):
            raise McpError(-32602, "private")


async def test_the_handler_decides_in_both_eras() -> None:
    app = Server("guarded", handler=Guarded())
    async with wire(app, LEGACY) as client:
        assert "result" in await client.ask("resources/subscribe", {"uri": "public://1"})
        assert "error" in await client.ask("resources/subscribe", {"uri": "private://1"})
    async with wire(app, MODERN) as client:
        wanted = {"resourceSubscriptions": ["private://1", "public://1", "broken://"]}
        client.request("subscriptions/listen", {"notifications": wanted})
        granted = (await client.next())["params"]["notifications"]
        assert granted == {"resourceSubscriptions": ["public://1"]}
        app.notify_resource_updated("private://1")
        assert await client.silence() == []


async def test_a_subscription_cancelled_while_the_handler_thinks() -> None:
    app = Server("guarded", handler=Guarded())
    async with wire(app) as client:
        wanted = {"resourceSubscriptions": ["public://1"]}
        id = client.request("subscriptions/listen", {"notifications": wanted})
        client.cancel(id)
        assert await client.silence() == []
        assert counts(app)[0] == 0


@pytest.mark.parametrize("version", ERAS)
async def test_an_update_reaches_every_spelling_under_its_own(version: str) -> None:
    app = server()
    app.add_resource("b://{name}", lambda name: name, name="b")
    async with wire(app, version) as client, wire(app, version) as other:
        await follow(client, "b://caf%c3%A9")
        await follow(other, "b://c%61f\u00e9")
        app.notify_resource_updated("b://caf\u00e9")
        assert (await client.next())["params"]["uri"] == "b://caf%c3%A9"
        assert (await other.next())["params"]["uri"] == "b://c%61f\u00e9"


async def test_a_token_with_fewer_scopes_ends_the_subscriptions_it_does_not_allow() -> None:
    app = Server("vault")
    app.add_resource("vault://gold", lambda: "x", name="gold", scopes=["gold"])
    app.add_resource("vault://iron", lambda: "x", name="iron")
    async with wire(app, LEGACY, principal=Principal("ann", scopes=["gold"])) as client:
        for uri in ("vault://gold", "vault://iron"):
            assert "result" in await client.ask("resources/subscribe", {"uri": uri})
        (connection,) = app.core.roster
        connection.recognize(Principal("ann"))
        app.notify_resource_updated("vault://gold")
        app.notify_resource_updated("vault://iron")
        updated = [m["params"]["uri"] for m in await client.silence() if "updated" in m["method"]]
        assert updated == ["vault://iron"]
