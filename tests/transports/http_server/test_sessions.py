"""Legacy sessions over HTTP as raw requests see them: how they begin, speak, break and end."""

import asyncio
import gc
import string
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl import Context, Server
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.memory_events import MAX_ENDED
from mcpearl.stores.memory_sessions import MemorySessionStore
from mcpearl.stores.sessions import SessionRecord
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.http_server.sessions import MAX_BESIDE
from tests.across import SharedFlag
from tests.transports.by_name import ByName
from tests.transports.http_server.conftest import at_one_server, in_one_process
from tests.transports.raw_http import (
    HANGS,
    LEGACY,
    Raw,
    Response,
    Session,
    message,
    modern,
    serving,
)
from tests.waiting import eventually, turns

pytestmark = pytest.mark.usefixtures("store")

INITIALIZE = message(
    "initialize",
    {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
)


class Gate:
    """Holds a tool in the middle of its work."""

    def __init__(self) -> None:
        self.reached = SharedFlag()
        self.opened = SharedFlag()
        self.cancelled = SharedFlag()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await asyncio.wait_for(self.opened.wait(), HANGS)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def make_app(gate: Gate | None = None, **options: Any) -> Server:
    app = Server("raw", grace=1.0, **options)

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.progress(number + 1, to)
        return "done"

    @app.tool
    async def wait(ctx: Context) -> str:
        """Report progress, wait at the gate, report again."""
        assert gate is not None
        await ctx.progress(1)
        await gate.wait()
        await ctx.progress(2)
        return "through"

    @app.tool
    async def wait_quietly() -> str:
        assert gate is not None
        await gate.wait()
        return "through"

    @app.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Go on?")
        return str(answer.action)

    @app.resource("config://app")
    def config() -> str:
        return "on"

    return app


@pytest.fixture
async def client() -> AsyncIterator[Raw]:
    async with serving(make_app()) as raw:
        yield raw


async def until_unread(app: Server, further: bool = False) -> None:
    """Wait until the server knows that the first standing stream, or the further one, is not read."""
    (connection,) = app.core.roster
    session = connection.transport
    (stream,) = session._beside() if further else (session.standing(),)
    await eventually(lambda: not stream.read)


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


# Beginning


async def test_initialize_gives_an_id_of_visible_characters(client: Raw) -> None:
    session = await client.initialize()
    assert len(session.id) >= 32
    assert set(session.id) <= set(string.ascii_letters + string.digits + string.punctuation)
    assert text_of((await session.use("echo", {"text": "hello"})).json) == "hello"


async def test_any_id_of_the_request_begins_a_session(client: Raw) -> None:
    answer = await client.post({**INITIALIZE, "id": "error"})
    assert "mcp-session-id" in answer.headers


async def test_an_initialize_that_is_refused_begins_none(client: Raw) -> None:
    answer = await client.post(message("initialize", {"capabilities": {}}, "i" * 500))
    assert answer.code == -32602
    assert "mcp-session-id" not in answer.headers


async def test_an_initialize_that_is_a_notification_begins_none() -> None:
    for options in ({}, {"session_store": MemorySessionStore()}):
        app = make_app()
        async with serving(app, **options) as client:
            answer = await client.post({key: INITIALIZE[key] for key in INITIALIZE if key != "id"})
            assert answer.status == 400
            assert "mcp-session-id" not in answer.headers
            assert not len(app.core.roster)


async def test_a_session_that_cannot_be_given_an_id_ends() -> None:
    class Broken(MemorySessionStore):
        def new_id(self, record: SessionRecord) -> str:
            raise StoreUnavailable("it is away")

    app = make_app()
    async with serving(app, session_store=Broken()) as client:
        assert (await client.post(INITIALIZE)).status == 503
        assert not len(app.core.roster)


async def test_a_modern_call_in_a_batch_of_a_session_does_not_run(client: Raw) -> None:
    """Its headers could not repeat what it says."""
    session = await client.initialize("2025-03-26")
    _, call = modern("tools/call", {"name": "echo", "arguments": {"text": "ran"}})
    answer = await session.post([call])
    assert answer.json[0]["error"]["code"] == -32600


async def test_a_request_names_its_session(client: Raw) -> None:
    session = await client.initialize()
    for id, status in ((None, 400), ("unknown", 404), (session.id, 200), (session.id + "x", 404)):
        answer = await client.post(message("ping"), {"Mcp-Session-Id": id})
        assert answer.status == status
        got = await client.get({"Mcp-Session-Id": id})
        assert got.status == status
        got.close()


async def test_versions_the_header_may_name(client: Raw) -> None:
    session = await client.initialize()
    for version, status in ((None, 200), ("2025-06-18", 200), ("1999-01-01", 400), ("é", 400)):
        session.headers["MCP-Protocol-Version"] = version
        assert (await session.ask("ping")).status == status
        got = await session.get()
        assert got.status == status
        got.close()
    session.headers["MCP-Protocol-Version"] = "1999-01-01"
    assert (await session.delete()).status == 400


async def test_a_session_belongs_to_the_caller_that_began_it() -> None:
    async with serving(make_app(), auth=ByName()) as client:
        session = await client.initialize(**{"X-User": "ann"})
        assert (await session.ask("ping")).status == 200
        session.headers["X-User"] = "bob"
        assert (await session.ask("ping")).status == 404
        assert (await session.get()).status == 404
        assert (await session.delete()).status == 404
        session.headers["X-User"] = "ann"
        assert (await session.ask("ping")).status == 200


async def test_a_session_and_modern_requests_are_served_side_by_side(client: Raw) -> None:
    session = await client.initialize()
    headers, body = modern("tools/list")
    assert (await session.post(body, headers)).json["result"]["tools"]
    assert (await session.ask("tools/list")).json["result"]["tools"]


# Speaking


async def test_an_answer_is_a_stream_only_if_something_comes_before_it(client: Raw) -> None:
    session = await client.initialize()
    assert not (await session.use("count", {"to": 2})).is_stream
    stream = await session.use("count", {"to": 2}, token="t")
    assert stream.is_stream
    *progress, last = await stream.rest()
    assert [each["params"]["progress"] for each in progress] == [1, 2]
    assert text_of(last) == "done"


async def test_a_long_silence_before_an_answer_is_filled_with_signs_of_life() -> None:
    gate = Gate()
    async with serving(make_app(gate), keep_alive=0.05) as client:
        session = await client.initialize()
        streams = [await session.use("wait_quietly"), await client.call("wait_quietly")]
        reading = [asyncio.create_task(stream.rest()) for stream in streams]
        await eventually(lambda: all(stream.comments >= 2 for stream in streams))
        gate.opened.set()
        for messages in await asyncio.gather(*reading):
            assert text_of(messages[-1]) == "through"


@pytest.mark.parametrize(("version", "primed"), [(LEGACY, True), ("2025-06-18", False)])
async def test_a_stream_begins_with_an_empty_event_where_clients_know_it(
    client: Raw, version: str, primed: bool
) -> None:
    session = await client.initialize(version)
    stream = await session.use("count", {"to": 1}, token="t")
    first = await stream.event()
    assert first is not None and first["id"]
    assert (first["data"] == "") is primed
    assert text_of((await stream.rest())[-1]) == "done"


async def test_a_request_to_the_client_goes_on_the_stream_of_its_call(client: Raw) -> None:
    session = await client.initialize()
    stream = await session.use("ask")
    request = await stream.next()
    assert request["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}}
    accepted = await session.post(answer)
    assert (accepted.status, accepted.body) == (202, b"")
    (last,) = await stream.rest()
    assert text_of(last) == "decline"


async def test_an_answer_from_another_session_is_none(client: Raw) -> None:
    session, other = await client.initialize(), await client.initialize()
    stream = await session.use("ask")
    request = await stream.next()
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept"}}
    assert (await other.post(answer)).status == 202
    assert (await session.post({**answer, "result": {"action": "cancel"}})).status == 202
    assert text_of((await stream.rest())[-1]) == "cancel"


async def test_the_standing_stream_tells_what_changed() -> None:
    app = make_app()
    async with serving(app) as client:
        session = await client.initialize()
        stream = await session.get()
        assert stream.status == 200
        await session.ask("resources/subscribe", {"uri": "config://app"})
        app.notify_resource_updated("config://app")
        assert (await stream.next())["params"] == {"uri": "config://app"}
        app.remove_tool("echo")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_sessions_do_not_hear_each_other() -> None:
    app = make_app()
    async with serving(app) as client:
        one, two = await client.initialize(), await client.initialize()
        streams = [await one.get(), await two.get()]
        await one.ask("resources/subscribe", {"uri": "config://app"})
        app.notify_resource_updated("config://app")
        app.notify_list_changed("tools")
        assert (await streams[0].next())["method"] == "notifications/resources/updated"
        assert (await streams[1].next())["method"] == "notifications/tools/list_changed"
        for stream in streams:
            stream.close()


@in_one_process("a client without a position hears again what was sent just now")
async def test_each_message_goes_on_one_standing_stream_only() -> None:
    app = make_app()
    async with serving(app) as client:
        session = await client.initialize()
        await session.ask("resources/subscribe", {"uri": "config://app"})
        app.notify_resource_updated("config://app")  # before anybody reads
        first = await session.get()
        assert (await first.next())["method"] == "notifications/resources/updated"
        second = await session.get()
        app.notify_list_changed("tools")
        assert (await second.next())["method"] == "notifications/tools/list_changed"
        second.close()  # the newest; one that vanished before it may still seem to be read
        await session.ask("ping")
        await until_unread(app, further=True)
        app.notify_resource_updated("config://app")
        assert (await first.next())["method"] == "notifications/resources/updated"
        third = await session.get()
        app.notify_list_changed("tools")
        assert (await third.next())["method"] == "notifications/tools/list_changed"
        assert (await session.delete()).status == 204
        assert await first.rest() == await third.rest() == []


@at_one_server("each server counts the streams it has")
async def test_a_session_has_a_bounded_number_of_streams() -> None:
    async with serving(make_app()) as client:
        session = await client.initialize()
        streams = [await session.get() for _ in range(MAX_BESIDE + 1)]
        refused = await session.get()
        assert refused.status == 503
        assert "Too many streams of this session" in refused.json["error"]["message"]
        for stream in streams:
            stream.close()


@pytest.mark.inside("waits until a server knows that a reader is gone")
async def test_a_further_stream_is_resumed_too() -> None:
    app = make_app()
    async with serving(app) as client:
        session = await client.initialize()
        await session.ask("resources/subscribe", {"uri": "config://app"})
        first = await session.get()
        second = await session.get()
        begun = await second.event()  # the empty one
        assert begun is not None
        first.close()
        await until_unread(app)
        app.notify_resource_updated("config://app")
        assert (await second.next())["method"] == "notifications/resources/updated"
        second.close()
        again = await session.get({"Last-Event-ID": begun["id"]})
        assert (await again.next())["method"] == "notifications/resources/updated"
        again.close()


async def test_batches_in_the_version_that_has_them(client: Raw) -> None:
    session = await client.initialize("2025-03-26")
    answer = await session.post([message("ping", id=1), message("ping", id=2)])
    assert sorted(each["id"] for each in answer.json) == [1, 2]
    note = message("notifications/roots/list_changed", id=None)
    assert (await session.post([note, note])).status == 202
    calls = [
        message("tools/call", {"name": "echo", "arguments": {"text": str(id)}}, id)
        for id in range(3)
    ]
    assert sorted(map(text_of, (await session.post(calls)).json)) == ["0", "1", "2"]
    newer = await client.initialize()
    assert (await newer.post([message("ping")])).status == 400


async def test_a_cancelled_call_ends_its_response_without_an_answer() -> None:
    for tool in ("wait", "wait_quietly"):
        gate = Gate()
        async with serving(make_app(gate)) as client:
            session = await client.initialize()
            call = asyncio.create_task(session.use(tool, id=7, token="t"))
            await asyncio.wait_for(gate.reached.wait(), HANGS)
            await session.post(message("notifications/cancelled", {"requestId": 7}, id=None))
            await asyncio.wait_for(gate.cancelled.wait(), HANGS)
            messages = await (await asyncio.wait_for(call, HANGS)).rest()
            assert all("result" not in each and "error" not in each for each in messages)


# Breaking and coming back


async def broken(session: Session, gate: Gate) -> str:
    """Call a tool, hang up in the middle of its stream; the id of the last event that came."""
    stream = await session.use("wait", token="t")
    event: dict[str, str] | None = {}
    while event is not None and not event.get("data", "").strip():
        event = await stream.event()
    assert event is not None
    await asyncio.wait_for(gate.reached.wait(), HANGS)
    stream.close()
    return event["id"]


@pytest.mark.parametrize("finished", [False, True], ids=["running", "finished"])
async def test_a_broken_stream_goes_on_where_it_broke(finished: bool) -> None:
    gate = Gate()
    async with serving(make_app(gate)) as client:
        session = await client.initialize()
        last = await broken(session, gate)
        await turns()
        assert not gate.cancelled.is_set()
        if finished:
            gate.opened.set()
            await turns()
        again = await session.get({"Last-Event-ID": last})
        gate.opened.set()
        progress, answer = await again.rest()
        assert (progress["params"]["progress"], text_of(answer)) == (2, "through")


async def test_a_broken_standing_stream_goes_on_where_it_broke() -> None:
    app = make_app()
    async with serving(app) as client:
        session = await client.initialize()
        await session.ask("resources/subscribe", {"uri": "config://app"})
        stream = await session.get()
        ids = []
        for _ in range(3):
            app.notify_resource_updated("config://app")
        while len(ids) < 3:
            event = await stream.event()
            assert event is not None
            if event["data"]:
                ids.append(event["id"])
        stream.close()
        app.notify_list_changed("tools")
        again = await session.get({"Last-Event-ID": ids[1]})
        assert (await again.next())["method"] == "notifications/resources/updated"
        assert (await again.next())["method"] == "notifications/tools/list_changed"
        again.close()


async def test_positions_that_are_none(client: Raw) -> None:
    session, other = await client.initialize(), await client.initialize()
    stream = await session.use("count", {"to": 3}, token="t")
    event = await stream.event()
    assert event is not None
    stream.close()
    name = event["id"].rpartition(".")[0]
    garbage = ["", "x", "1", f"{name}.0", f"{name}.99", f"{name}.-1", f"{name}.²", f"{name}.1e1"]
    for id in [*garbage, "s.1", f"{name}.{'9' * 5000}", "../../etc/passwd", "99.1"]:
        assert (await session.get({"Last-Event-ID": id})).status == 400, id
    assert (await other.get({"Last-Event-ID": event["id"]})).status == 400
    again = await session.get({"Last-Event-ID": event["id"]})
    assert text_of((await again.rest())[-1]) == "done"


async def test_many_streams_at_once_are_all_served() -> None:
    gate = Gate()
    async with serving(make_app(gate)) as client:
        session = await client.initialize()
        many = range(MAX_ENDED + 10)
        streams: list[Response] = await asyncio.gather(
            *(session.use("wait", id=id, token=id) for id in many)
        )
        gate.opened.set()
        answers = await asyncio.gather(*(stream.rest() for stream in streams))
        assert [text_of(messages[-1]) for messages in answers] == ["through" for _ in many]


async def test_a_tool_may_send_its_client_away_for_a_while() -> None:
    app = Server("raw", grace=1.0)
    gate = Gate()

    @app.tool
    async def long(ctx: Context) -> str:
        ctx.close_stream(retry_ms=5)
        await gate.wait()
        return "done"

    async with serving(app) as client:
        session = await client.initialize()
        stream = await session.use("long")
        primed, retry = await stream.event(), await stream.event()
        assert primed is not None and retry == {"retry": "5"}
        assert await stream.event() is None
        gate.opened.set()
        again = await session.get({"Last-Event-ID": primed["id"]})
        assert text_of((await again.rest())[-1]) == "done"


# Ending


async def test_delete_ends_a_session(client: Raw) -> None:
    session = await client.initialize()
    stream = await session.get()
    assert (await session.delete()).status == 204
    assert await stream.rest() == []
    assert (await session.ask("ping")).status == 404
    assert (await session.get()).status == 404
    assert (await session.delete()).status == 404


@pytest.mark.parametrize("tool", ["wait", "wait_quietly"])
async def test_delete_ends_the_calls_of_a_session(tool: str) -> None:
    gate = Gate()
    app = make_app(gate)
    async with serving(app) as client:
        session = await client.initialize()
        call = asyncio.create_task(session.use(tool, token="t"))
        await asyncio.wait_for(gate.reached.wait(), HANGS)
        assert (await session.delete()).status == 204
        await asyncio.wait_for(gate.cancelled.wait(), HANGS)
        messages = await (await asyncio.wait_for(call, HANGS)).rest()
        assert all("result" not in each for each in messages)
        assert not app.core.roster


@in_one_process("the clock of the store is not moved")
async def test_an_idle_session_expires_and_a_busy_one_does_not(clock: MovableClock) -> None:
    gate = Gate()
    app = make_app(gate)
    async with serving(app, idle_timeout=8.0) as client:
        idle, reading, calling = [await client.initialize() for _ in range(3)]
        stream = await reading.get()
        call = asyncio.create_task(calling.use("wait_quietly"))
        await asyncio.wait_for(gate.reached.wait(), HANGS)
        clock.move(9)
        await eventually(lambda: len(app.core.roster) == 2)
        await clock.advance(9)  # when the others would be over, too
        assert (await idle.ask("ping")).status == 404
        assert (await reading.ask("ping", id=2)).status == 200
        gate.opened.set()
        assert text_of((await call).json) == "through"
        assert (await calling.ask("ping", id=2)).status == 200
        stream.close()


@at_one_server("each server counts the sessions of a caller")
async def test_the_number_of_sessions_in_use_is_bounded() -> None:
    async with serving(make_app(), max_sessions=4) as client:  # of which one caller may have half
        first, second = await client.initialize(), await client.initialize()
        for session in (first, second):
            assert (await session.ask("ping")).status == 200
        answer = await client.post(INITIALIZE)
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        assert (await first.ask("ping")).status == 200
        await first.delete()
        assert (await client.post(INITIALIZE)).status == 200


@in_one_process("its id alone brings it back")
async def test_a_session_that_was_never_used_makes_room_for_another() -> None:
    async with serving(make_app(), max_sessions=6) as client:  # of which one caller may have half
        used, unused = await client.initialize(), await client.initialize()
        assert (await used.ask("ping")).status == 200
        begun = await client.post(INITIALIZE)
        new = await client.initialize()
        assert (await unused.ask("ping")).status == 404
        assert (await used.ask("ping")).status == 200
        assert (await new.ask("ping")).status == 200
        last = await client.initialize()
        assert (await last.ask("ping")).status == 200
        gone = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        assert (await client.post(message("ping"), gone)).status == 404


@in_one_process("the clock of the store is not moved")
async def test_a_session_that_is_not_initialized_ends_soon() -> None:
    app = make_app()
    async with serving(app, initialize_timeout=0.2) as client:
        ready = await client.initialize()
        begun = await client.post(INITIALIZE)
        assert len(app.core.roster) == 2
        await eventually(lambda: len(app.core.roster) == 1)
        gone = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        assert (await client.post(message("ping"), gone)).status == 404
        assert (await ready.ask("ping")).status == 200


@in_one_process("events have no budget in the process")
async def test_a_stream_that_ended_can_be_resumed_until_the_budget_is_used_up() -> None:
    app = make_app()

    @app.tool
    async def say(size: int, ctx: Context) -> str:
        await ctx.progress(1)
        return "x" * size

    async with serving(app, max_history=150_000) as client:
        sessions = [await client.initialize() for _ in range(3)]
        first_events = []
        for session in sessions:
            stream = await session.use("say", {"size": 60_000}, token="t")
            event = await stream.event()
            assert event is not None
            first_events.append(event["id"])
            await stream.rest()
        statuses = []
        for session, last in zip(sessions, first_events, strict=True):
            again = await session.get({"Last-Event-ID": last})
            statuses.append(again.status)
            again.close()
        assert (statuses[0], statuses[-1]) == (400, 200)


@pytest.mark.inside("looks for what is left in a server's memory")
async def test_a_session_that_ended_leaves_nothing() -> None:
    app = make_app()
    async with serving(app) as client:
        session = await client.initialize()
        await (await session.use("count", {"to": 3}, token="t")).rest()
        await session.ask("resources/subscribe", {"uri": "config://app"})
        kept = weakref.ref(next(iter(app.core.roster)))
        await session.delete()
        await eventually(lambda: gc.collect() >= 0 and kept() is None)
        assert app.core.subscriptions.counts() == {
            "uris": 0,
            "tools": 0,
            "prompts": 0,
            "resources": 0,
        }


# Without sessions


async def test_legacy_requests_without_sessions() -> None:
    async with serving(make_app(), stateless=True) as client:
        opened = await client.post(INITIALIZE)
        assert opened.json["result"]["protocolVersion"] == LEGACY
        assert "mcp-session-id" not in opened.headers
        version = {"MCP-Protocol-Version": LEGACY}
        note = message("notifications/initialized", id=None)
        assert (await client.post(note, version)).status == 202
        for text in ("hello", "initialize"):
            call = message("tools/call", {"name": "echo", "arguments": {"text": text}})
            assert text_of((await client.post(call, version)).json) == text
        old = await client.post([message("ping")])  # no header means 2025-03-26
        assert old.json == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        assert (await client.get(version)).status == 405
        assert (await client.delete(version)).status == 405


async def test_it_stands_under_a_path_of_another_application() -> None:
    from contextlib import asynccontextmanager

    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from tests.ports import free_port

    app = make_app()
    inner = app.asgi(path="/")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with inner.running():
            yield

    outer = Starlette(routes=[Mount("/tools", inner)], lifespan=lifespan)
    port = free_port()
    config = uvicorn.Config(
        outer, port=port, log_level="warning", loop="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    client = Raw(port, "/tools/")
    session = await client.initialize()
    stream = await session.get()
    app.remove_tool("echo")
    assert (await stream.next())["method"] == "notifications/tools/list_changed"
    headers, body = modern("tools/list")
    assert (await client.post(body, headers)).status == 200
    assert (await client.post(body, headers, path="/tools")).status == 307
    assert (await client.post(body, headers, path="/tools/more")).status == 404
    stream.close()
    server.should_exit = True
    await task
    assert not app.core.roster


def _no_signals() -> Any:
    from contextlib import nullcontext

    return nullcontext()
