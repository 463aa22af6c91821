"""What processes are told of messages that they, or their server, lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.runtime import clock
from mcpearl.stores.bus import Stored
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_bus import MAX_UNSENT, RedisBus
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_sessions import RedisSessionStore
from mcpearl.stores.redis_tail import KEPT
from mcpearl.stores.sessions import SessionRecord
from tests.deployment.machines import two_machines
from tests.redis_server import fresh_address, running
from tests.waiting import eventually


class Process:
    """The bus of one process, and its session store."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.link = RedisLink(parse(address))
        self.bus = RedisBus(self.link, RedisMembers(self.link))
        self.sessions = RedisSessionStore(self.link, self.bus)
        self.sessions.use_keys([b"k" * 32])
        self.heard: list[bytes] = []
        self.missed: list[int] = []
        self.bus.follow("topic", self._hear, lambda: self.missed.append(len(self.heard)))

    def _hear(self, stored: Stored) -> None:
        self.heard.append(stored.message)

    async def __aenter__(self) -> "Process":
        await self.bus.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.bus.close()


@pytest.fixture(params=["redis", "valkey"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Process, Process]]:
    address = fresh_address(request.param)
    async with Process(address) as one, Process(address) as two:
        yield one, two


async def test_that_messages_could_not_be_published_is_known_to_all_processes(
    pair: tuple[Process, Process],
) -> None:
    one, two = pair
    for _ in range(MAX_UNSENT):
        one.bus.publish("topic", b"one of many")
    await asyncio.sleep(0)  # they are being sent
    one.bus.publish("topic", b"last")
    for each in (one, two):
        await eventually(lambda each=each: each.heard[-1:] == [b"last"])
        assert each.missed, "its sessions may have missed something, its own messages included"
    async with Process(one.address) as late:
        for each in (one, two, late):
            assert await each.bus.since(0.0) is None
            assert await each.bus.since(clock.now() + 60) == []  # all that follows is known


async def test_what_a_server_with_another_clock_adds_after_a_loss_is_heard() -> None:
    """Another server takes over that has not got the newest entry, and is a minute behind."""
    with running("redis") as redis:
        async with Process(redis.url) as one, Process(redis.url) as two:
            ahead = f"{int((clock.now() + 60) * 1000)}-0"
            entry = ("w", "other", "t", "topic", "m", "newest")
            await one.link.send("XADD", one.bus.key, ahead, *entry)
            for each in (one, two):
                await eventually(lambda each=each: each.heard == [b"newest"])
            await one.link.send("DEL", one.bus.key)
            before = f"{int((clock.now() - 60) * 1000)}-0"
            await one.link.send("XADD", one.bus.key, before, *entry[:-1], "oldest")
            one.bus.publish("topic", b"after")
            await eventually(lambda: not one.bus._unsent)
            redis.stop()
            redis.start()
            for each in (one, two):
                await eventually(lambda each=each: b"after" in each.heard)
                await eventually(lambda each=each: each.missed == [1, 3])
                for age in (0, 30):  # it is not known what was lost with the entry
                    assert await each.bus.since(clock.now() - age) is None
            one.bus.publish("topic", b"later")
            for each in (one, two):
                await eventually(lambda each=each: each.heard[-1] == b"later")
                assert await each.bus.since(clock.now() - 30) is None
                assert await each.bus.since(clock.now() + 60) == []


async def test_a_process_that_had_read_nothing_yet_is_told_that_a_stream_was_trimmed() -> None:
    async with Process(fresh_address()) as one:
        await one.bus.close()
        client = one.link.address.client(None)
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(KEPT + 500):
                fields: dict[Any, Any] = {"w": "other", "t": "topic", "m": str(number)}
                pipeline.xadd(one.bus.key, fields, maxlen=KEPT)
            await pipeline.execute()
        await client.aclose()
        await one.bus.start()
        await eventually(lambda: one.heard[-1:] == [b"%d" % (KEPT + 499)])
        assert one.missed == [0] and b"0" not in one.heard


async def test_what_was_published_before_a_session_changed_is_made_up_for(
    pair: tuple[Process, Process],
) -> None:
    """The process that saved the change may have died before it announced the message."""
    one, two = pair
    state = EndSnapshot("2025-11-25", ready=True)
    record = SessionRecord(id="", identity=(None, "ann", None), state=state, uris=("a://b",))
    record = replace(record, id=one.sessions.new_id(record))
    await one.bus.spread("topic", b"before the session")
    await eventually(lambda: one.heard == [b"before the session"])
    await asyncio.sleep(0.01)  # positions are in milliseconds
    assert await one.sessions.save(record, 60.0)
    await two.bus.spread("topic", b"news")
    await asyncio.sleep(0.01)
    changed = replace(record, state=replace(state, log_level="error"), revision=2)
    assert await one.sessions.save(changed, 60.0)
    loaded = await two.sessions.load(record.id)
    assert loaded is not None and loaded.state.log_level == "error"
    missed = await two.sessions.missed(loaded)
    assert [each.message for each in missed or ()] == [b"news"]


async def test_a_session_hears_of_lists_too_when_it_is_not_known_what_it_missed() -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        await begun.ask("resources/subscribe", {"uri": "config://a"})
        two.store.bus._missed()  # as after a cut that outlasted the stream
        stream = await two.take_up(begun).get()
        heard = {(await stream.next())["method"] for _ in range(3)}
        assert heard == {
            "notifications/resources/updated",
            "notifications/resources/list_changed",
            "notifications/tools/list_changed",
        }
