"""Sessions and their streams in stores that two endpoints share, as two processes would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Context, Server
from mcpearl.stores.errors import TOLD, StoreUnavailable
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.stores.memory_sessions import MemorySessionStore
from mcpearl.stores.sessions import SessionRecord
from tests.transports.by_name import ByName
from tests.transports.raw_http import HANGS, LEGACY, Raw, Session, message, serving


class Counting(MemorySessionStore):
    """Counts what it is asked, and fails when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.is_away = False

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if self.is_away:
            raise StoreUnavailable("it is away")

    async def load(self, id: str) -> SessionRecord | None:
        self._note("load")
        return await super().load(id)

    async def save(self, record: SessionRecord, ttl: float) -> bool:
        self._note("save")
        return await super().save(record, ttl)

    async def touch(self, id: str, ttl: float) -> bool:
        self._note("touch")
        return await super().touch(id, ttl)

    async def delete(self, id: str) -> None:
        self._note("delete")
        await super().delete(id)


def make_app() -> Server:
    app = Server("shared", grace=1.0)

    @app.tool
    async def known(ctx: Context) -> str:
        """What the server knows of its client."""
        await ctx.debug("not wanted")
        await ctx.error("wanted")
        caller = ctx.client
        assert caller.client is not None
        return f"{caller.client.name} in {caller.version.name}"

    @app.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Go on?")).action)

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.progress(number + 1, to)
        return "done"

    @app.resource("config://{name}")
    def config(name: str) -> str:
        return name

    return app


class Place:
    """One endpoint, and a client of it."""

    def __init__(self, app: Server, raw: Raw) -> None:
        self.app = app
        self.raw = raw

    def take_up(self, session: Session) -> Session:
        """The same session, as a client that lands here."""
        taken = Session(self.raw.port)
        taken.id, taken.headers = session.id, dict(session.headers)
        return taken


@asynccontextmanager
async def two_places(
    store: MemorySessionStore | None = None, **options: Any
) -> AsyncIterator[tuple[Place, Place]]:
    shared = {
        "session_store": MemorySessionStore() if store is None else store,
        "event_store": MemoryEventStore(),
        **options,
    }
    one, two = make_app(), make_app()
    async with serving(one, **shared) as first, serving(two, **shared) as second:
        yield Place(one, first), Place(two, second)
    await shared["event_store"].close()


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


async def test_a_session_is_continued_where_its_next_request_lands() -> None:
    async with two_places() as (one, two):
        begun = await one.raw.initialize("2025-06-18")
        await begun.ask("logging/setLevel", {"level": "error"})
        session = two.take_up(begun)
        stream = await session.use("known")
        log, answer = await stream.rest()
        assert (log["method"], log["params"]["data"]) == ("notifications/message", "wanted")
        assert text_of(answer) == "raw in 2025-06-18"
        asking = await session.use("ask", id=2)
        request = await asking.next()
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}}
        assert (await session.post(reply)).status == 202
        assert text_of((await asking.rest())[-1]) == "decline"
        assert text_of(
            (await (await begun.use("known", id=3)).rest())[-1]
        )  # and still at the first


async def test_a_handshake_may_land_at_two_places() -> None:
    async with two_places() as (one, two):
        begun = Session(one.raw.port)
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        opened = await begun.post(message("initialize", params, 0))
        begun.id = opened.headers["mcp-session-id"]
        begun.headers = {"Mcp-Session-Id": begun.id, "MCP-Protocol-Version": LEGACY}
        session = two.take_up(begun)
        assert (await session.ask("tools/list", id=1)).json["result"]["tools"]
        done = await session.post(message("notifications/initialized", id=None))
        assert done.status == 202
        assert (await session.ask("tools/list", id=2)).json["result"]["tools"]


async def test_a_session_with_an_id_is_initialized_once() -> None:
    async with two_places() as (one, _):
        session = await one.raw.initialize()
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        refused = await session.post(message("initialize", params, 7))
        assert (refused.status, refused.code) == (200, -32600)
        assert "already initialized" in refused.json["error"]["message"]
        assert (await session.ask("tools/list", id=2)).json["result"]["tools"]


async def test_subscriptions_are_continued() -> None:
    async with two_places() as (one, two):
        begun = await one.raw.initialize()
        await begun.ask("resources/subscribe", {"uri": "config://a"})
        await begun.ask("resources/subscribe", {"uri": "config://b"}, id=2)
        await begun.ask("resources/unsubscribe", {"uri": "config://b"}, id=3)
        stream = await two.take_up(begun).get()
        two.app.notify_resource_updated("config://b")
        two.app.notify_resource_updated("config://a")
        two.app.notify_list_changed("tools")
        heard = [await stream.next() for _ in range(2)]
        assert heard[0]["params"] == {"uri": "config://a"}
        assert heard[1]["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_changes_at_two_places_are_merged() -> None:
    store = MemorySessionStore()
    async with two_places(store) as (one, two):
        first = await one.raw.initialize()
        second = two.take_up(first)
        await second.ask("ping")
        await first.ask("resources/subscribe", {"uri": "config://a"})
        await second.ask("resources/subscribe", {"uri": "config://b"})
        await second.ask("resources/subscribe", {"uri": "config://c"}, id=2)
        await first.ask("logging/setLevel", {"level": "error"}, id=2)
        await first.ask("resources/unsubscribe", {"uri": "config://b"}, id=3)
        record = await store.load(first.id)
        assert record is not None
        assert record.uris == ("config://a", "config://c")
        assert record.state.log_level == "error"


async def test_a_broken_stream_is_resumed_at_another_place() -> None:
    async with two_places() as (one, two):
        begun = await one.raw.initialize()
        stream = await begun.use("count", {"to": 3}, token="t")
        event = await stream.event()
        assert event is not None
        stream.close()
        session = two.take_up(begun)
        again = await session.get({"Last-Event-ID": event["id"]})
        messages = await again.rest()
        assert [each["params"]["progress"] for each in messages[:-1]] == [1, 2, 3]
        assert text_of(messages[-1]) == "done"
        lost = await session.get({"Last-Event-ID": "77.1"})
        assert (lost.status, "still kept" in lost.json["error"]["message"]) == (400, True)


async def test_a_session_that_was_deleted_is_gone_everywhere() -> None:
    store = MemorySessionStore()
    async with two_places(store) as (one, two):
        begun = await one.raw.initialize()
        assert (await two.take_up(begun).delete()).status == 204
        assert len(store) == 0
        # The first has it in hand until it next writes, or looks whether the record is there.
        late = await begun.ask("resources/subscribe", {"uri": "config://a"})
        assert late.status == 404
        assert (await begun.ask("ping")).status == 404
        assert not one.app.connections


async def test_a_session_in_use_is_kept_and_one_that_ended_elsewhere_is_noticed() -> None:
    store = MemorySessionStore()
    async with two_places(store, idle_timeout=0.8) as (one, two):
        used, deleted = await one.raw.initialize(), await one.raw.initialize()
        for session in (used, deleted):
            await session.ask("ping")
        await two.take_up(deleted).delete()
        async with asyncio.timeout(HANGS):
            while len(one.app.connections) > 1:
                assert (await used.ask("ping")).status == 200
                await asyncio.sleep(0.05)
        assert (await deleted.ask("ping")).status == 404
        assert await store.load(used.id) is not None


async def test_another_principal_does_not_get_the_session() -> None:
    async with two_places(auth=ByName()) as (one, two):
        begun = await one.raw.initialize(**{"X-User": "ann"})
        session = two.take_up(begun)
        session.headers["X-User"] = "bob"
        assert (await session.ask("ping")).status == 404
        session.headers["X-User"] = "ann"
        assert (await session.ask("ping")).status == 200


async def test_calls_ask_the_store_nothing() -> None:
    store = Counting()
    async with two_places(store) as (one, two):
        begun = await one.raw.initialize()
        assert store.asked == ["save", "save"]  # begun, and ready
        session = two.take_up(begun)
        await session.ask("ping")
        assert store.asked == ["save", "save", "load"]
        for id in range(5):
            await (await session.use("known", id=id)).rest()
            await session.use("count", {"to": 2}, id=id)
            (await session.get()).close()
        await session.ask("resources/subscribe", {"uri": "config://a"})
        await session.ask("resources/subscribe", {"uri": "config://a"}, id=2)  # changes nothing
        assert store.asked == ["save", "save", "load", "save"]


async def test_when_the_store_is_away_calls_go_on_and_the_rest_is_refused() -> None:
    store = Counting()
    async with two_places(store) as (one, two):
        begun = await one.raw.initialize()
        store.is_away = True
        assert text_of((await (await begun.use("known")).rest())[-1]).startswith("raw")
        refused = [
            await begun.ask("resources/subscribe", {"uri": "config://a"}),
            await two.take_up(begun).ask("ping"),
            await begun.delete(),
        ]
        for answer in refused:
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            assert TOLD in answer.json["error"]["message"]
        store.is_away = False
        answer = await begun.ask("resources/subscribe", {"uri": "config://a"}, id=2)
        assert "error" not in answer.json
        record = await store.load(begun.id)
        assert record is not None and record.uris == ("config://a",)


async def test_a_stream_whose_answer_cannot_be_stored_ends_without_it() -> None:
    store = Counting()
    async with serving(make_app(), session_store=store) as client:
        session = await client.initialize("2025-03-26")
        call = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": 1}}
        batch = [
            message("tools/call", call, 1),
            message("logging/setLevel", {"level": "error"}, 2),
        ]
        store.is_away = True
        told = await (await session.post(batch)).rest()  # up to the end of a whole response
        assert [each["params"]["progress"] for each in told] == [1, 2, 3]
        store.is_away = False
        *told, answers = await (await session.post(batch)).rest()
        assert len(told) == 3
        assert sorted(each["id"] for each in answers) == [1, 2]
        record = await store.load(session.id)
        assert record is not None and record.state.log_level == "error"


async def test_without_a_store_a_session_is_known_to_one_place_only() -> None:
    one, two = make_app(), make_app()
    async with serving(one) as first, serving(two) as second:
        begun = await first.initialize()
        assert (await Place(two, second).take_up(begun).ask("ping")).status == 404


async def test_a_full_endpoint_does_not_rebuild_sessions() -> None:
    async with two_places(max_sessions=1) as (one, two):
        begun = await one.raw.initialize()
        busy = await two.raw.initialize()
        await busy.ask("ping")
        answer = await two.take_up(begun).ask("ping")
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        await busy.delete()
        assert (await two.take_up(begun).ask("ping")).status == 200


@pytest.mark.parametrize("id", ["x", "0" * 5000, "../../etc", "0.é"])
async def test_ids_of_no_session(id: str) -> None:
    async with two_places() as (_, two):
        answer = await two.raw.post(message("ping"), {"Mcp-Session-Id": id})
        assert answer.status == 404
