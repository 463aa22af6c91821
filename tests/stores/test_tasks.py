"""Tasks, in every store that keeps them: one holder at a time, one outcome each."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord, TasksFull, TaskStore
from mcpearl.types.tasks import TaskStatus
from tests.stores.suite import TASK_STORES, StillClock
from tests.waiting import eventually

ANN: Identity = ("issuer", "ann", None)
BOB: Identity = ("issuer", "bob", None)
TTL = 1000.0
LEASE = 10.0


@pytest.fixture(params=TASK_STORES)
async def store(request: Any, clock: StillClock) -> AsyncIterator[TaskStore]:
    async with TASK_STORES[request.param]() as made:
        yield made


async def create(store: TaskStore, id: str = "t", owner: Identity = ANN, **more: Any) -> TaskRecord:
    task = TaskRecord(id=id, owner=owner, ttl=TTL, request=b"request", **more)
    return await store.create(task, "w1", LEASE)


async def end(
    store: TaskStore, task: TaskRecord, status: TaskStatus = "completed", **more: Any
) -> TaskRecord | None:
    done = replace(task, status=status, result=b"result")
    return await store.update(done, task.revision, **more)


async def test_a_new_task_is_held_by_its_worker(store: TaskStore, clock: StillClock) -> None:
    task = await create(store, fence=7, revision=9, holder="liar", repeatable=True)
    assert (task.revision, task.fence, task.holder) == (1, 1, "w1")
    assert (task.created, task.updated, task.lease_until) == (
        clock.now(),
        clock.now(),
        clock.now() + LEASE,
    )
    assert (task.request, task.status, task.repeatable) == (b"request", "working", True)
    assert await store.get("t", ANN) == task
    with pytest.raises(ValueError, match="id exists"):
        await create(store)


def test_a_record_survives_being_written_and_read() -> None:
    task = TaskRecord(id="t", owner=ANN, ttl=1.0, journal=b"\0\xff", result=b"x", holder="w")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=TaskRecord) == task


async def test_another_owners_task_is_unknown(store: TaskStore) -> None:
    await create(store)
    assert await store.get("t", BOB) is None
    assert await store.page(BOB, None, 10) == []


async def test_a_task_expires_in_any_state(store: TaskStore, clock: StillClock) -> None:
    task = await create(store)
    await create(store, "u")
    await end(store, task)
    clock.advance(TTL)
    assert await store.get("t", ANN) is None and await store.get("u", ANN) is None
    assert await store.page(ANN, None, 10) == [] and await store.lapsed(10) == []
    assert await store.update(task, 2) is None
    assert await store.claim("u", "w2", LEASE) is None
    assert await store.renew({"u": 1}, LEASE) == set()
    assert (await create(store)).created == clock.now()


async def test_pages_are_in_the_order_of_creation(store: TaskStore) -> None:
    for number in range(5):
        await create(store, f"t{number}")
        await create(store, f"b{number}", BOB)
    first = await store.page(ANN, None, 2)
    rest = await store.page(ANN, first[-1].id, 10)
    assert [task.id for task in first + rest] == [f"t{number}" for number in range(5)]
    assert await store.page(ANN, "t4", 10) == []
    assert await store.page(ANN, "b0", 10) == []


async def test_the_number_of_tasks_is_bounded(store: TaskStore, clock: StillClock) -> None:
    for number in range(10):
        await create(store, f"a{number}")
    with pytest.raises(TasksFull, match="owner has 10 tasks"):
        await create(store, "more")
    for number in range(10):
        await create(store, f"b{number}", BOB)
    with pytest.raises(TasksFull, match="20 tasks"):
        await create(store, "more", ("issuer", "carl", None))
    await store.delete("a0")
    await store.delete("a0")
    await create(store, "more")
    clock.advance(TTL)
    await create(store, "after all have expired")


# Changes


async def test_a_change_needs_the_latest_revision(store: TaskStore) -> None:
    first = await create(store)
    second = await store.update(replace(first, status_message="half"), first.revision, fence=1)
    assert second is not None and (second.revision, second.status_message) == (2, "half")
    assert await store.update(replace(first, status_message="old"), first.revision) is None
    assert await store.get("t", ANN) == second


async def test_a_change_leaves_lease_and_owner_alone(store: TaskStore, clock: StillClock) -> None:
    task = await create(store)
    clock.advance(1)
    wrong = replace(task, holder="x", fence=9, lease_until=0.0, created=0.0, journal=b"j")
    changed = await store.update(wrong, task.revision)
    assert changed == replace(task, journal=b"j", revision=2, updated=clock.now())
    wrong = replace(wrong, owner=BOB, ttl=1.0, running=False, tool_error=True, deaths=2)
    changed = await store.update(wrong, 2)
    assert changed is not None and (changed.owner, changed.ttl) == (ANN, TTL)
    assert (changed.running, changed.tool_error, changed.deaths) == (False, True, 2)


async def test_a_task_ends_once(store: TaskStore) -> None:
    task = await create(store)
    outcomes = await asyncio.gather(
        end(store, task, "completed", fence=1),
        end(store, task, "cancelled"),
        end(store, task, "failed"),
    )
    (outcome,) = [each for each in outcomes if each is not None]
    assert await store.get("t", ANN) == outcome
    assert (outcome.holder, outcome.result) == (None, b"result")
    assert await store.update(replace(outcome, status="working"), outcome.revision) is None
    assert await store.claim("t", "w2", LEASE) is None
    assert await store.renew({"t": 1}, LEASE) == set()
    assert await store.lapsed(10) == []


# Leases


async def test_a_lease_is_exclusive_until_it_lapses(store: TaskStore, clock: StillClock) -> None:
    await create(store)
    assert await store.claim("t", "w2", LEASE) is None
    clock.advance(LEASE - 1)
    assert await store.renew({"t": 1, "unknown": 1}, LEASE) == {"t"}
    clock.advance(LEASE - 1)
    assert await store.claim("t", "w2", LEASE) is None
    assert await store.lapsed(10) == []
    clock.advance(1)
    assert [task.id for task in await store.lapsed(10)] == ["t"]
    claims = await asyncio.gather(*(store.claim("t", f"w{n}", LEASE) for n in range(2, 10)))
    (claimed,) = [each for each in claims if each is not None]
    assert claimed.fence == 2
    assert await store.lapsed(10) == []


async def test_a_worker_that_lost_its_lease_changes_nothing(
    store: TaskStore, clock: StillClock
) -> None:
    await create(store)
    clock.advance(LEASE)
    claimed = await store.claim("t", "w2", LEASE)
    assert claimed is not None
    # It reads the latest revision, but its fence is the old one.
    assert await end(store, claimed, "failed", fence=1) is None
    assert await store.renew({"t": 1}, LEASE) == set()
    assert not await store.release("t", 1)
    assert await end(store, claimed, "completed", fence=2) is not None


async def test_a_lease_that_was_given_back_is_free(store: TaskStore) -> None:
    await create(store)
    assert await store.release("t", 1)
    assert not await store.release("t", 1)
    assert not await store.release("unknown", 1)
    assert [task.id for task in await store.lapsed(10)] == ["t"]
    claimed = await store.claim("t", "w2", LEASE)
    assert claimed is not None and (claimed.fence, claimed.holder) == (2, "w2")


async def test_a_parked_task_waits_for_its_client(store: TaskStore, clock: StillClock) -> None:
    task = await create(store)
    asking = await store.update(replace(task, status="input_required"), 1, fence=1)
    assert asking is not None
    assert await store.release("t", 1)
    clock.advance(LEASE * 2)
    assert await store.lapsed(10) == []
    parked = await store.get("t", ANN)
    assert parked is not None
    answered = replace(parked, status="working", journal=b"answer")
    assert await store.update(answered, parked.revision) is not None
    assert [task.id for task in await store.lapsed(10)] == ["t"]


async def test_a_worker_that_died_while_waiting_for_input_is_noticed(
    store: TaskStore, clock: StillClock
) -> None:
    task = await create(store)
    await store.update(replace(task, status="input_required"), 1, fence=1)
    clock.advance(LEASE)
    assert [task.id for task in await store.lapsed(10)] == ["t"]


async def test_the_longest_lapsed_come_first(store: TaskStore, clock: StillClock) -> None:
    for number in range(4):
        await create(store, f"t{number}")
        clock.advance(1)
    await store.renew({"t0": 1}, LEASE)
    clock.advance(LEASE * 2)
    assert [task.id for task in await store.lapsed(3)] == ["t1", "t2", "t3"]


# Hearing of changes


async def test_a_watcher_hears_of_each_kind_of_change(store: TaskStore) -> None:
    heard: list[tuple[str, int]] = []
    task = await create(store)
    end_watching = store.watch(lambda id, revision: heard.append((id, revision)), lambda: True)

    async def hears(revision: int) -> None:
        await eventually(lambda: heard and heard[-1] == ("t", revision), otherwise=lambda: heard)

    await store.update(replace(task, status_message="x"), 1)
    await hears(2)
    await store.release("t", 1)
    await hears(3)
    await store.claim("t", "w2", LEASE)
    await hears(4)
    await store.delete("t")
    await hears(0)
    end_watching()
    await create(store)
    await store.release("t", 1)
    await create(store, "u")
    assert heard[-1] == ("t", 0)
