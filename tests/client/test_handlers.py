"""Handlers that are set and removed while the client is connected."""

from typing import Any

import pytest

from mcpearl import Client, Context, Server
from tests.waiting import eventually

from .peers import client_of, legacy_peer, modern_peer


async def test_a_handler_takes_one_kind_of_notification() -> None:
    heard: list[str] = []
    others: list[str] = []
    peer = legacy_peer()
    async with await client_of(peer, on_notification=lambda n: others.append(n.method)) as client:
        client.on("notifications/tools/list_changed", lambda params: heard.append("tools"))
        peer.send(method="notifications/tools/list_changed")
        peer.send(method="notifications/prompts/list_changed")
        await eventually(lambda: others == ["notifications/prompts/list_changed"])
        assert heard == ["tools"]
        client.on("notifications/tools/list_changed", None)
        peer.send(method="notifications/tools/list_changed")
        await eventually(lambda: len(others) == 2)
        assert heard == ["tools"]


@pytest.mark.parametrize("make", [legacy_peer, modern_peer])
async def test_a_notification_of_an_extension_comes_as_a_dict(make: Any) -> None:
    heard: list[Any] = []
    peer = make()
    async with await client_of(peer) as client:
        peer.send(method="notifications/com.example/moved", params={"x": 0})  # for nobody yet
        client.on("notifications/com.example/moved", heard.append)
        peer.send(method="notifications/com.example/moved", params={"x": 1, "_meta": {"a": 2}})
        await eventually(lambda: heard == [{"x": 1, "_meta": {"a": 2}}])
        client.on("notifications/com.example/moved", None)
        peer.send(method="notifications/com.example/moved", params={"x": 2})
        await client.ping() if client.era == "modern" else None
    assert len(heard) == 1


async def test_a_request_of_an_extension_is_answered() -> None:
    async def locate(params: dict[str, Any]) -> dict[str, Any]:
        return {"found": params["what"]}

    peer = legacy_peer()
    async with await client_of(peer) as client:
        peer.send(id=1, method="com.example/locate", params={"what": "keys"})
        await eventually(lambda: peer.answered(1)["error"]["code"] == -32601)
        client.on("com.example/locate", locate)
        peer.send(id=2, method="com.example/locate", params={"what": "keys"})
        await eventually(lambda: peer.answered(2)["result"] == {"found": "keys"})
        client.on("com.example/locate", lambda params: [1])
        peer.send(id=3, method="com.example/locate")
        await eventually(lambda: peer.answered(3)["error"]["code"] == -32603)
        client.on("com.example/locate", None)
        peer.send(id=4, method="com.example/locate")
        await eventually(lambda: peer.answered(4)["error"]["code"] == -32601)


async def test_a_handler_of_log_messages_asks_for_them() -> None:
    app = Server("talkative")

    @app.tool
    async def speak(ctx: Context) -> None:
        await ctx.log("info", "hello")

    heard: list[str] = []
    async with Client(app) as client:
        client.on("notifications/message", lambda params: heard.append(params.data))
        await client.call_tool("speak")
        await eventually(lambda: heard == ["hello"])


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("sampling/createMessage", r"pass `Client\(sampling=…\)`"),
        ("notifications/progress", "pass `on_progress=`"),
        ("ping", "by the client itself"),
    ],
)
async def test_what_has_its_own_place_is_refused(method: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Client(Server("s")).on(method, print)


async def test_a_handler_is_a_function_and_there_are_not_too_many() -> None:
    client = Client(Server("s"))
    with pytest.raises(TypeError, match="is a int, not a function"):
        client.on("notifications/x", 3)  # type: ignore[arg-type]
    for number in range(1000):
        client.on(f"notifications/{number}", print)
    with pytest.raises(ValueError, match="at most 1000 handlers"):
        client.on("notifications/1000", print)
    client.on("notifications/7", None)
    client.on("notifications/1000", print)
