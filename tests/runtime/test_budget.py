"""The budget by itself: shares, room, history that gives way, and that everything is given back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpearl.runtime.budget import (
    CHUNK,
    LITTLE,
    MIB,
    Account,
    Budget,
    History,
    Holding,
    NoRoom,
    default_budget,
)

TOTAL = 256 * CHUNK


def fill(account: Account, step: int = CHUNK) -> Holding:
    """Hold as much as the peer may."""
    greedy = account.open("answers")
    while greedy.resize(greedy.size + step):
        pass
    return greedy


def test_one_peer_gets_a_quarter_and_the_next_a_quarter_of_the_rest() -> None:
    budget = Budget(256 * CHUNK)
    first, second = fill(budget.account("a")), fill(budget.account("b"))
    assert (first.size, second.size) == (64 * CHUNK, 48 * CHUNK)
    first.release()
    assert second.resize(second.size + CHUNK)


def test_peers_that_hold_little_find_room_beside_those_that_take_all_they_can() -> None:
    budget = Budget(64 * MIB)
    greedy = [fill(budget.account(name), MIB // 4) for name in range(30)]
    assert greedy[0].size == 16 * MIB
    assert budget.held < 60.2 * MIB
    peers = [budget.account(("little", name)) for name in range(60)]
    assert all(peer.open("bodies").resize(LITTLE) for peer in peers)
    assert not peers[0].open("bodies").resize(CHUNK)
    for name in range(1000):
        fill(budget.account(("many", name)))
    assert budget.held <= 64 * MIB


def test_a_refusal_changes_nothing_and_says_why() -> None:
    told: list[tuple[str, str]] = []
    budget = Budget(TOTAL, lambda bound, detail: told.append((bound, detail)))
    held = budget.account("a").hold("bodies", TOTAL // 8)
    with pytest.raises(NoRoom, match=r"holds 128 KiB for this client .* share 1.0 MiB.*try again"):
        held.grow(TOTAL)
    assert held.size == budget.held == TOTAL // 8
    ((bound, detail),) = told
    assert bound == "max_held"
    assert detail.startswith("bodies: The server holds")


def test_connections_of_one_peer_are_counted_together() -> None:
    budget = Budget(TOTAL)
    first, again, alone = budget.account("a"), budget.account("a"), budget.account()
    assert first is again
    first.hold("bodies", TOTAL // 4)
    assert not again.open("answers").resize(CHUNK)
    assert alone.open("answers").resize(CHUNK), "without a key there is nothing to share"


def test_a_peer_is_spent_until_it_has_given_back() -> None:
    budget = Budget(TOTAL)
    peer = budget.account("a")
    first, second = peer.hold("bodies", TOTAL // 8), peer.hold("bodies", TOTAL // 8)
    assert not (peer.is_spent or budget.pressed)
    assert not second.resize(TOTAL // 2)
    assert peer.is_spent
    assert budget.pressed
    assert not budget.account("b").is_spent
    first.release()
    assert not (peer.is_spent or budget.pressed)
    second.release()


def test_a_peer_is_not_spent_any_more_when_others_give_back() -> None:
    budget = Budget(TOTAL)
    others = [fill(budget.account(n)) for n in range(3)]
    peer = budget.account("a")
    held = peer.hold("bodies", 24 * CHUNK)
    assert not held.resize(TOTAL // 2)
    assert peer.is_spent
    for other in others:
        other.release()
    assert not peer.is_spent


def test_idle_holdings_of_the_same_peer_make_room_the_oldest_first() -> None:
    budget = Budget(TOTAL)
    idle: dict[Any, list[Any]] = {}
    ended: list[int] = []

    def end_oldest(account: Any) -> bool:
        if not idle.get(account):
            return False
        number, holding = idle[account].pop(0)
        ended.append(number)
        holding.release()
        return True

    stop = budget.when_short(end_oldest)
    mine, other = budget.account("a"), budget.account("b")
    for account in (mine, other):
        idle[account] = [(n, account.hold("sessions", TOTAL // 32)) for n in range(4)]
    body = mine.open("bodies")
    assert body.resize(36 * CHUNK)
    assert ended == [0, 1]
    assert len(idle[other]) == 4, "what other peers hold is theirs"
    assert not mine.open("bodies").resize(TOTAL), "what could never fit ends nothing"
    assert ended == [0, 1]
    stop()
    assert not body.resize(TOTAL // 2)
    assert ended == [0, 1]


class Store:
    """A history of pieces of one size, the oldest of which is dropped first."""

    def __init__(self, budget: Budget) -> None:
        self.pieces = 0
        self.counter: History = budget.history(self.drop)

    def add(self) -> None:
        self.pieces += 1
        self.counter.resize(self.pieces * CHUNK)

    def drop(self, size: int) -> None:
        self.pieces -= min(self.pieces, -(-size // CHUNK))
        self.counter.resize(self.pieces * CHUNK)


def test_history_fills_what_is_free_and_gives_way() -> None:
    budget = Budget(TOTAL)
    store = Store(budget)
    for _ in range(600):
        store.add()
    assert budget.held == TOTAL
    body = budget.account("a").hold("bodies", TOTAL // 4)
    assert (store.pieces, budget.held) == (192, TOTAL)
    body.release()
    assert budget.by_kind == {"history": 192 * CHUNK, "bodies": 0}
    store.counter.close()
    assert budget.held == 0


KINDS = ("bodies", "answers", "sessions")
STEPS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 90 * CHUNK), st.booleans()), max_size=200
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_whatever_is_held_is_counted_and_given_back(steps: list[tuple[int, int, bool]]) -> None:
    budget = Budget(TOTAL)
    store = Store(budget)
    holdings = [budget.account(n % 3).open(KINDS[n % len(KINDS)]) for n in range(7)]
    for which, size, release in steps:
        if which == 7:
            store.add()
        elif release:
            holdings[which].release()
        else:
            before = holdings[which].size
            fits = holdings[which].resize(size)
            assert size <= holdings[which].size < size + CHUNK if fits else True
            assert fits or holdings[which].size == before
        firm = sum(each.size for each in holdings)
        assert budget.firm == firm
        assert budget.held == firm + store.pieces * CHUNK <= TOTAL
        for n in range(3):
            mine = sum(each.size for each in holdings[n::3])
            assert budget.account(n).held == mine <= TOTAL // 4
    for each in holdings:
        each.release()
    store.counter.close()
    assert budget.held == budget.firm == 0
    assert not any(budget.by_kind.values())
    assert not budget.pressed


def test_the_default_is_a_part_of_the_memory_and_divided_among_processes() -> None:
    assert 64 * MIB <= default_budget() <= 2048 * MIB
    budget = Budget()
    budget.divide(4)
    assert budget.total == max(default_budget() // 4, 64 * MIB)
    given = Budget(TOTAL)
    given.divide(4)
    assert given.total == TOTAL
