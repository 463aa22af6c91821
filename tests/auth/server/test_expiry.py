"""What stays open ends with the token it was opened with: streams, subscriptions, WebSockets."""

import asyncio
import json
from typing import Any

import pytest
import websockets

from mcpearl.auth import JWTVerifier
from mcpearl.runtime import clock as source
from mcpearl.testing.clock import MovableClock
from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import as_bearer, bearer, make_app
from tests.transports.raw_http import Raw, message, meta, modern, serving
from tests.waiting import eventually

PAST = 61.0  # seconds after which the token of `short` has expired


def verifier_of(issuer: Issuer) -> JWTVerifier:
    return JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url, leeway=0)


def short(issuer: Issuer, **claims: Any) -> str:
    """Make a token that is over once the clock is moved by `PAST`."""
    return issuer.token(exp=int(source.now()) + 60, **claims)


async def test_a_standing_stream_ends_and_is_resumed(issuer: Issuer, clock: MovableClock) -> None:
    app = make_app(auth=verifier_of(issuer))
    async with serving(app) as client:
        session = await client.initialize(**bearer(short(issuer)))  # type: ignore[arg-type]
        subscribed = await session.ask("resources/subscribe", {"uri": "notes://public"})
        assert subscribed.status == 200
        stream = await session.get()
        app.notify_resource_updated("notes://public")
        event = await stream.event()
        while event is not None and "notes://public" not in event.get("data", ""):
            event = await stream.event()
        assert event is not None
        clock.move(PAST)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            while await stream.event() is not None:
                pass
            raise ConnectionError("the stream ended in order")
        assert (await session.get()).status == 401
        app.notify_resource_updated("notes://public")
        session.headers |= bearer(issuer.token())
        resumed = await session.get({"Last-Event-ID": event["id"]})
        assert (await resumed.next())["params"]["uri"] == "notes://public"
        resumed.close()


async def test_a_session_of_the_old_transport_ends(issuer: Issuer, clock: MovableClock) -> None:
    async with serving(make_app(auth=verifier_of(issuer)), http_sse=True) as client:
        headers = {"Accept": "text/event-stream", **bearer(short(issuer))}
        stream = await client.request("GET", headers, path="/sse")
        first = await stream.event()
        assert first is not None
        clock.move(PAST)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            while await stream.event() is not None:
                pass
            raise ConnectionError("the stream ended in order")
        data = json.dumps(message("ping")).encode()
        posted = {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **bearer(issuer.token()),
        }
        assert (await client.request("POST", posted, data, path=first["data"])).status == 404


async def test_a_subscription_ends_with_its_result(issuer: Issuer, clock: MovableClock) -> None:
    app = make_app(auth=verifier_of(issuer))
    async with serving(app) as client:
        params = {"notifications": {"toolsListChanged": True}}
        headers, body = modern("subscriptions/listen", params, id="listen")
        answer = await as_bearer(client, short(issuer)).post(body, headers)
        first = await answer.next()
        clock.move(PAST)
        *_, last = await answer.rest()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert last["id"] == "listen"
        assert "result" in last
        assert app.core.subscriptions.counts()["tools"] == 0


async def test_a_client_that_leaves_earlier_leaves_nothing_behind(issuer: Issuer) -> None:
    app = make_app(auth=verifier_of(issuer))
    async with serving(app) as client:
        caller: Raw = as_bearer(client, issuer.token())
        headers, body = modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        for _ in range(5):
            answer = await caller.post(body, headers)
            await answer.next()
            answer.close()
        await eventually(lambda: not app.core.subscriptions.counts()["tools"])
        (solo,) = app.connections
        assert solo._listening._ends == {}


async def test_a_websocket_is_closed(issuer: Issuer, clock: MovableClock) -> None:
    async with serving(make_app(auth=verifier_of(issuer)), websocket="/ws") as client:
        url = f"ws://127.0.0.1:{client.port}/ws"
        headers = {"Authorization": f"Bearer {short(issuer)}"}
        subprotocols = [websockets.Subprotocol("mcp")]
        async with websockets.connect(
            url, additional_headers=headers, subprotocols=subprotocols
        ) as socket:
            await socket.send(json.dumps(message("tools/list", {"_meta": meta()})))
            assert "result" in json.loads(await socket.recv())
            clock.move(PAST)
            with pytest.raises(websockets.ConnectionClosed):
                async with asyncio.timeout(30):
                    while True:
                        await socket.recv()
