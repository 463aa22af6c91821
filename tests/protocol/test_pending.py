"""Requests that wait for their answer, with the time passed in."""

import time
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.pending import Pending, PendingRequest


def test_an_answer_finds_its_request() -> None:
    pending = Pending()
    first = pending.add("tools/list", "waiter one", now=0.0, timeout=60.0)
    second = pending.add("tools/call", "waiter two", now=0.0, timeout=60.0)
    assert len(pending) == 2
    assert pending.resolve(second.id) is second
    assert second.waiter == "waiter two"
    assert second.id not in pending
    assert pending.resolve(first.id) is first
    assert len(pending) == 0
    assert (pending.late, pending.unknown) == (0, 0)


def test_an_answer_is_taken_once() -> None:
    pending = Pending()
    entry = pending.add("ping", None, 0.0, 60.0)
    assert pending.resolve(entry.id) is entry
    assert pending.resolve(entry.id) is None
    assert (pending.late, pending.unknown) == (1, 0)


@pytest.mark.parametrize("id", [0, -1, 2, 10**30, "1", "", None, True, 1.0, 1.5, b"1", (1,)])
def test_an_answer_to_a_question_never_asked(id: object) -> None:
    pending = Pending()
    entry = pending.add("ping", None, 0.0, 60.0)
    assert entry.id == 1
    assert pending.resolve(id) is None
    assert (pending.late, pending.unknown) == (0, 1)
    assert entry.id in pending


def test_an_id_is_never_used_again() -> None:
    pending = Pending(limit=2)
    seen = []
    for _ in range(100):
        entry = pending.add("ping", None, 0.0, 60.0)
        seen.append(entry.id)
        pending.resolve(entry.id)
    assert len(set(seen)) == 100
    with pytest.raises(LimitReached):
        for _ in range(3):
            pending.add("ping", None, 0.0, 60.0)


def test_time_runs_out() -> None:
    pending = Pending()
    slow = pending.add("slow", None, now=100.0, timeout=60.0)
    fast = pending.add("fast", None, now=100.0, timeout=5.0)
    assert pending.next_deadline() == 105.0
    assert pending.expire(104.9) == []
    assert pending.expire(105.0) == [fast]
    assert pending.next_deadline() == 160.0
    assert pending.expire(1000.0) == [slow]
    assert pending.next_deadline() is None
    assert pending.resolve(fast.id) is None
    assert pending.late == 1


def test_giving_up_leaves_nothing_behind() -> None:
    pending = Pending()
    entry = pending.add("slow", None, 0.0, 60.0)
    assert pending.discard(entry.id) is entry
    assert pending.discard(entry.id) is None
    assert pending.next_deadline() is None
    assert pending.resolve(entry.id) is None
    assert pending.late == 1


def test_progress_starts_the_time_again_up_to_the_maximum() -> None:
    pending = Pending()
    entry = pending.add("long", None, now=0.0, timeout=10.0, max_timeout=25.0)
    assert not entry.hard
    assert pending.progress(entry.id, now=8.0) is entry
    assert pending.expire(10.0) == []
    assert pending.next_deadline() == 18.0
    assert pending.progress(entry.id, now=17.0) is entry
    assert pending.next_deadline() == 25.0
    assert entry.hard
    assert pending.progress(entry.id, now=24.0) is entry
    assert pending.expire(25.0) == [entry]


def test_without_a_maximum_the_timeout_is_the_maximum() -> None:
    pending = Pending()
    entry = pending.add("short", None, now=0.0, timeout=10.0)
    pending.progress(entry.id, now=9.0)
    assert pending.expire(10.0) == [entry]


@pytest.mark.parametrize("token", ["1", True, 1.0, None, 2, [1]])
def test_progress_of_something_else_moves_nothing(token: object) -> None:
    pending = Pending()
    entry = pending.add("long", None, now=0.0, timeout=10.0, max_timeout=25.0)
    assert entry.id == 1
    assert pending.progress(token, now=5.0) is None
    assert pending.next_deadline() == 10.0


def test_a_request_may_wait_for_ever() -> None:
    pending = Pending()
    entry = pending.add("subscriptions/listen", None, now=0.0, timeout=inf)
    assert pending.next_deadline() is None
    assert pending.expire(1e12) == []
    pending.progress(entry.id, now=5.0)
    assert pending.get(entry.id) is entry
    assert pending.resolve(entry.id) is entry


def test_the_limit_names_its_setting() -> None:
    pending = Pending(limit=2)
    first = pending.add("a", None, 0.0, 60.0)
    pending.add("b", None, 0.0, 60.0)
    with pytest.raises(LimitReached, match=r"Limits\.max_pending"):
        pending.add("c", None, 0.0, 60.0)
    pending.resolve(first.id)
    pending.add("c", None, 0.0, 60.0)


def test_a_lost_connection_takes_everything() -> None:
    pending = Pending()
    entries = [pending.add("x", None, 0.0, 60.0) for _ in range(5)]
    assert pending.clear() == entries
    assert len(pending) == 0
    assert pending.next_deadline() is None
    assert pending.expire(1e9) == []
    pending.resolve(entries[0].id)
    assert pending.late == 1


def heap(pending: Pending) -> list[Any]:
    return pending._deadlines


def test_deadlines_of_answered_requests_do_not_pile_up() -> None:
    pending = Pending()
    for now in range(50_000):
        entry = pending.add("x", None, float(now), 60.0)
        pending.resolve(entry.id)
        assert len(heap(pending)) <= 64 + 2
    waiting = [pending.add("x", None, 0.0, 1e9) for _ in range(1000)]
    for now in range(50_000):
        pending.resolve(pending.add("x", None, float(now), 60.0).id)
    assert len(heap(pending)) <= 64 + 2 * 1001
    assert pending.expire(2e9) == waiting


def test_progress_does_not_pile_up_deadlines() -> None:
    pending = Pending()
    entry = pending.add("long", None, 0.0, 10.0, max_timeout=inf)
    for now in range(10_000):
        pending.progress(entry.id, float(now))
        pending.next_deadline()
    assert len(heap(pending)) == 1
    assert pending.next_deadline() == 10_009.0


def test_thousands_wait_and_expire_in_order() -> None:
    pending = Pending(limit=10_000)
    start = time.process_time()
    entries = [pending.add("x", None, 0.0, float(1 + i * 7919 % 10_000)) for i in range(10_000)]
    for entry in entries[::2]:
        assert pending.resolve(entry.id) is entry
    expired = pending.expire(1e6)
    assert time.process_time() - start < 2.0
    assert [entry.deadline for entry in expired] == sorted(e.deadline for e in entries[1::2])
    assert len(pending) == 0


class AgainstAModel(RuleBasedStateMachine):
    """The table does what a plain dict of deadlines does, slowly."""

    LIMIT = 20

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending(self.LIMIT)
        self.now = 0.0
        self.model: dict[int, tuple[PendingRequest, float, float, float]] = {}
        self.gone: set[int] = set()
        self.held: set[int] = set()
        self.late = self.unknown = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.model)))

    @rule(
        timeout=st.sampled_from([1.0, 2.0, 5.0, inf]),
        more=st.sampled_from([None, 3.0, 10.0, inf]),
    )
    def add(self, timeout: float, more: float | None) -> None:
        if len(self.model) >= self.LIMIT:
            with pytest.raises(LimitReached):
                self.pending.add("x", None, self.now, timeout, more)
            return
        entry = self.pending.add("x", None, self.now, timeout, more)
        assert entry.id not in self.model
        assert entry.id not in self.gone
        hard = self.now + (timeout if more is None else more)
        self.model[entry.id] = (entry, min(self.now + timeout, hard), hard, timeout)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), resolve=st.booleans())
    def leave(self, data: st.DataObject, resolve: bool) -> None:
        id = self.pick(data)
        entry = self.pending.resolve(id) if resolve else self.pending.discard(id)
        assert entry is self.model.pop(id)[0]
        self.gone.add(id)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        id = self.pick(data)
        entry, _, hard, timeout = self.model[id]
        assert self.pending.progress(id, self.now) is entry
        if id not in self.held:
            self.model[id] = (entry, min(self.now + timeout, hard), hard, timeout)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        id = self.pick(data)
        entry, _, _, timeout = self.model[id]
        self.pending.hold(id)
        self.held.add(id)
        self.model[id] = (entry, inf, inf, timeout)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        id = self.pick(data)
        entry, _, _, timeout = self.model[id]
        self.pending.release(id, self.now)
        if id in self.held:
            self.held.remove(id)
            hard = self.now + entry.max_timeout
            self.model[id] = (entry, min(self.now + timeout, hard), hard, timeout)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def late_answer(self, data: st.DataObject) -> None:
        assert self.pending.resolve(data.draw(st.sampled_from(sorted(self.gone)))) is None
        self.late += 1

    @rule(id=st.sampled_from([0, -5, 10**9, "1", True, None]))
    def unknown_answer(self, id: object) -> None:
        assert self.pending.resolve(id) is None
        self.unknown += 1

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = {id for id, (_, deadline, _, _) in self.model.items() if deadline <= self.now}
        expired = self.pending.expire(self.now)
        assert {entry.id for entry in expired} == due
        assert len(expired) == len(due)
        for id in due:
            del self.model[id]
        self.gone |= due

    @rule()
    def connection_is_lost(self) -> None:
        assert {entry.id for entry in self.pending.clear()} == set(self.model)
        self.gone |= set(self.model)
        self.model.clear()

    @invariant()
    def same_as_the_model(self) -> None:
        assert len(self.pending) == len(self.model)
        assert all(id in self.pending for id in self.model)
        finite = [deadline for _, deadline, _, _ in self.model.values() if deadline != inf]
        assert self.pending.next_deadline() == min(finite, default=None)
        assert (self.pending.late, self.pending.unknown) == (self.late, self.unknown)
        assert len(heap(self.pending)) <= 64 + 2 * self.LIMIT


AgainstAModel.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestAgainstAModel = AgainstAModel.TestCase
