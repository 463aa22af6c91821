"""Redis and Valkey beyond what every store does: checks at the start, keys, cuts, kills."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import asdict
from redis import Redis

from mcpearl.runtime import clock
from mcpearl.runtime.names import NameTaken
from mcpearl.stores.bus import Stored
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.events import EventsLost
from mcpearl.stores.redis_address import RedisAddress, parse
from mcpearl.stores.redis_bus import MAX_UNSENT, RedisBus
from mcpearl.stores.redis_event_steps import MAX_STREAMS
from mcpearl.stores.redis_events import RedisEventStore
from mcpearl.stores.redis_keys import agreed_keys
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_names import RedisNames
from mcpearl.stores.redis_proofs import RedisProofStore
from mcpearl.stores.redis_recent import Recent
from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_sessions import digest_of
from mcpearl.stores.redis_store import RedisStore
from mcpearl.stores.redis_tasks import RedisTaskStore
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord, holder_name
from tests.redis_server import fresh_address, running, shared
from tests.stores.test_events import Listener
from tests.waiting import eventually

ANN: Identity = ("issuer", "ann", None)

# What is checked at the start


async def refusal(address: str) -> str:
    link = RedisLink(parse(address))
    with pytest.raises(StoreUnavailable) as caught:
        await link.start()
    return str(caught.value)


async def test_a_server_that_would_lose_things_is_refused_or_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running("redis", "--appendonly", "no") as redis:
        link = RedisLink(parse(redis.url))
        await link.start()
        assert "appendonly yes" in caplog.text
        await link.close()
        assert "appendonly yes" in await refusal(f"{redis.url}?durable=1")
        main = RedisLink(parse(redis.url))
        await main.start()
        await main.send("CONFIG", "SET", "maxmemory", "100mb")
        await main.send("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        assert "volatile-lru" in await refusal(redis.url)
        await main.close()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_passwords_and_rights(kind: str) -> None:
    with running(kind, "--requirepass", "secret") as server:
        assert "uthentication" in await refusal(server.url)
        for wrong in ("wrong", ""):
            said = await refusal(f"unix://:{wrong}@{server.socket}")
            assert wrong == "" or wrong not in said
        link = RedisLink(parse(f"unix://:secret@{server.socket}"))
        await link.start()
        for denied in ("xadd", "getrange", "setrange"):
            rights = ("reset", "on", ">pw", "~*", "+@all", f"-{denied}")
            await link.send("ACL", "SETUSER", "ann", *rights)
            assert "must be allowed" in await refusal(f"unix://ann:pw@{server.socket}")
        await link.close()


async def test_a_port_where_something_else_answers() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = RedisLink(parse(f"redis://127.0.0.1:{port}"))
    try:
        await link.start()
        with pytest.raises(StoreUnavailable):
            await link.send("PING")
        await link.close()
    except StoreUnavailable as error:
        assert str(port) in str(error)
    server.close()


# Keys


async def test_processes_agree_on_keys_that_the_data_alone_does_not_open() -> None:
    with running("redis", "--requirepass", "secret") as redis:
        address = f"unix://:secret@{redis.socket}"
        links = [RedisLink(parse(address)) for _ in range(3)]
        for link in links:
            await link.start()
        found = await asyncio.gather(*(agreed_keys(link) for link in links))
        assert found[0] == found[1] == found[2] and len(found[0][0]) == 32
        stored = await links[0].send("HGETALL", links[0].key("keys"))
        assert found[0][0] not in b"".join(stored)
        await links[0].send("CONFIG", "SET", "requirepass", "other")
        other = RedisLink(parse(f"unix://:other@{redis.socket}"))
        await other.start()
        with pytest.raises(StoreUnavailable, match="another password"):
            await agreed_keys(other)
        for link in (*links, other):
            await link.close()


async def test_without_a_password_it_is_said_that_the_keys_lie_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    link = RedisLink(parse(fresh_address()))
    await link.start()
    with caplog.at_level(logging.WARNING):
        assert await agreed_keys(link) == await agreed_keys(link)
    assert "has no password" in caplog.text and "state_keys" in caplog.text
    await link.close()


# Cuts


async def test_a_server_that_does_not_answer_costs_its_timeout_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpearl.stores.redis_link.TIMEOUT", 0.3)
    with running("redis") as redis:
        link = RedisLink(parse(redis.url))
        await link.start()
        redis.pause()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await link.send("PING")
        sent = link.sent
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await link.send("PING")  # at once: the next attempt is not due
        assert link.sent == sent
        redis.resume()
        await asyncio.wait_for(link.until_up(), 30)
        assert await link.send("PING")
        await link.close()


async def test_commands_that_came_while_a_server_did_not_answer_do_not_wait_as_long_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpearl.stores.redis_link.TIMEOUT", 0.3)
    with running("redis") as redis:
        link = RedisLink(parse(redis.url))
        await link.start()
        redis.pause()
        before = link.sent
        first = link.send("PING")
        await eventually(lambda: link.sent == before + 1)
        second = link.send("PING")
        for each in (first, second):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await each
        assert link.sent == before + 1
        redis.resume()
        await link.close()


async def test_a_server_that_does_not_answer_while_a_script_is_loaded_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpearl.stores.redis_link.TIMEOUT", 0.3)
    with running("redis") as redis:
        link = RedisLink(parse(redis.url))
        await link.start()
        redis.pause()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            async with asyncio.timeout(30):
                await link.run(Script("return 1"), [link.key("a")])
        redis.resume()
        await link.until_up()
        assert await link.run(Script("return 1"), [link.key("a")]) == 1
        await link.close()


async def test_messages_of_the_bus_arrive_late_over_a_cut_and_in_order() -> None:
    with running("redis") as redis:
        links = [RedisLink(parse(redis.url)) for _ in range(2)]
        first, second = (RedisBus(link, RedisMembers(link)) for link in links)
        heard: list[bytes] = []
        missed: list[int] = []
        second.subscribe("topic", heard.append, lambda: missed.append(len(heard)))
        for bus in (first, second):
            await bus.start()
        first.publish("topic", b"0")
        await eventually(lambda: heard == [b"0"])
        redis.kill()
        for number in range(1, 50):
            first.publish("topic", b"%d" % number)
        redis.start()
        await eventually(lambda: heard[-1] == b"49")
        in_order = list(dict.fromkeys(heard))
        assert in_order == [b"%d" % number for number in range(50)] and missed == []
        for bus in (first, second):
            await bus.close()


async def test_a_message_that_comes_while_too_many_are_on_their_way_is_not_lost() -> None:
    address = parse(fresh_address("redis"))
    links = [RedisLink(address) for _ in range(2)]
    first, second = (RedisBus(link, RedisMembers(link)) for link in links)
    heard: list[bytes] = []
    missed: list[str] = []
    second.subscribe("topic", heard.append, lambda: missed.append("missed"))
    for bus in (first, second):
        await bus.start()
    for _ in range(MAX_UNSENT):
        first.publish("topic", b"one of many")
    await asyncio.sleep(0)  # they are being sent
    first.publish("topic", b"last")
    await eventually(lambda: heard[-1:] == [b"last"])
    assert missed
    for bus in (first, second):
        await bus.close()


async def test_what_waits_for_the_store_outlives_a_restart_of_the_bus() -> None:
    with running("redis") as redis:
        links = [RedisLink(parse(redis.url)) for _ in range(2)]
        first, second = (RedisBus(link, RedisMembers(link)) for link in links)
        heard: list[bytes] = []
        second.subscribe("topic", heard.append)
        for bus in (first, second):
            await bus.start()
        await asyncio.to_thread(redis.stop)
        first.publish("topic", b"while the store is away")
        with pytest.raises(StoreUnavailable):
            await first.spread("topic", b"refused")
        await first.close()
        first.publish("topic", b"while the bus is restarted")
        await asyncio.to_thread(redis.start)
        await first.start()
        await eventually(lambda: len(heard) >= 2)
        assert heard == [b"while the store is away", b"while the bus is restarted"]
        for bus in (first, second):
            await bus.close()


async def test_what_is_published_while_a_bus_is_restarted_is_heard() -> None:
    address = parse(fresh_address())
    links = [RedisLink(address) for _ in range(2)]
    first, second = (RedisBus(link, RedisMembers(link)) for link in links)
    heard: list[bytes] = []
    second.subscribe("topic", heard.append)
    for bus in (first, second):
        await bus.start()
    await first.spread("topic", b"before")
    await eventually(lambda: heard == [b"before"])
    await second.close()
    await first.spread("topic", b"meanwhile")
    await second.start()
    await first.spread("topic", b"after")
    await eventually(lambda: heard == [b"before", b"meanwhile", b"after"])
    for bus in (first, second):
        await bus.close()


async def test_a_bus_closes_although_the_store_went_away_unnoticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpearl.stores.redis_bus._LAST_WRITES", 0.1)
    with running("redis") as redis:
        link = RedisLink(parse(redis.url))
        bus = RedisBus(link, RedisMembers(link))
        await bus.start()
        redis.kill()
        assert link.is_up
        bus.publish("topic", b"too late")
        async with asyncio.timeout(30):
            await bus.close()


async def test_a_member_that_was_away_for_too_long_is_told_so() -> None:
    with running("redis") as redis:
        links = [RedisLink(parse(redis.url)) for _ in range(2)]
        first, second = (RedisBus(link, RedisMembers(link)) for link in links)
        missed: list[str] = []
        heard: list[bytes] = []
        second.subscribe("topic", heard.append, lambda: missed.append("missed"))
        for bus in (first, second):
            await bus.start()
        await first.spread("topic", b"a")
        await eventually(lambda: heard == [b"a"])
        await links[0].send("XTRIM", links[0].key("bus"), "MAXLEN", 0)
        redis.stop()
        redis.start()
        await eventually(lambda: bool(missed))
        for bus in (first, second):
            await bus.close()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_each_command_gets_its_own_reply_however_replies_arrive(kind: str) -> None:
    link = RedisLink(parse(fresh_address(kind)))
    await link.start()
    sizes = [1, 70_000, 0, 300_000, 5, 131_072] * 5  # many are longer than one read of the socket
    asked = []
    for number, size in enumerate(sizes):
        key = link.key("reply", str(number))
        asked.append(link.send("SET", key, b"%d" % number * size, "EX", 60))
        asked.append(link.send("LPUSH", key, "x"))  # refused, in the middle of the others
        asked.append(link.send("GET", key))
        asked.append(link.send("GET", link.key("reply", "none")))
    replies = await asyncio.gather(*asked, return_exceptions=True)
    for number, size in enumerate(sizes):
        done, refused, value, nothing = replies[4 * number : 4 * number + 4]
        assert done in (b"OK", True) and nothing is None
        assert isinstance(refused, StoreUnavailable) and "WRONGTYPE" in str(refused)
        assert value == b"%d" % number * size
    await link.close()


async def test_foreign_values_are_passed_over_or_refused() -> None:
    address = fresh_address()
    link = RedisLink(parse(address))
    bus = RedisBus(link, RedisMembers(link))
    heard: list[bytes] = []
    bus.subscribe("topic", heard.append)
    await bus.start()
    await link.send("XADD", link.key("bus"), "*", "something", "else")
    await link.send("XADD", link.key("bus"), "*", "w", "x", "t", "topic", "m", "fine")
    await eventually(lambda: heard == [b"fine"])
    tasks = RedisTaskStore(link)
    await link.send("HSET", link.key("task", "t"), "not", "a string")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        await tasks.get("t", ANN)
    for foreign in (b"", b"short", b"x" * 2000, b"\1\xff" + b"\0" * 2000, b"\1" + b"\xff" * 2000):
        await link.send("SET", link.key("task", "u"), foreign, "EX", 60)
        with pytest.raises(StoreUnavailable, match="not a task"):
            await tasks.get("u", ANN)
        assert await tasks.claim("u", "w", 1.0) is None
        assert await tasks.renew({"u": 1}, 1.0) == set()
    good = TaskRecord(id="good", owner=ANN, ttl=60.0)
    for task in (TaskRecord(id="v", owner=ANN, ttl=60.0), good):
        await tasks.create(task, "w", 0.0)
    await link.send("SETRANGE", link.key("task", "v"), 100, b"\xc1" * 50)
    assert [task.id for task in await tasks.lapsed(10)] == ["good"]  # it is not lost among them
    assert [task.id for task in await tasks.page(ANN, None, 10)] == ["good"]
    await link.send("DEL", link.key("task", "v"))
    await link.send("HSET", link.key("task", "v"), "not", "a string")
    assert [task.id for task in await tasks.lapsed(10)] == ["good"]
    await bus.close()


async def test_two_deployments_on_one_server_do_not_meet() -> None:
    address = shared().url
    stores = [RedisStore(address, name) for name in ("one", "two")]
    for store in stores:
        await store.start([b"k" * 32])
        await store.tasks.start()
    await stores[0].tasks.create(TaskRecord(id="t", owner=ANN, ttl=60.0), "w", 1.0)
    assert await stores[1].tasks.get("t", ANN) is None
    assert await stores[1].tasks.lapsed(10) == []
    await stores[0].tasks.delete("t")
    for store in stores:
        await store.tasks.close()
        await store.close()


async def test_every_key_expires() -> None:
    link = RedisLink(parse(fresh_address()))
    members = RedisMembers(link)
    bus = RedisBus(link, members)
    await bus.start()
    await members.report()
    await agreed_keys(link)
    tasks = RedisTaskStore(link)
    await tasks.start()
    task = await tasks.create(TaskRecord(id="t", owner=ANN, ttl=60.0), "w", 1.0)
    await tasks.update(task, 1)
    bus.publish("topic", b"x")
    await bus.spread("topic", b"x")
    events = RedisEventStore(link, bus, members)
    events.start()
    events.append("session", "s", b"x")
    events.announce("session", "t", b"x")
    await events.stored("session", "s")
    await eventually(lambda: not events._announcements)
    keys = [key async for key in link._client.scan_iter(f"*{link.prefix}*")]  # type: ignore[union-attr]
    assert len(keys) >= 10
    for key in keys:
        assert await link.send("PTTL", key) > 0, key
    await events.close()
    await tasks.close()
    await bus.close()


# Events of other processes


class Process:
    """One process of a deployment, in this one."""

    def __init__(self, address: str) -> None:
        self.link = RedisLink(parse(address))
        self.members = RedisMembers(self.link)
        self.bus = RedisBus(self.link, self.members)
        self.events = RedisEventStore(self.link, self.bus, self.members)
        self.tasks = RedisTaskStore(self.link)

    async def __aenter__(self) -> "Process":
        await self.bus.start()
        self.events.start()
        await self.members.report()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.events.close()
        await self.bus.close()


async def test_a_process_that_began_without_the_store_is_known_before_it_does_anything() -> None:
    with running("redis") as redis:
        async with Process(redis.url) as other:
            redis.stop()
            late = Process(redis.url)
            await late.bus.start()
            heard: list[bytes] = []
            late.bus.receive("answers", heard.append)
            redis.start()

            async def asks() -> bool:
                with suppress(StoreUnavailable):
                    return bool(await late.link.send("SET", "question", "asked"))
                return False

            async def answers() -> bool:
                with suppress(StoreUnavailable):
                    await other.bus.pass_to(late.members.number, "answers", b"42")
                    return True
                return False

            await eventually(asks)
            await eventually(answers)
            await eventually(lambda: heard == [b"42"])
            assert await other.members.is_alive(late.members.number)
            await late.bus.close()


async def test_a_process_that_takes_a_new_number_is_known_by_it_at_once() -> None:
    address = fresh_address()
    async with Process(address) as other:
        process = Process(address)
        for _ in range(2):
            await process.bus.start()
            await process.link.send("PING")
            assert await other.link.send("ZSCORE", other.members.key, process.members.number)
            await process.bus.close()
            process.members.join()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_no_message_to_a_process_is_lost_or_repeated_while_its_bus_is_restarted(
    kind: str,
) -> None:
    address = fresh_address(kind)
    async with Process(address) as sender, Process(address) as process:
        heard: list[bytes] = []
        process.bus.receive("answers", heard.append)
        sent: list[bytes] = []

        async def send() -> None:
            while True:
                sent.append(b"%d" % len(sent))
                await sender.bus.pass_to(process.members.number, "answers", sent[-1])

        sending = asyncio.create_task(send())
        for number in range(1, 11):
            await eventually(lambda: len(heard) > 5 * number)  # noqa: B023
            await process.bus.close()
            await process.bus.start()
        sending.cancel()
        await asyncio.wait([sending])
        await sender.bus.pass_to(process.members.number, "answers", b"last")
        await eventually(lambda: heard[-1:] == [b"last"])
        acknowledged = sent[:-1]  # the one that was cancelled may have been stored
        assert heard[: len(acknowledged)] == acknowledged and len(heard) <= len(sent) + 1


async def test_a_process_is_known_while_it_reports_anew_and_not_after_it_left() -> None:
    address = fresh_address()
    async with Process(address) as other, Process(address) as process:
        heard: list[bytes] = []
        process.bus.receive("answers", heard.append)
        number = process.members.number
        reporting = asyncio.create_task(process.members.run())
        await eventually(lambda: other.link.send("ZSCORE", other.members.key, number))
        reporting.cancel()  # as its supervisor does when it failed
        await asyncio.wait([reporting])
        await other.bus.pass_to(number, "answers", b"42")
        await eventually(lambda: heard == [b"42"])
        inbox = process.members.inbox_of(number)
        assert await other.link.send("EXISTS", inbox) == 1
        await process.members.leave()
        await other.bus.pass_to(number, "answers", b"too late")
        assert await other.link.send("EXISTS", inbox) == 0
        assert not await other.members.is_alive(number)


async def test_a_process_that_reached_the_store_again_does_not_judge_the_others_at_once() -> None:
    address = fresh_address()
    async with Process(address) as one, Process(address) as slow:
        await one.members.report()
        lapsed = await one.link.send("ZADD", one.members.key, 1, slow.members.number)
        assert lapsed == 0
        one.members.introduction()  # as if the store was away for all of them
        await one.members.report()
        assert await one.members.is_alive(slow.members.number)
        await one.members.report()
        assert not await one.link.send("ZSCORE", one.members.key, slow.members.number)


async def test_processes_may_report_before_they_are_judged_when_the_store_was_away() -> None:
    address = fresh_address()
    async with Process(address) as one, Process(address) as slow:
        heard: list[bytes] = []
        slow.bus.receive("answers", heard.append)
        number, reports = slow.members.number, one.link.key("members", "reports")
        for _ in range(2):  # it is no longer new
            await one.members.report()
        # Nobody could report for a minute, and the other process has not tried again yet.
        await one.link.send("HSET", reports, "reported", clock.now() - 60)
        await one.link.send("ZADD", one.members.key, 1, number)
        for _ in range(3):
            await one.members.report()
        await one.bus.pass_to(number, "answers", b"42")
        await eventually(lambda: heard == [b"42"])
        await one.link.send("HSET", reports, "patient", 1)
        await one.members.report()
        assert not await one.members.is_alive(number)


async def test_a_message_to_a_process_that_is_not_known_yet_is_refused_for_now() -> None:
    address = fresh_address()
    async with Process(address) as one:
        gone = one.members.number + 1
        reports = one.link.key("members", "reports")
        # Nobody could report for so long that all leases are gone: the other one may join again soon.
        await one.link.send("HSET", reports, "reported", clock.now() - 100)
        await one.link.send("DEL", one.members.key)
        await one.members.report()
        with pytest.raises(StoreUnavailable, match="not reported"):
            await one.bus.pass_to(gone, "answers", b"42")
        await one.link.send("HSET", reports, "patient", 1)
        await one.bus.pass_to(gone, "answers", b"42")  # nobody waits for it


async def test_the_last_words_of_a_dead_process_are_spoken_once() -> None:
    address = fresh_address()
    async with Process(address) as dead, Process(address) as one, Process(address) as two:
        dead.events.begin("s", "p", [b"last words"])
        dead.events.append("s", "p", b"event")
        await dead.events.stored("s", "p")
        await dead.link.send("ZREM", dead.link.key("members"), dead.members.number)
        kept = await asyncio.gather(*(each.events.after("s", "p", 1) for each in (one, two)))
        for each in kept:
            assert (each.events, each.ended) == ([(2, b"last words")], True)
        dead.events.append("s", "p", b"late")  # it was only slow
        await dead.events.stored("s", "p")
        assert (await one.events.after("s", "p", 1)).events == [(2, b"last words")]


async def test_a_reader_hears_of_the_death_of_the_producer_it_follows() -> None:
    address = fresh_address()
    async with Process(address) as dead, Process(address) as one:
        await one.members.report()
        dead.events.begin("s", "p", [b"last words"])
        dead.events.append("s", "p", b"event")
        await dead.events.stored("s", "p")
        listener = Listener()
        one.events.follow("s", "p", listener)
        assert (await one.events.after("s", "p", 1)).events == []
        dead.events.append("s", "p", b"more")
        await eventually(lambda: listener.heard_events == [(2, b"more")])
        await dead.link.send("ZREM", dead.link.key("members"), dead.members.number)
        await one.members.report()
        await eventually(lambda: listener.is_over)
        assert listener.heard_events == [(2, b"more"), (3, b"last words")]


async def test_an_event_that_is_appended_while_the_store_is_asked_is_not_overlooked() -> None:
    address = fresh_address()
    async with Process(address) as writer, Process(address) as reader:
        writer.events.append("s", "p", b"first")
        await writer.events.stored("s", "p")
        listener = Listener()
        reader.events.follow("s", "p", listener)
        await reader.events.after("s", "p", 1)
        ask, asked, go_on = reader.events._steps.after, asyncio.Event(), asyncio.Event()

        async def answer_late(*given: Any) -> Any:
            found = await ask(*given)
            asked.set()
            await go_on.wait()  # the loop is held up, or the reply comes after the notice
            return found

        reader.events._steps.after = answer_late  # type: ignore[method-assign]
        notices: list[bytes] = []
        reader.bus.receive("events", notices.append)
        writer.events.append("s", "p", b"second")
        await asked.wait()
        writer.events.append("s", "p", b"third")
        await eventually(lambda: len(notices) == 2)
        go_on.set()
        await eventually(lambda: listener.heard_events == [(2, b"second"), (3, b"third")])


async def test_a_reader_of_what_was_read_already_does_not_look_for_ever() -> None:
    address = fresh_address()
    async with Process(address) as writer, Process(address) as reader:
        listener = Listener()
        reader.events.follow("s", "p", listener)
        await reader.events.after("s", "p", None)
        for number in range(3):
            writer.events.append("s", "p", b"%d" % number)
        await eventually(lambda: len(listener.heard_events) == 3)
        # The store loses the newest event, as in a failover; the others were read.
        state, kept, _ = reader.events._steps.keys("s", "p")
        await reader.link.send("DEL", kept)
        await reader.link.send("XADD", kept, "2-0", "m", "1")
        await reader.link.send("HSET", state, "last", 2, "read", 2)
        stream = reader.events._streams["s", "p"]
        for known in (0, 2):  # it finds that events were lost, and then where to go on
            reader.events._look_soon(stream)
            await eventually(lambda: stream.heard == known and stream.looking is None)  # noqa: B023
        writer.events.append("s", "p", b"new")
        await eventually(lambda: listener.heard_events[3:] == [(3, b"new")])


async def test_an_announcement_is_made_once_by_however_many_processes() -> None:
    address = fresh_address()
    async with Process(address) as one, Process(address) as two:
        listener = Listener()
        one.events.follow("s", "s", listener)
        await one.events.after("s", "s", None)
        for position in ("1", "2"):
            for each in (two, one, two):
                each.events.announce("s", "s", b"changed", position)
        one.events.announce("s", "s", b"changed", "1")  # it lags behind
        await eventually(lambda: listener.heard_events == [(1, b"changed"), (2, b"changed")])
        await eventually(lambda: not one.events._announcements and not two.events._announcements)
        assert (await two.events.after("s", "s", None)).last == 2


async def test_a_session_keeps_its_open_streams_and_some_that_ended() -> None:
    async with Process(fresh_address()) as one:
        listener = Listener()
        one.events.follow("s", "standing", listener)
        await one.events.after("s", "standing", None)
        one.events.announce("s", "standing", b"first", "1")
        await eventually(lambda: listener.heard_events == [(1, b"first")])
        for number in range(MAX_STREAMS + 20):
            one.events.append("s", f"call{number}", b"answer")
            one.events.end("s", f"call{number}")
            await one.events.stored("s", f"call{number}")
        names = await one.link.send("ZRANGE", one.events._steps.keys("s", "")[2], 0, -1)
        assert len(names) == MAX_STREAMS and b"standing" in names
        with pytest.raises(EventsLost):
            await one.events.after("s", "call0", 1)
        assert (await one.events.after("s", "standing", 1)).events == []
        one.events.announce("s", "standing", b"second", "2")
        await eventually(lambda: listener.heard_events[1:] == [(2, b"second")])


async def test_a_store_that_lost_its_data_leaves_no_reader_deaf() -> None:
    known = 5
    with running("redis") as redis:
        async with Process(redis.url) as one, Process(redis.url) as two:
            ours, theirs = Listener(), Listener()
            for process, listener in ((one, ours), (two, theirs)):
                process.events.follow("s", "standing", listener)
                await process.events.after("s", "standing", None)
            for number in range(known):
                for process in (one, two):
                    process.events.announce("s", "standing", b"old", str(number))
            for listener in (ours, theirs):
                await eventually(lambda listener=listener: len(listener.heard_events) == known)
            keys = [*one.events._steps.keys("s", "standing"), one.link.key_of(digest_of("s"), "a")]
            await one.link.send("DEL", *keys)
            for process in (one, two):
                process.events.announce("s", "standing", b"new", "7")
            for listener in (ours, theirs):
                await eventually(lambda listener=listener: (1, b"new") in listener.heard_events)
                assert not listener.is_over
            assert (await one.events.after("s", "standing", None)).last == 1


async def test_a_process_that_died_while_it_read_is_forgotten_by_the_next_reader() -> None:
    address = fresh_address()
    async with Process(address) as dead, Process(address) as one:
        await dead.events.after("s", "s", None)  # it reads the stream
        key = one.events._steps.keys("s", "s")[0]
        assert await one.link.send("HEXISTS", key, f"reader:{dead.members.number}")
        await dead.link.send("ZREM", dead.link.key("members"), dead.members.number)
        await one.events.after("s", "s", None)

        async def is_forgotten() -> bool:
            return not await one.link.send("HEXISTS", key, f"reader:{dead.members.number}")

        await eventually(is_forgotten)


async def test_what_was_published_before_a_process_joined_is_known_to_it() -> None:
    address = fresh_address()
    async with Process(address) as one:
        await one.bus.spread("topic", b"a")
        await one.bus.spread("other", b"b")
        await one.bus.spread("topic", b"a")
        async with Process(address) as two:
            heard: list[Stored] = []
            two.bus.follow("topic", heard.append, lambda: None)
            two.bus.publish("topic", b"c")
            await eventually(lambda: len(heard) == 1)
            assert heard[0].own
            found = await two.bus.since(0.0)
            assert found is not None
            assert [(topic, stored.message) for topic, stored in found] == [
                ("topic", b"a"),
                ("topic", b"c"),
            ]
            assert await two.bus.since(clock.now() + 60) == []
            two.bus._missed()
            for time in (0.0, clock.now() + 60):
                assert await two.bus.since(time) is None  # anything may have been published
            await one.bus.spread("topic", b"d")
            await eventually(lambda: len(heard) == 2)
            assert await two.bus.since(0.0) is None
            assert await two.bus.since(clock.now() + 60) == []  # all that follows is known


async def test_a_process_that_began_without_the_store_knows_what_was_published_before_it_read() -> (
    None
):
    with running("redis") as redis:
        redis.stop()
        late = Process(redis.url)
        late.bus.follow("topic", lambda _: None, lambda: None)
        await late.bus.start()
        redis.start()
        entry = {"w": "other", "t": "topic", "m": "news"}
        with Redis(unix_socket_path=str(redis.socket)) as client:  # before `late` reaches the store
            client.xadd(late.bus.key, entry)
        tail = late.bus._tail
        assert tail is not None
        await eventually(lambda: tail.position(late.bus.key) is not None)
        found = await late.bus.since(0.0)
        assert found is not None
        assert [(topic, stored.message) for topic, stored in found] == [("topic", b"news")]
        await late.bus.close()


async def test_what_is_published_between_a_look_back_and_the_first_read_is_known() -> None:
    async with Process(fresh_address()) as one:
        recent = Recent(one.link, one.bus.key, ["topic"])
        for number, message in enumerate((b"a", b"b", b"a")):
            await one.bus.spread("topic", message)
            if number < 2:
                assert await recent.since(0.0)
                recent.begin()
        found = await recent.since(0.0)
        assert found is not None
        assert [stored.message for _, stored in found] == [b"b", b"a"]


class FailsToDisconnect(RedisAddress, frozen=True):
    """An address whose connections take too long to close, as they do on a busy machine."""

    @staticmethod
    async def disconnect(client: Any) -> None:
        await RedisAddress.disconnect(client)
        raise TimeoutError("Timed out closing connection after 2.0")


async def test_a_bus_reads_on_after_a_connection_that_could_not_be_closed() -> None:
    with running("redis") as redis:
        address = FailsToDisconnect(**asdict(parse(redis.url)))
        link = RedisLink(address)
        bus = RedisBus(link, RedisMembers(link))
        heard: list[bytes] = []
        bus.subscribe("topic", heard.append)
        await bus.start()
        async with Process(redis.url) as other:
            for number in range(2):
                other.bus.publish("topic", b"%d" % number)
                await eventually(lambda: len(heard) > number)  # noqa: B023
                redis.stop()
                redis.start()
        with suppress(TimeoutError):
            await bus.close()


# Workers that are killed


async def test_a_killed_workers_task_is_taken_by_one_other() -> None:
    address = fresh_address()
    program = f"""
import asyncio, os, signal
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_tasks import RedisTaskStore
from mcpearl.stores.tasks import TaskRecord, holder_name

async def main():
    store = RedisTaskStore(RedisLink(parse({address!r})))
    await store.start()
    record = TaskRecord(id="t", owner=("issuer", "ann", None), ttl=60.0)
    await store.create(record, "dead", 0.3)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    dead = subprocess.Popen([sys.executable, "-c", program])
    assert await asyncio.to_thread(dead.wait) == -signal.SIGKILL
    stores = [RedisTaskStore(RedisLink(parse(address))) for _ in range(3)]
    for store in stores:
        await store.start()

    async def taken() -> list[Any]:
        claims = await asyncio.gather(*(store.claim("t", "heir", 30.0) for store in stores))
        return [claim for claim in claims if claim is not None]

    claimed: list[Any] = []
    async with asyncio.timeout(30):
        while not claimed:
            claimed = await taken()
    assert len(claimed) == 1 and claimed[0].fence == 2
    for store in stores:
        await store.close()


# Proofs and names


async def test_a_proof_that_one_machine_saw_is_refused_by_all() -> None:
    address = fresh_address()
    links = [RedisLink(parse(address)) for _ in range(2)]
    for link in links:
        await link.start()
    one, two = (RedisProofStore(link) for link in links)
    assert await one.note("key", "id", 60.0)
    assert not await two.note("key", "id", 60.0)
    assert await two.note("other key", "id", 60.0)
    for link in links:
        await link.close()
    with pytest.raises(StoreUnavailable):
        await one.note("key", "another", 60.0)


async def test_a_name_is_held_by_one_process_of_all_machines() -> None:
    address = fresh_address()
    async with Process(address) as one, Process(address) as two:
        first = RedisNames(one.link, one.members, one.tasks, "here")
        second = RedisNames(two.link, two.members, two.tasks, "there")
        owner, other = object(), object()
        await first.claim("job", owner)
        await first.claim("job", owner)
        with pytest.raises(NameTaken, match="here"):
            await second.claim("job", other)
        with pytest.raises(NameTaken):
            await first.claim("job", other)
        assert await second.machine_of("job") == "here"
        assert await second.machine_of("other") is None
        first.let_go(owner)
        first.let_go(owner)

        async def is_free_again() -> bool:
            return await second.machine_of("job") is None

        await eventually(is_free_again)
        await second.claim("job", other)
        assert await first.machine_of("job") == "there"
        task = asyncio.create_task(asyncio.sleep(0))
        await first.claim("of a task", task)
        await task

        async def is_free() -> bool:
            return await first.machine_of("of a task") is None

        await eventually(is_free)
        record = TaskRecord(id="t", owner=ANN, ttl=60.0)
        await one.tasks.create(record, holder_name(), 60.0)
        assert await second.machine_of(("task", "t")) == socket.gethostname()
        assert await second.machine_of(("task", "u")) is None
        assert {member.number for member in await one.members.all()} == {
            one.members.number,
            two.members.number,
        }
