"""Legacy sessions over machines that share a Redis or Valkey: any request lands anywhere."""

import asyncio
from typing import Any

import pytest

from mcpearl.runtime import clock
from mcpearl.stores import redis_sessions
from mcpearl.stores.errors import TOLD
from mcpearl.stores.shared import REQUEST_BITS
from tests.deployment.machines import make_app, text_of, two_machines
from tests.redis_server import fresh_address, running
from tests.transports.by_name import ByName
from tests.transports.raw_http import LEGACY, Raw, Session, message, modern, serving
from tests.waiting import eventually

KINDS = ("redis", "valkey")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_is_served_wherever_its_requests_land(kind: str) -> None:
    async with two_machines(kind=kind) as (one, two):
        begun = await one.raw.initialize("2025-06-18")
        session = two.take_up(begun)
        await session.ask("logging/setLevel", {"level": "error"})
        await eventually(lambda: one.log_levels() == ["error"])
        for place in (begun, session):
            log, answer = await (await place.use("known")).rest()
            assert (log["method"], log["params"]["data"]) == ("notifications/message", "wanted")
            assert text_of(answer) == "raw in 2025-06-18"


async def test_each_step_of_a_handshake_lands_at_another_machine() -> None:
    async with two_machines() as (one, two):
        begun = Session(one.raw.port)
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        opened = await begun.post(message("initialize", params, 0))
        begun.id = opened.headers["mcp-session-id"]
        begun.headers = {"Mcp-Session-Id": begun.id, "MCP-Protocol-Version": LEGACY}
        done = await two.take_up(begun).post(message("notifications/initialized", id=None))
        assert done.status == 202
        # The first has to know that the client is ready before it is told.
        assert (await begun.use("add", {"a": 1, "b": 2})).json["result"]["content"]
        assert one.app.sessions and two.app.sessions


@pytest.mark.parametrize("listens", ["before", "after"])
async def test_the_machine_at_which_a_session_began_hears_that_its_client_is_ready(
    listens: str,
) -> None:
    async with two_machines() as (one, two):
        begun = Session(one.raw.port)
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        opened = await begun.post(message("initialize", params, 0))
        begun.id = opened.headers["mcp-session-id"]
        begun.headers = {"Mcp-Session-Id": begun.id, "MCP-Protocol-Version": LEGACY}
        stream = await begun.get() if listens == "before" else None
        elsewhere = two.take_up(begun)
        assert (await elsewhere.post(message("notifications/initialized", id=None))).status == 202
        stream = stream or await begun.get()
        two.app.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_a_session_that_is_built_again_does_not_use_ids_twice() -> None:
    async with two_machines() as (one, _):
        begun = await one.raw.initialize()
        ids = []
        for number in range(3):
            asking = await begun.use("ask", id=number)
            question = await asking.next()
            ids.append(question["id"])
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
            assert (await begun.post(reply)).status == 202
            assert text_of((await asking.rest())[-1]) == "decline"
            for connection in list(one.app.connections):
                connection.transport.end()  # as after a cut, when changes may have been missed
        assert len(set(ids)) == 3
        assert {id >> REQUEST_BITS for id in ids} == {one.store.members.number}


async def test_calls_need_no_command_of_the_store() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        session = two.take_up(begun)
        await session.ask("ping")
        await session.ask("ping", id=2)
        before = one.store.link.sent + two.store.link.sent
        for id in range(20):
            for place in (begun, session):
                assert "result" in (await place.use("add", {"a": 1, "b": id}, id=id)).json
        reports = 2  # each machine says now and then that it lives
        assert one.store.link.sent + two.store.link.sent - before <= reports


async def test_the_answer_to_a_question_finds_the_machine_that_waits() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        asking = await begun.use("ask")
        request = await asking.next()
        assert request["method"] == "elicitation/create"
        assert request["id"] >> REQUEST_BITS == one.store.members.number
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}}
        assert (await two.take_up(begun).post(reply)).status == 202
        assert text_of((await asking.rest())[-1]) == "decline"


async def test_answers_in_a_batch_find_their_machine() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize("2025-03-26")
        asking = await begun.use("ask")
        request = await asking.next()
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "cancel"}}
        batch = [reply, message("ping", id=5)]
        answered = await two.take_up(begun).post(batch)
        assert answered.status == 200 and answered.json[0]["id"] == 5
        assert text_of((await asking.rest())[-1]) == "cancel"


async def test_a_cancellation_finds_the_machine_that_runs_the_call() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        call = await begun.use("count", {"to": 1}, id=7, token="t")
        assert (await call.next())["method"] == "notifications/progress"
        cancel = message("notifications/cancelled", {"requestId": 7}, id=None)
        assert (await two.take_up(begun).post(cancel)).status == 202
        assert await call.rest() == []  # a cancelled call has no answer
        assert (await begun.use("add", {"a": 1, "b": 2}, id=8)).status == 200


async def test_updates_reach_a_subscriber_once_wherever_its_stream_is() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        session = two.take_up(begun)
        stream = await begun.get()
        await session.ask("resources/subscribe", {"uri": "config://a"})
        for number, machine in enumerate((two, one, two)):
            machine.app.notify_resource_updated("config://a")
            heard = await stream.next()
            assert heard["params"] == {"uri": "config://a"}, number
        one.app.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_an_update_without_a_reader_is_kept_for_the_next_one_once() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        session = two.take_up(begun)
        await session.ask("resources/subscribe", {"uri": "config://a"})
        await begun.ask("resources/subscribe", {"uri": "config://b"})
        two.app.notify_resource_updated("config://a")
        one.app.notify_resource_updated("config://b")
        stream = await session.get()
        heard = {(await stream.next())["params"]["uri"] for _ in range(2)}
        assert heard == {"config://a", "config://b"}
        two.app.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


async def test_an_update_while_no_machine_had_the_session_is_made_up_for() -> None:
    address = fresh_address()
    async with two_machines(address) as (one, two), two_machines(address) as (three, _):
        begun = await one.raw.initialize("2025-06-18")
        await begun.ask("resources/subscribe", {"uri": "config://%61"})
        stream = await begun.get()
        for session in one.app.connections:
            session.transport.end()  # as if the machine had died
        stream.close()
        two.app.notify_resource_updated("config://a")
        two.app.notify_resource_updated("config://b")
        two.app.notify_list_changed("tools")
        await eventually(lambda: not two.store.bus._unsent)
        stream = await three.take_up(begun).get()
        heard = [await stream.next() for _ in range(2)]
        assert {"uri": "config://%61"} in [each.get("params") for each in heard]
        assert "notifications/tools/list_changed" in [each["method"] for each in heard]
        assert (await two.take_up(begun).ask("ping")).status == 200  # it has the session now, too
        two.app.notify_resource_updated("config://a")
        assert (await stream.next())["params"] == {"uri": "config://%61"}
        stream.close()


async def test_what_was_sent_to_a_connection_that_broke_is_sent_again() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize("2025-06-18")
        await begun.ask("resources/subscribe", {"uri": "config://a"})
        stream = await begun.get()
        two.app.notify_resource_updated("config://a")
        event = await stream.event()
        assert event is not None
        stream.close()
        again = await two.take_up(begun).get()  # it names no event, so it may not have got any
        assert (await again.next())["params"] == {"uri": "config://a"}
        again.close()
        resumed = await two.take_up(begun).get({"Last-Event-ID": event["id"]})
        one.app.notify_list_changed("tools")
        assert (await resumed.next())["method"] == "notifications/tools/list_changed"
        resumed.close()


async def test_a_stream_is_resumed_at_another_machine_while_its_call_runs() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        stream = await begun.use("count", {"to": 3}, token="t")
        event = await stream.event()
        assert event is not None
        assert (await stream.next())["params"]["progress"] == 1
        stream.close()
        again = await two.take_up(begun).get({"Last-Event-ID": event["id"]})
        heard = [await again.next() for _ in range(3)]
        assert [each["params"]["progress"] for each in heard] == [1, 2, 3]
        one.go.set()
        (answer,) = await again.rest()
        assert text_of(answer) == "done"


async def test_a_session_that_is_ended_is_gone_everywhere() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        session = two.take_up(begun)
        assert (await session.ask("ping")).status == 200
        assert (await begun.delete()).status == 204
        await eventually(lambda: not two.app.sessions)
        assert (await session.ask("ping", id=2)).status == 404
        assert (await begun.ask("ping", id=2)).status == 404


async def test_a_message_of_http_sse_finds_the_machine_that_has_the_stream() -> None:
    async with two_machines(http_sse=True) as (one, two):
        opened = Raw(one.raw.port, "/sse")
        stream = await opened.get()
        event = await stream.event()
        assert event is not None
        place = event["data"]
        info = {"name": "old", "version": "1"}
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info}
        elsewhere = Raw(two.raw.port, place)
        assert (await elsewhere.post(message("initialize", params, 0))).status == 202
        assert (await stream.next())["result"]["protocolVersion"] == "2024-11-05"
        assert (await elsewhere.post(message("ping", id=1))).status == 202
        assert (await stream.next())["id"] == 1
        before = await two.store.link.send("DBSIZE")
        forged = Raw(two.raw.port, place.rpartition("=")[0] + "=12345")
        assert (await forged.post(message("ping", id=2))).status == 202  # it reaches no process
        assert await two.store.link.send("DBSIZE") <= before  # and takes no room
        stream.close()


# Ids that are not those of a session


async def test_ids_that_this_deployment_did_not_make_cost_no_command() -> None:
    async with two_machines() as (one, two), two_machines() as (other, _):
        begun, foreign = await one.raw.initialize(), await other.raw.initialize()
        changed = begun.id[:-2] + ("AA" if not begun.id.endswith("AA") else "BB")
        before = two.store.link.sent
        for id in (foreign.id, changed, begun.id + "A", "x", "0" * 5000, "é"):
            session = two.take_up(begun)
            session.headers["Mcp-Session-Id"] = id
            assert (await session.ask("ping")).status in (400, 404, 431), id
        assert two.store.link.sent - before <= 1
        assert (await two.take_up(begun).ask("ping")).status == 200


async def test_another_principal_does_not_get_the_session() -> None:
    async with two_machines(auth=ByName()) as (one, two):
        begun = await one.raw.initialize(**{"X-User": "ann"})
        session = two.take_up(begun)
        session.headers["X-User"] = "bob"
        assert (await session.ask("ping")).status == 404
        session.headers["X-User"] = "ann"
        assert (await session.ask("ping")).status == 200


async def test_a_client_with_much_to_say_of_itself_has_a_short_id() -> None:
    async with two_machines() as (one, two):
        begun = Session(one.raw.port)
        info = {"name": "x" * 3000, "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        opened = await begun.post(message("initialize", params, 0))
        begun.id = opened.headers["mcp-session-id"]
        assert len(begun.id) < 1000
        begun.headers = {"Mcp-Session-Id": begun.id, "MCP-Protocol-Version": LEGACY}
        session = two.take_up(begun)
        assert (await session.post(message("notifications/initialized", id=None))).status == 202
        *_, answer = await (await session.use("known")).rest()
        assert text_of(answer).startswith("xxx")


# Modern requests, and the keys


async def test_state_that_one_machine_sealed_is_opened_by_the_other() -> None:
    async with two_machines() as (one, two):
        asked = (await one.raw.call("ask")).json["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "decline"}}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        from tests.transports.raw_http import modern

        headers, body = modern("tools/call", {"name": "ask", "arguments": {}, **more})
        done = await two.raw.post(body, headers)
        assert text_of(done.json) == "decline", done.body


# The store away


async def test_a_session_goes_on_while_keys_are_rotated() -> None:
    """An id that the old key sealed is taken where the new key comes first."""
    old, new = b"o" * 32, b"n" * 32
    address = fresh_address()
    apps = [make_app(address, state_keys=keys) for keys in ([old], [new, old], [new])]
    async with serving(apps[0]) as before, serving(apps[1]) as during, serving(apps[2]) as after:
        begun = await before.initialize()
        moved = Session(during.port)
        moved.id, moved.headers = begun.id, dict(begun.headers)
        assert text_of((await moved.use("add", {"a": 1, "b": 2})).json) == "3"
        moved.port = after.port
        assert (await moved.ask("ping")).status == 404
        fresh = await during.initialize()
        fresh.port = after.port
        assert text_of((await fresh.use("add", {"a": 1, "b": 2})).json) == "3"
        fresh.port = before.port
        assert (await fresh.ask("ping")).status == 404


async def test_a_question_is_continued_while_keys_are_rotated() -> None:
    """A state that the old key sealed is opened where the new key comes first."""
    old, new = b"o" * 32, b"n" * 32
    address = fresh_address()
    apps = [make_app(address, state_keys=keys) for keys in ([old], [new, old], [new])]
    async with serving(apps[0]) as before, serving(apps[1]) as during, serving(apps[2]) as after:

        async def continued(one: Raw, two: Raw) -> Any:
            asked = (await one.call("ask")).json["result"]
            (key,) = asked["inputRequests"]
            answers = {key: {"action": "accept"}}
            given = {"requestState": asked["requestState"], "inputResponses": answers}
            headers, body = modern("tools/call", {"name": "ask", "arguments": {}, **given})
            return (await two.post(body, headers)).json

        for one, two in ((before, during), (during, during), (during, after)):
            assert text_of(await continued(one, two)) == "accept"
        for one, two in ((before, after), (during, before)):
            assert (await continued(one, two))["error"]["code"] == -32602


async def test_when_the_store_is_away_calls_go_on_and_the_rest_is_refused() -> None:
    with running("redis") as redis:
        async with two_machines(redis.url) as (one, two):
            begun = await one.raw.initialize()
            asking = await begun.use("ask")
            request = await asking.next()
            redis.kill()
            assert "result" in (await begun.use("add", {"a": 1, "b": 2}, id=2)).json
            assert "result" in (await two.raw.call("add", {"a": 1, "b": 2})).json
            kept = (await begun.use("keep", id=9)).json["result"]
            assert kept["isError"] and kept["content"][0]["text"] == TOLD
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept"}}
            refused = [
                await begun.ask("resources/subscribe", {"uri": "config://a"}, id=3),
                await two.take_up(begun).ask("ping"),
                await begun.delete(),
            ]
            for answer in refused:
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
                said = answer.json["error"]["message"]
                assert TOLD in said and str(redis.socket) not in said
            node = next(child for child in one.app.tree().children if child.name == "store")
            assert "cannot be reached" in (node.last_error or "")
            redis.start()

            async def goes_on() -> bool:
                session = two.take_up(begun)
                answered = await session.ask("resources/subscribe", {"uri": "config://a"}, id=4)
                return answered.status == 200

            await eventually(goes_on)
            assert (await two.take_up(begun).post(reply)).status == 202
            assert (await asking.rest())[-1]["id"] == 1


async def test_an_update_during_a_cut_arrives_late() -> None:
    with running("redis") as redis:
        async with two_machines(redis.url) as (one, two):
            begun = await one.raw.initialize()
            stream = await begun.get()
            await begun.ask("resources/subscribe", {"uri": "config://a"})
            redis.stop()
            two.app.notify_resource_updated("config://a")
            redis.start()
            assert (await stream.next())["params"] == {"uri": "config://a"}
            stream.close()


async def test_a_store_that_cannot_be_used_is_refused_in_words() -> None:
    address = fresh_address() + "&durable=1"
    async with two_machines(address):
        pass  # it writes to disk
    evicting = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with running("redis", *evicting) as redis, pytest.raises(Exception, match="maxmemory-policy"):
        async with two_machines(redis.url):
            pass


async def test_a_session_in_use_outlives_workers_that_live_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_sessions, "YOUNG", 1.0)  # else its id alone brings it back
    address = fresh_address()
    app = make_app(address)
    async with serving(app, idle_timeout=3.0) as raw:
        session = await raw.initialize()
        assert "result" in (await session.ask("ping")).json
    began = clock.monotonic()
    while clock.monotonic() - began < 4.0:  # of the time of the store
        async with serving(make_app(address), idle_timeout=3.0) as raw:
            session.port = raw.port
            assert "result" in (await session.ask("ping")).json
        await asyncio.sleep(0.3)


async def test_a_session_whose_client_only_listens_is_kept_in_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_sessions, "YOUNG", 1.0)  # else its id alone brings it back
    async with two_machines(idle_timeout=2.0) as (one, two):
        begun = await one.raw.initialize()
        assert "result" in (await begun.ask("ping")).json
        stream = await begun.get()
        await asyncio.sleep(3.5)
        assert "result" in (await two.take_up(begun).ask("ping")).json
        stream.close()
