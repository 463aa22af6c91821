"""Announcements to many streams on Redis and Valkey: few steps, in order, each once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl.stores import redis_announcements
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_event_steps import AT_ONCE, MAX_EVENTS
from mcpearl.stores.redis_events import RedisEventStore
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_sessions import digest_of
from tests.redis_server import fresh_address
from tests.stores.test_events import Listener
from tests.waiting import eventually


class Announcer:
    """The event store of one process."""

    def __init__(self, address: str) -> None:
        self.link = RedisLink(parse(address))
        members = RedisMembers(self.link)
        self.bus = RedisBus(self.link, members)
        self.events = RedisEventStore(self.link, self.bus, members)

    async def __aenter__(self) -> "Announcer":
        await self.bus.start()
        self.events.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.events.close()
        await self.bus.close()

    async def read(self, session: str) -> Listener:
        """Read the stream of a session here."""
        listener = Listener()
        self.events.follow(session, "s", listener)
        await self.events.after(session, "s", None)
        return listener

    async def stored(self, session: str) -> list[bytes]:
        """Return what is in the stream of a session."""
        entries = await self.link.send("XRANGE", self.events._steps.keys(session, "s")[1], "-", "+")
        return [fields[1] for _, fields in entries]

    async def settled(self) -> None:
        await eventually(lambda: not self.events._announcements)


@pytest.fixture(params=["redis", "valkey"])
async def one(request: pytest.FixtureRequest) -> AsyncIterator[Announcer]:
    async with Announcer(fresh_address(request.param)) as made:
        yield made


async def test_many_streams_are_announced_to_in_few_steps(one: Announcer) -> None:
    sessions = [f"session {number}" for number in range(3 * AT_ONCE)]
    listeners = [await one.read(session) for session in sessions]
    before = one.link.sent
    for session in sessions:
        one.events.announce(session, "s", b"news", "1")
    await one.settled()
    assert one.link.sent - before <= 3
    assert all(listener.heard_events == [(1, b"news")] for listener in listeners)


async def test_announcements_of_one_turn_keep_their_order(one: Announcer) -> None:
    first, second = await one.read("first"), await one.read("second")
    orders = {"first": (b"a", b"b", b"a"), "second": (b"b", b"a", b"c")}
    for session, order in orders.items():
        for position, message in enumerate(order):
            one.events.announce(session, "s", message, str(position))
    await one.settled()
    assert [message for _, message in first.heard_events] == [b"a", b"b", b"a"]
    assert [message for _, message in second.heard_events] == [b"b", b"a", b"c"]


async def test_a_foreign_value_in_one_stream_does_not_stop_the_others(
    one: Announcer, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = {session: await one.read(session) for session in ("a", "b", "c")}
    await one.link.send("SET", one.events._steps.keys("b", "s")[0], "not ours")
    for session in listeners:
        one.events.announce(session, "s", b"news", "1")
    await one.settled()
    heard = {session: listener.heard_events for session, listener in listeners.items()}
    assert heard == {"a": [(1, b"news")], "b": [], "c": [(1, b"news")]}
    assert "not ours" in caplog.text


async def test_a_stream_that_is_not_read_here_is_announced_to_a_moment_later(
    one: Announcer,
) -> None:
    one.events.announce("session", "s", b"news", "1")
    await asyncio.sleep(0)
    assert await one.stored("session") == []
    await one.settled()
    assert await one.stored("session") == [b"news"]


async def test_a_reader_that_comes_does_not_wait_for_that_moment(
    one: Announcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_announcements, "UNREAD_DELAY", 3600.0)
    one.events.announce("session", "s", b"news", "1")
    listener = await one.read("session")
    await eventually(lambda: listener.heard_events == [(1, b"news")])


async def test_what_waits_for_a_session_goes_with_it(one: Announcer) -> None:
    for session in ("ended", "other"):
        one.events.announce(session, "s", b"news", "1")
    one.events.leave("ended", "s")
    await one.settled()
    assert (await one.stored("ended"), await one.stored("other")) == ([], [b"news"])


async def test_what_waits_is_written_when_the_process_leaves() -> None:
    address = fresh_address()
    async with Announcer(address) as reader:
        async with Announcer(address) as leaving:
            leaving.events.announce("session", "s", b"news", "1")
        assert await reader.stored("session") == [b"news"]


async def test_no_more_waits_for_a_stream_than_it_would_keep(one: Announcer) -> None:
    for position in range(MAX_EVENTS + 5):
        one.events.announce("session", "s", b"%d" % position, f"{position:05d}")
    await one.settled()
    stored = await one.stored("session")
    assert (stored[0], len(stored)) == (b"5", MAX_EVENTS)


class Failing(Listener):
    """A reader that cannot take an event."""

    def heard(self, number: int, message: bytes) -> None:
        raise RuntimeError("it cannot be taken")


async def test_a_reader_that_fails_does_not_stop_the_others(
    one: Announcer, caplog: pytest.LogCaptureFixture
) -> None:
    one.events.follow("first", "s", Failing())
    beside = await one.read("first")
    others = [await one.read(f"session {number}") for number in range(2 * AT_ONCE)]
    for session in ("first", *(f"session {number}" for number in range(2 * AT_ONCE))):
        one.events.announce(session, "s", b"news", "1")
    await one.settled()
    assert {len(listener.heard_events) for listener in (beside, *others)} == {1}
    assert "it cannot be taken" in caplog.text


async def test_what_waits_goes_on_after_an_error_that_was_not_foreseen(
    one: Announcer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = await one.read("first"), await one.read("last")
    steps, announce = one.events._steps, one.events._steps.announce

    async def garbled(*given: Any) -> Any:
        await announce(*given)
        monkeypatch.setattr(steps, "announce", announce)
        raise ValueError("a reply that is not understood")

    monkeypatch.setattr(steps, "announce", garbled)
    monkeypatch.setattr(redis_announcements, "AT_ONCE", 1)
    for session in ("first", "last"):
        one.events.announce(session, "s", b"news", "1")
    await one.settled()
    assert last.heard_events == [(1, b"news")]
    await eventually(lambda: first.heard_events == [(1, b"news")])  # it was stored
    assert "not understood" in caplog.text


@pytest.mark.parametrize("foreign", ["text", "position"])
async def test_foreign_values_in_a_stream_do_not_stop_the_others(
    one: Announcer, foreign: str, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = {session: await one.read(session) for session in ("a", "b", "c")}
    state, events, _ = one.events._steps.keys("b", "s")
    if foreign == "text":
        await one.link.send("HSET", state, "last", "not a number")
    else:
        await one.link.send("XADD", events, "99-0", "m", "not ours")
    for position in ("1", "1", "2"):
        for session in listeners:
            one.events.announce(session, "s", b"news", position)
    await one.settled()
    for session in ("a", "c"):
        assert listeners[session].heard_events == [(1, b"news"), (2, b"news")]
    assert b"news" not in [message for _, message in listeners["b"].heard_events]
    assert "not ours" in caplog.text


async def test_what_many_streams_read_is_noted_in_few_steps(one: Announcer) -> None:
    sessions = [f"session {number}" for number in range(2 * AT_ONCE)]
    for session in sessions:
        one.events.append(session, "s", b"event")
        await one.read(session)
        await one.events.stored(session, "s")
    state = one.events._steps.keys(sessions[7], "s")[0]
    await one.link.send("DEL", state)
    await one.link.send("SET", state, "not ours")
    before = one.link.sent
    for session in sessions:
        one.events.mark_read(session, "s", 1)
    await eventually(lambda: not one.events._dirty)
    noted = [
        await one.link.send("HGET", one.events._steps.keys(session, "s")[0], "read")
        for session in sessions
        if session != sessions[7]
    ]
    assert set(noted) == {b"1"}
    assert one.link.sent - before - len(noted) <= 2


async def test_nothing_is_written_to_a_session_that_was_ended_elsewhere(one: Announcer) -> None:
    listener = await one.read("ended")
    one.events._steps.forget("ended")
    key = one.link.key_of(digest_of("ended"), "session")
    await one.link.send("HSET", key, "revision", -1)  # as its end at another process does
    for session in ("ended", "other"):
        one.events.announce(session, "s", b"news", "1")
    await one.settled()
    assert (await one.stored("ended"), await one.stored("other")) == ([], [b"news"])
    assert not await one.link.send("EXISTS", *one.events._steps.keys("ended", "s"))
    assert listener.heard_events == []
