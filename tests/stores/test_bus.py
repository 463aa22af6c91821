"""The bus, over every means that carries it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Server
from mcpearl.runtime.budget import Budget
from mcpearl.server.subscriptions import Subscriber, Subscriptions
from mcpearl.stores.bus import Bus
from mcpearl.stores.memory_bus import MemoryBus
from mcpearl.stores.topics import MAX_MESSAGE
from mcpearl.stores.unix_bus import UnixBus
from tests.stores.suite import BUSES
from tests.waiting import eventually


@pytest.fixture(params=BUSES)
async def members(request: Any) -> AsyncIterator[list[Bus]]:
    async with BUSES[request.param](3) as made:
        for member in made:
            await member.start()
        yield made
        for member in made:
            await member.close()


async def test_a_message_reaches_the_subscribers_of_all_others(members: list[Bus]) -> None:
    heard: list[list[bytes]] = [[], [], []]
    for member, messages in zip(members, heard, strict=True):
        member.subscribe("topic", messages.append)
        member.subscribe("other", lambda _: pytest.fail("this topic has no messages"))
    members[0].publish("topic", b"a")
    members[1].publish("topic", b"b\nwith\n\0bytes\xff")
    members[2].publish("topic", b"")
    await eventually(lambda: sum(map(len, heard)) == 6)
    assert [sorted(messages) for messages in heard] == [
        [b"", b"b\nwith\n\0bytes\xff"],
        [b"", b"a"],
        [b"a", b"b\nwith\n\0bytes\xff"],
    ]


async def test_messages_of_one_publisher_arrive_in_order(members: list[Bus]) -> None:
    heard: list[bytes] = []
    members[1].subscribe("topic", heard.append)
    for number in range(50):
        members[0].publish("topic", b"%d" % number)
        if number % 5 == 4:  # so that no socket is full
            await eventually(lambda last=number: len(heard) > last)  # type: ignore[misc]
    assert heard == [b"%d" % number for number in range(50)]


async def test_a_subscription_ends_by_itself_only_when_asked(members: list[Bus]) -> None:
    first: list[bytes] = []
    second: list[bytes] = []
    unsubscribe = members[1].subscribe("topic", first.append)
    members[1].subscribe("topic", second.append)
    members[0].publish("topic", b"a")
    await eventually(lambda: first == second == [b"a"])
    unsubscribe()
    unsubscribe()
    members[0].publish("topic", b"b")
    await eventually(lambda: second == [b"a", b"b"])
    assert first == [b"a"]


async def test_a_subscriber_that_fails_does_not_stop_the_others(
    members: list[Bus], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: bytes) -> None:
        raise RuntimeError("on purpose")

    heard: list[bytes] = []
    members[1].subscribe("topic", fail)
    members[1].subscribe("topic", heard.append)
    with caplog.at_level(logging.ERROR):
        members[0].publish("topic", b"a")
        await eventually(lambda: heard == [b"a"])
    assert "a subscriber of 'topic' failed" in caplog.text


async def test_a_message_that_is_too_long_is_refused(members: list[Bus]) -> None:
    heard: list[bytes] = []
    members[1].subscribe("topic", heard.append)
    longest = b"x" * (MAX_MESSAGE - len("topic"))
    with pytest.raises(ValueError, match=f"over the {MAX_MESSAGE}"):
        members[0].publish("topic", longest + b"x")
    members[0].publish("topic", longest)
    await eventually(lambda: heard == [longest])


async def test_a_member_that_left_hears_and_says_nothing(members: list[Bus]) -> None:
    left: list[bytes] = []
    stays: list[bytes] = []
    members[1].subscribe("topic", left.append)
    members[2].subscribe("topic", stays.append)
    await members[1].close()
    await members[1].close()
    members[1].publish("topic", b"from the one that left")
    members[0].publish("topic", b"a")
    await eventually(lambda: stays == [b"a"])
    assert left == []
    await members[1].start()
    members[0].publish("topic", b"b")
    await eventually(lambda: left[-1:] == [b"b"])
    assert left in ([b"b"], [b"a", b"b"])  # a bus that stores messages continues where it stopped


async def test_servers_of_one_process_share_updates() -> None:
    class Hearing:
        def __init__(self) -> None:
            self.heard: list[bytes] = []

        def send(self, message: bytes) -> None:
            self.heard.append(message)

    one, two = Server("one"), Server("two")
    one.bus = first = MemoryBus()
    two.bus = first.join()
    outlet = Hearing()
    subscriber = Subscriber(outlet, Budget().account())  # type: ignore[arg-type]
    for name in ("before", "meanwhile", "after"):
        two.core.subscriptions.subscribe(subscriber, f"a://{name}")
    async with one.running():
        one.notify_resource_updated("a://before")
        async with two.running():
            one.notify_resource_updated("a://meanwhile")
            one.notify_resource_updated("a://other")
        one.notify_resource_updated("a://after")
    (heard,) = outlet.heard
    assert b'"uri":"a://meanwhile"' in heard


async def test_a_server_that_missed_updates_announces_all_it_has_subscribers_for() -> None:
    heard: list[bytes] = []
    subscriptions = Subscriptions()

    class Hearing:
        send = staticmethod(heard.append)

    subscriber = Subscriber(Hearing(), Budget().account())  # type: ignore[arg-type]
    for name in ("a", "b"):
        subscriptions.subscribe(subscriber, f"x://{name}")
    subscriptions.all_changed()
    assert [b'"uri":"x://a"' in heard[0], b'"uri":"x://b"' in heard[1]] == [True, True]


# Loss, which only a bus over sockets knows


async def test_a_member_that_does_not_keep_up_is_told_that_it_missed_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / "0", tmp_path / "1"]
    sender, slow = UnixBus(0, paths), UnixBus(1, paths)
    heard: list[bytes] = []
    missed: list[int] = []
    slow.subscribe("topic", heard.append, lambda: missed.append(len(heard)))
    await sender.start()
    await slow.start()
    with caplog.at_level(logging.WARNING):
        for number in range(5000):  # more than a socket holds, and nothing is read meanwhile
            sender.publish("topic", b"%d" % number)
    assert caplog.text.count("does not keep up") == 1
    await eventually(lambda: bool(missed))
    assert heard == [b"%d" % number for number in range(len(heard))]
    assert 0 < missed[0] == len(heard) < 5000
    sender.publish("topic", b"after")
    await eventually(lambda: heard[-1] == b"after")
    await sender.close()
    await slow.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_member_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    paths = [tmp_path / "0", tmp_path / "1"]
    first, second = UnixBus(0, paths), UnixBus(1, paths)
    paths[1].touch()  # what a killed process leaves
    await first.start()
    first.publish("topic", b"lost")
    heard: list[bytes] = []
    second.subscribe("topic", heard.append)
    await second.start()
    first.publish("topic", b"a")
    await eventually(lambda: heard == [b"a"])
    await first.close()
    await second.close()
