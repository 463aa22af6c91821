"""Taking turns: how much of one peer is taken before the others are looked at."""

from mcpearl.net.fairness import LARGEST, PATIENCE, SMALLEST, Backlog, Fairness


def turn(unread: Backlog, turns: Fairness, who: str) -> bytes:
    return unread.take() if unread.begin(turns, who) else b""


def test_who_is_alone_is_taken_in_ever_larger_pieces():
    turns, unread = Fairness(), Backlog()
    data = bytes(10 * LARGEST)
    unread.put(data)
    sizes = []
    while unread:
        sizes.append(len(turn(unread, turns, "one")))
    assert sum(sizes) == len(data)
    assert sizes[:3] == [SMALLEST, 2 * SMALLEST, 4 * SMALLEST]
    assert max(sizes) == LARGEST


def test_who_is_not_alone_is_taken_in_small_ones():
    turns, unread = Fairness(), Backlog()
    unread.put(bytes(10 * LARGEST))
    for _ in range(10):
        turn(unread, turns, "one")
    turns.speaker = "other"
    assert len(turn(unread, turns, "one")) == SMALLEST
    assert len(turn(unread, turns, "one")) == 2 * SMALLEST


def test_who_says_little_goes_first_but_not_for_ever():
    turns, unread = Fairness(), Backlog()
    unread.put(bytes(10 * LARGEST))
    assert len(turn(unread, turns, "one")) == SMALLEST
    for _ in range(3):
        taken = []
        for _ in range(PATIENCE + 1):
            turns.speaker = "other"
            turns.spoken += 1
            taken.append(len(turn(unread, turns, "one")))
        assert taken == [0] * PATIENCE + [SMALLEST]
    turns.speaker = "other"
    turns.spoken += 1
    assert turn(unread, turns, "one") == b""
    assert len(turn(unread, turns, "one")) == SMALLEST  # nobody spoke since


def test_nothing_is_lost_or_told_twice():
    turns, unread = Fairness(), Backlog()
    data = bytes(range(256)) * 100
    unread.put(data[:5000])
    found = turn(unread, turns, "one")
    unread.put(data[5000:])
    while unread:
        found += turn(unread, turns, "one")
    assert found == data
    assert not unread
