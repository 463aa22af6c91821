"""The table of sessions by itself: order of use, sweeping, and room at the bound."""

from typing import Any

import pytest

from mcpearl.auth import Principal
from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.runtime.budget import Budget
from mcpearl.stores.memory_sessions import MemorySessionStore
from mcpearl.stores.sessions import SessionRecord, SessionStore
from mcpearl.testing.clock import MovableClock
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.session_table import SESSION, SessionTable
from mcpearl.transports.http_server.sessions import Stage, StreamTerms, TransportSession

IDLE = 1000.0
OPENING = 60.0


class Receiver:
    """The server's side of a client, as far as the table asks it."""

    def __init__(self) -> None:
        self.is_ready = False
        self.is_lost = False

    def snapshot(self) -> tuple[EndSnapshot, tuple[str, ...]]:
        return EndSnapshot("2025-11-25"), ()

    def lost(self, reason: Exception | None) -> None:
        self.is_lost = True


class Counted(TransportSession):
    """A session that counts how often a table looks at when it was used."""

    looks = 0

    def _end_streams(self) -> None:
        pass

    @property
    def used(self) -> float:  # type: ignore[override]
        Counted.looks += 1
        return self._used

    @used.setter
    def used(self, time: float) -> None:
        self._used = time


def make_table(
    max_sessions: int = 10, store: SessionStore | None = None, budget: Budget | None = None
) -> SessionTable[Counted]:
    return SessionTable(
        Counted,
        lambda session, principal, account: Receiver(),
        StreamTerms(1000, None),
        max_sessions=max_sessions,
        idle_timeout=IDLE,
        initialize_timeout=OPENING,
        store=store,
        budget=budget,
    )


def begin(table: SessionTable[Counted], stage: Stage = Stage.USED) -> Counted:
    """Begin a session, and bring it to a stage by its requests."""
    session = table.create("ann")
    session.open += 1
    table.add(session)
    table.leave(session)
    for _ in range(stage):
        session.receiver.is_ready = True
        use(table, session)
    assert session.stage is stage
    return session


def use(table: SessionTable[Counted], session: Counted) -> None:
    session.open += 1
    table.leave(session)


def is_there(table: SessionTable[Counted], session: Counted) -> bool:
    found: Any = table.find(session.id, "ann")
    assert found is None or found is session
    assert session.receiver.is_lost is (found is None)
    return found is not None


async def test_sessions_expire_by_when_they_were_last_used(clock: MovableClock) -> None:
    table = make_table()
    first, second = begin(table), begin(table)
    await clock.advance(IDLE * 0.75)
    use(table, first)
    await clock.advance(IDLE * 0.75)
    assert is_there(table, first)
    assert not is_there(table, second)
    await clock.advance(IDLE)
    assert not is_there(table, first)
    assert len(table) == 0


async def test_a_session_that_is_answered_does_not_expire_nor_keep_others(
    clock: MovableClock,
) -> None:
    table = make_table()
    busy, idle = begin(table), begin(table)
    busy.open += 1
    await clock.advance(IDLE * 3)
    assert is_there(table, busy)
    assert not is_there(table, idle)
    table.leave(busy)
    await clock.advance(IDLE * 0.5)
    assert is_there(table, busy)
    table.close()
    assert not is_there(table, busy)


async def test_until_it_is_initialized_a_session_lives_a_short_time(clock: MovableClock) -> None:
    table = make_table()
    opening, unused, used = (begin(table, stage) for stage in list(Stage)[:3])
    await clock.advance(OPENING * 1.5)
    assert not is_there(table, opening)
    assert is_there(table, unused) and is_there(table, used)
    await clock.advance(IDLE * 1.5)
    assert len(table) == 0


async def test_at_the_bound_the_longest_idle_unused_session_makes_room(
    clock: MovableClock,
) -> None:
    table = make_table(max_sessions=4)
    used, unused = begin(table), begin(table, Stage.UNUSED)
    clock.move(1)
    opening, later = begin(table, Stage.OPENING), begin(table, Stage.UNUSED)
    clock.move(1)
    gone = []
    for _ in range(3):
        begin(table)
        gone.append([not is_there(table, each) for each in (unused, opening, later)])
    assert [sum(each) for each in gone] == [1, 2, 3]
    assert gone[0][0]
    assert is_there(table, used)
    with pytest.raises(Refused, match="Too many sessions") as refused:
        begin(table)
    assert refused.value.status == 503
    table.close()


async def test_an_unused_session_that_is_answered_does_not_make_room() -> None:
    table = make_table(max_sessions=2)
    busy, idle = begin(table, Stage.UNUSED), begin(table, Stage.UNUSED)
    busy.open += 1
    begin(table)
    assert is_there(table, busy) and not is_there(table, idle)
    with pytest.raises(Refused):
        begin(table)
    table.close()


async def test_a_refusal_does_not_look_at_every_session(clock: MovableClock) -> None:
    table = make_table(max_sessions=1000)
    for _ in range(500):
        begin(table)
    for _ in range(500):
        begin(table, Stage.UNUSED).open += 1
    Counted.looks = 0
    for _ in range(10):
        with pytest.raises(Refused):
            begin(table)
    assert Counted.looks <= 10 * 10
    table.close()


async def test_the_end_of_a_session_is_not_that_of_its_successor() -> None:
    """With a store, a session that was dropped here may have been rebuilt under its id."""
    table = make_table()
    before = begin(table)
    table.remove(before)
    after = table.create("ann")
    after.stage = Stage.USED
    table._enter(after, before.id)
    table.remove(before)  # as a request of it that was still waiting for the store does
    assert is_there(table, after)
    use(table, after)
    table.close()


async def test_a_session_that_ends_while_it_is_saved_leaves_nothing() -> None:
    class Slow(MemorySessionStore):
        async def save(self, record: SessionRecord, ttl: float) -> bool:
            done = await super().save(record, ttl)
            table.remove(session)  # as a DELETE does that comes now
            return done

    table = make_table(store=Slow())
    session = table.create(Principal("ann"))
    table.add(session)
    await table.save(session)
    assert session.closed
    assert table.records is not None and not len(table.records)


async def test_a_sweep_stops_at_the_first_session_that_is_young(clock: MovableClock) -> None:
    table = make_table(max_sessions=1000)
    old = [begin(table) for _ in range(5)]
    clock.move(IDLE - 1)
    for _ in range(500):
        begin(table)
    Counted.looks = 0
    await clock.advance(OPENING)
    assert not any(is_there(table, session) for session in old)
    assert len(table) == 500
    assert Counted.looks < 100
    table.close()


def begin_as(table: SessionTable[Counted], caller: str, stage: Stage = Stage.USED) -> Counted:
    session = table.create("ann", caller)
    session.open += 1
    table.add(session)
    table.leave(session)
    for _ in range(stage):
        session.receiver.is_ready = True
        use(table, session)
    return session


async def test_one_caller_cannot_use_up_the_table(clock: MovableClock) -> None:
    table = make_table(max_sessions=10)
    own = [begin_as(table, "greedy") for _ in range(5)]
    with pytest.raises(Refused, match="has 5 of the 10 sessions"):
        table.create("ann", "greedy")
    others = [begin_as(table, name) for name in ("b", "c", "d")]
    assert all(is_there(table, session) for session in own + others)
    await clock.advance(OPENING + 1)
    use(table, own[0])
    newest = begin_as(table, "greedy")
    assert not is_there(table, own[1]), "its longest idle session made room"
    assert all(is_there(table, session) for session in [own[0], *own[2:], newest, *others])


async def test_a_callers_unused_session_goes_before_its_used_ones(clock: MovableClock) -> None:
    table = make_table(max_sessions=10)
    used = [begin_as(table, "greedy") for _ in range(3)]
    unused = begin_as(table, "greedy", Stage.UNUSED)
    opening = begin_as(table, "greedy", Stage.OPENING)
    await clock.advance(OPENING - 1)
    begin_as(table, "greedy")
    assert not is_there(table, unused)
    assert is_there(table, opening)
    assert all(is_there(table, session) for session in used)


async def test_a_caller_that_is_busy_with_all_its_sessions_is_refused(clock: MovableClock) -> None:
    table = make_table(max_sessions=4)
    for session in (begin_as(table, "greedy"), begin_as(table, "greedy")):
        session.open += 1
    await clock.advance(IDLE / 2)
    with pytest.raises(Refused) as refused:
        table.create("ann", "greedy")
    assert refused.value.bound == "max_sessions"
    assert dict(refused.value.headers)[b"retry-after"] == b"10"
    assert begin_as(table, "other")


async def test_a_session_is_charged_as_long_as_it_lives() -> None:
    budget = Budget(1024 * 1024)
    table = make_table(budget=budget)
    sessions = [begin_as(table, "a"), begin_as(table, "b")]
    assert budget.by_kind == {"sessions": 2 * SESSION}
    table.remove(sessions[0])
    assert budget.by_kind == {"sessions": SESSION}
    table.close()
    assert budget.held == 0
