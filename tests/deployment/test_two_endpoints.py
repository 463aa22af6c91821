"""Two HTTP endpoints of one process with a store: a session may use both, as if they were machines."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mcpearl import Http
from tests.deployment.machines import make_app, text_of
from tests.ports import free_port
from tests.redis_server import fresh_address
from tests.transports.raw_http import Raw, Session, message
from tests.transports.wires import serving
from tests.waiting import eventually

Endpoints = tuple[Raw, Raw]


@pytest.fixture
async def ends() -> AsyncIterator[Endpoints]:
    ports = free_port(), free_port()
    app = make_app(fresh_address())
    async with serving(app, *(Http(port=port, http_sse=True) for port in ports)):
        yield Raw(ports[0]), Raw(ports[1])


def at(raw: Raw, session: Session) -> Session:
    """Return the same session, as a client whose requests land at another endpoint."""
    taken = Session(raw.port)
    taken.id, taken.headers = session.id, dict(session.headers)
    return taken


@pytest.mark.parametrize("batched", [False, True])
async def test_an_answer_finds_the_endpoint_that_waits(ends: Endpoints, batched: bool) -> None:
    one, two = ends
    begun = await one.initialize("2025-03-26")
    asking = await begun.use("ask")
    question = await asking.next()
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
    assert (await at(two, begun).post([reply] if batched else reply)).status == 202
    assert text_of((await asking.rest())[-1]) == "decline"


async def test_a_cancellation_finds_the_endpoint_that_runs_the_call(ends: Endpoints) -> None:
    one, two = ends
    begun = await one.initialize()
    call = await begun.use("count", {"to": 1}, id=7, token="t")
    assert (await call.next())["method"] == "notifications/progress"
    cancelled = message("notifications/cancelled", {"requestId": 7}, id=None)
    assert (await at(two, begun).post(cancelled)).status == 202
    assert await call.rest() == []


async def test_a_change_of_a_session_is_known_at_both(ends: Endpoints) -> None:
    one, two = ends
    begun = await one.initialize()
    taken = at(two, begun)
    assert "result" in (await taken.ask("ping")).json
    assert "result" in (await taken.ask("logging/setLevel", {"level": "error"})).json
    log, answer = await (await begun.use("known")).rest()
    assert (log["params"]["data"], text_of(answer)) == ("wanted", "raw in 2025-11-25")


async def test_a_session_that_ends_at_one_has_ended_at_the_other(ends: Endpoints) -> None:
    one, two = ends
    begun = await one.initialize()
    taken = at(two, begun)
    assert "result" in (await taken.ask("ping")).json
    assert (await begun.delete()).status == 204
    assert (await taken.ask("ping")).status == 404
    assert (await begun.ask("ping")).status == 404


async def test_a_stream_that_moves_to_the_other_endpoint_hears_everything(ends: Endpoints) -> None:
    one, two = ends
    begun = await one.initialize()
    taken = at(two, begun)
    assert "result" in (await taken.ask("resources/subscribe", {"uri": "config://a"})).json
    first = await begun.get()
    second = await taken.get()
    first.close()
    app = await at(one, begun).use("touch")
    assert text_of(app.json) == "touched"
    assert (await second.next())["params"] == {"uri": "config://a"}
    second.close()


async def test_a_message_of_the_old_transport_finds_its_stream(ends: Endpoints) -> None:
    one, two = ends
    stream = await one.request("GET", {"Accept": "text/event-stream"}, path="/sse")
    place = (await stream.event() or {})["data"]
    params = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    accepted = await two.post(message("initialize", params, 1), path=place)
    assert accepted.status == 202
    async with asyncio.timeout(10):
        assert (await stream.next())["id"] == 1
    stream.close()


async def test_an_endpoint_that_closed_is_forgotten(ends: Endpoints) -> None:
    app = make_app(fresh_address())
    ports = free_port(), free_port()
    async with serving(app, *(Http(port=port) for port in ports)):
        assert app.shared is not None
        assert len(app.shared.sessions._watchers) == 2  # type: ignore[attr-defined]
    await eventually(lambda: not app.shared.sessions._watchers)  # type: ignore[union-attr]
