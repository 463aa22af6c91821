"""The wire inside one process."""

from typing import Any

from mcpearl.transports.memory import MemoryTransport, memory_pair


class Ear:
    """A receiver that remembers; it may answer while it receives."""

    def __init__(self, answers: MemoryTransport | None = None) -> None:
        self.heard: list[Any] = []
        self.flowing: list[bool] = []
        self.losses: list[Any] = []
        self._answers = answers

    def received(self, frames: list[Any]) -> None:
        self.heard += frames
        if self._answers is not None:
            for frame in frames:
                if len(frame) < 1000:
                    self._answers.send(frame + b"!")

    def ended(self) -> None: ...

    def lost(self, reason: Exception | None) -> None:
        self.losses.append(reason)

    def writable(self, flowing: bool) -> None:
        self.flowing.append(flowing)


async def test_what_one_sends_the_other_receives_in_order() -> None:
    one, other = memory_pair()
    ear = Ear()
    one.send(b"before it was open")
    await one.open(Ear())
    await other.open(ear)
    for number in range(10):
        one.send(b"%d" % number)
    assert ear.heard == [b"before it was open", *(b"%d" % number for number in range(10))]


async def test_two_that_answer_each_other_do_not_recurse() -> None:
    one, other = memory_pair()
    ears = Ear(one), Ear(other)
    await one.open(ears[0])
    await other.open(ears[1])
    one.send(b"")
    assert len(ears[0].heard) + len(ears[1].heard) == 1001


async def test_pausing_leaves_messages_with_the_sender() -> None:
    one, other = memory_pair()
    ear = Ear()
    await one.open(Ear())
    await other.open(ear)
    other.pause()
    one.send(b"a")
    one.send(b"b")
    assert ear.heard == []
    other.resume()
    assert ear.heard == [b"a", b"b"]


async def test_a_sender_is_told_when_too_much_is_left_unread() -> None:
    one, other = memory_pair()
    sender, ear = Ear(), Ear()
    await one.open(sender)
    await other.open(ear)
    other.pause()
    for _ in range(3):
        one.send(b"x" * 600_000)
    assert sender.flowing == [False]
    other.resume()
    assert sender.flowing == [False, True]
    assert len(ear.heard) == 3


async def test_the_end_is_told_once_to_both() -> None:
    one, other = memory_pair()
    ears = Ear(), Ear()
    await one.open(ears[0])
    await other.open(ears[1])
    await one.close()
    await other.close()
    await one.close()
    one.send(b"to nobody")
    other.send(b"to nobody")
    assert [ear.losses for ear in ears] == [[None], [None]]
    assert [ear.heard for ear in ears] == [[], []]
