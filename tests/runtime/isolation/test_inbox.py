"""An inbox: a call is taken by one side, never by both, and never lost."""

import os
import threading

from mcpearl.runtime.isolation.inbox import LARGEST, LARGEST_CALL, Inbox, is_end, payload_of


def test_what_is_not_taken_can_be_taken_back() -> None:
    inbox = Inbox()
    for number in range(1, 5):
        assert inbox.put(number, b"call %d" % number)
    assert payload_of(os.read(inbox.reader, LARGEST)) == b"call 1"
    assert [inbox.take_back() for _ in range(4)] == [2, 3, 4, None]
    inbox.announce(7)
    assert payload_of(os.read(inbox.reader, LARGEST)) is None
    assert inbox.take_back() is None
    inbox.handed_over()
    inbox.close()


def test_there_is_an_end_of_room() -> None:
    inbox = Inbox()
    payload = b"x" * LARGEST_CALL
    held = 0
    while inbox.put(held, payload):
        held += 1
        assert held < 1000
    assert held > 0
    assert [inbox.take_back() for _ in range(held)] == list(range(held))
    inbox.handed_over()
    inbox.close()


def test_two_sides_that_take_at_the_same_time() -> None:
    inbox = Inbox()
    taken: list[int] = []
    back: list[int] = []

    def take() -> None:
        while not is_end(message := os.read(inbox.reader, LARGEST)):
            taken.append(int(payload_of(message) or b"-1"))

    thread = threading.Thread(target=take)
    thread.start()
    for number in range(1, 2001):
        while not inbox.put(number, b"%d" % number):
            pass  # there is no room until the other side has taken something
        if number % 3 == 0 and (found := inbox.take_back()) is not None:
            back.append(found)
    inbox.close_for_more()
    thread.join()
    inbox.handed_over()
    inbox.close()
    assert sorted(taken + back) == list(range(1, 2001))
