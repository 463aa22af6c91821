"""Outside of calls: the sessions of a server, and the functions that hear of clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Server, Session, Transport
from mcpearl.types import CreateMessageResult, ElicitResult, Implementation, Root, TextContent
from tests.transports import wires
from tests.waiting import eventually

LEGACY = "2025-11-25"
WIRES = ("memory", "http", "tcp", "unix", "ws", "mounted")


@pytest.fixture(params=WIRES)
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    app = Server("any")
    async with wires.place(request.param, tmp_path_factory.mktemp("w"), app) as place:
        yield place


async def answer(form: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={})


async def model(request: Any) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(text="a haiku"), model="m", stop_reason="endTurn"
    )


async def test_a_session_is_spoken_to_without_a_call(place):
    app, heard = place.app, []
    client = await place.client(
        protocol=LEGACY,
        on_log=lambda message: heard.append(message.data),
        elicitation=answer,
        sampling=model,
        roots=[Root(uri="file:///work")],
    )
    assert app.sessions == ()
    async with client:
        (session,) = await eventually(lambda: app.sessions)
        assert session is app.sessions[0]
        assert session.client.name
        assert session.protocol == LEGACY
        assert session.principal is None
        assert (session.id is not None) == (place.wire == "http")
        assert session.capabilities.roots is not None
        await session.log("warning", "hello")
        await eventually(lambda: heard == ["hello"])
        assert [root.uri for root in await session.roots()] == ["file:///work"]
        assert (await session.elicit("Sure?")).accepted
        assert (await session.sample("write")).content.text == "a haiku"
        await session.notify("notifications/tools/list_changed")
        assert not session.closed
    await eventually(lambda: app.sessions == () or place.wire == "http")
    if place.wire == "http":
        await session.close()
        await eventually(lambda: app.sessions == ())
    assert session.closed
    assert LEGACY in repr(session)
    await session.log("warning", "to nobody")
    with pytest.raises(ConnectionLost, match="the client has left"):
        await session.roots()


async def test_a_session_can_be_ended(place):
    client = await place.client(protocol=LEGACY)
    async with client:
        (session,) = await eventually(lambda: place.app.sessions)
        await asyncio.wait_for(session.close(), 30)
        assert session.closed
        with pytest.raises(Exception):  # noqa: B017 (each wire has its own way to say it)
            await client.ping()
            await client.ping()


async def test_modern_clients_have_no_session(place):
    async with await place.client(protocol="2026-07-28") as client:
        await client.ping()
        assert place.app.sessions == ()


async def test_functions_hear_of_arrival_and_end(place):
    app, heard = place.app, []

    @app.on_session
    def plain(session: Session) -> None:
        heard.append("plain")

    @app.on_session
    async def greeted(session: Session) -> AsyncIterator[None]:
        heard.append(f"came {session.client.name}")
        yield
        heard.append("left")

    @app.on_session
    async def beside(session: Session) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("cancelled")

    @app.on_session
    def broken(session: Session) -> None:
        raise RuntimeError("of the application")

    client = await place.client(protocol=LEGACY, info=Implementation(name="visitor", version="1"))
    async with client:
        (session,) = await eventually(lambda: app.sessions)
        await eventually(lambda: sorted(heard) == ["came visitor", "plain"])
        if place.wire == "http":
            await session.close()
    await eventually(lambda: sorted(heard) == ["came visitor", "cancelled", "left", "plain"])


async def test_functions_hear_of_notifications(place):
    app, heard, all_of_them = place.app, [], []

    @app.on_notification("notifications/roots/list_changed")
    async def changed(notice: Any, caller: Any) -> None:
        heard.append([root.uri for root in await caller.session.roots()])

    @app.on_notification
    def everything(notice: Any, caller: Any) -> None:
        all_of_them.append(notice.method)
        raise RuntimeError("of the application")

    client = await place.client(protocol=LEGACY, roots=[Root(uri="file:///a")])
    async with client:
        await eventually(lambda: app.sessions)
        client.notify_roots_changed()
        await eventually(lambda: heard == [["file:///a"]])
        assert "notifications/roots/list_changed" in all_of_them
        await client.ping()


async def test_a_client_that_initializes_again_is_a_new_session():
    app, heard = Server("any"), []

    @app.on_session
    async def came(session: Session) -> AsyncIterator[None]:
        heard.append(f"came {session.client.name}")
        yield
        heard.append(f"left {session.client.name}")

    def initialize(name: str) -> list[bytes]:
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        }
        first = {"jsonrpc": "2.0", "id": name, "method": "initialize", "params": params}
        second = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        return [json.dumps(message).encode() for message in (first, second)]

    async with app.running():
        connection = await app.connect(NullAlike())
        for name in ("one", "two"):
            connection.received(initialize(name))
            assert [session.client.name for session in app.sessions] == [name]
        connection.lost(None)
        await eventually(lambda: sorted(heard) == ["came one", "came two", "left one", "left two"])
    assert app.sessions == ()


class NullAlike(Transport):
    """A transport that nobody reads."""

    async def open(self, receiver: Any) -> None:
        pass

    def send(self, message: bytes, about: Any = None) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_the_log_tells_of_sessions_without_their_ids(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    app = Server("any")
    info = Implementation(name="visitor", version="9")
    async with app.serving("http", port=0) as url, Client(url, protocol=LEGACY, info=info):
        (session,) = await eventually(lambda: app.sessions)
        name = session.id
    assert "session begun: <Session of visitor 9, 2025-11-25>" in caplog.text
    assert "session ended" in caplog.text
    assert name not in caplog.text


async def test_functions_that_wait_are_bounded(monkeypatch: Any, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr("mcpearl.server.attendants.MOST", 2)
    app, running = Server("any"), []

    @app.on_notification("notifications/roots/list_changed")
    async def waits(notice: Any, caller: Any) -> None:
        running.append(1)
        await asyncio.Event().wait()

    async with Client(app, protocol=LEGACY, roots=[Root(uri="file:///a")]) as client:
        for _ in range(5):
            client.notify_roots_changed()
        await eventually(lambda: "`waits` was not called: 2 such functions wait" in caplog.text)
        await eventually(lambda: len(running) == 2)
        await client.ping()
