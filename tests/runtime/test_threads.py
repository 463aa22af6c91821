"""The thread pool: bounded, no obstacle to a shutdown, unharmed by what jobs raise."""

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from mcpearl.runtime.threads import ThreadPool
from tests.waiting import eventually


class Refused(Exception):
    """What these pools raise when they take no more."""


async def test_results_and_exceptions_come_back() -> None:
    pool = ThreadPool(2)
    assert await pool.run(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 / 0)
    assert await pool.run(threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (SystemExit(1), SystemExit),
        (KeyboardInterrupt(), RuntimeError),
        (GeneratorExit(), RuntimeError),
        (StopIteration(1), RuntimeError),
        (asyncio.CancelledError(), asyncio.CancelledError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_exceptions_that_would_end_a_loop_do_not(raised: BaseException, arrives: Any) -> None:
    pool = ThreadPool(1)

    def fails() -> None:
        raise raised

    with pytest.raises(arrives):
        await pool.run(fails)
    assert await pool.run(lambda: "and on") == "and on"


async def test_never_more_threads_than_allowed() -> None:
    pool = ThreadPool(3)
    names: set[int] = set()
    all_there = threading.Barrier(3)

    def work() -> None:
        names.add(threading.get_ident())
        all_there.wait(30)

    await asyncio.gather(*(pool.run(work) for _ in range(99)))
    assert len(names) == 3


async def test_threads_are_started_as_needed_only() -> None:
    pool = ThreadPool(10)
    for _ in range(20):
        await pool.run(lambda: None)
        await eventually(lambda: pool._idle == pool._threads)
    assert pool._threads == 1


async def test_a_full_backlog_is_refused() -> None:
    pool = ThreadPool(1, backlog=1, refusal=Refused)
    let_go = threading.Event()
    first = asyncio.create_task(pool.run(lambda: let_go.wait(60)))
    await eventually(lambda: pool._jobs.qsize() == 0 and pool._threads == 1)
    second = asyncio.create_task(pool.run(lambda: 2))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="raise `threads`"):
        await pool.run(lambda: 3)
    let_go.set()
    assert await first
    assert await second == 2


async def test_a_cancelled_job_that_waits_never_runs() -> None:
    pool = ThreadPool(1)
    let_go, ran = threading.Event(), []
    first = asyncio.create_task(pool.run(lambda: let_go.wait(60)))
    await eventually(lambda: pool._jobs.qsize() == 0 and pool._threads == 1)
    second = asyncio.create_task(pool.run(lambda: ran.append(1)))
    await eventually(lambda: pool._jobs.qsize() == 1)
    second.cancel()
    await asyncio.wait([second])
    let_go.set()
    await first
    assert await pool.run(lambda: "next") == "next"
    assert ran == []


async def test_context_variables_are_those_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    pool = ThreadPool(1)
    variable.set("mine")
    assert await pool.run(variable.get) == "mine"
    assert await pool.run(lambda: variable.set("theirs")) is not None
    assert await pool.run(variable.get) == "mine"


async def test_idle_threads_end_and_others_take_their_place() -> None:
    pool = ThreadPool(4, idle=0.02)
    for _ in range(3):
        await asyncio.gather(*(pool.run(lambda: time.sleep(0.01)) for _ in range(8)))
        await eventually(lambda: pool._threads == 0)
        assert pool._idle == 0


async def test_a_closed_pool_lets_its_threads_go_and_still_works() -> None:
    pool = ThreadPool(4)
    never = threading.Event()
    stuck = asyncio.create_task(pool.run(lambda: never.wait(60)))
    await asyncio.gather(*(pool.run(lambda: time.sleep(0.01)) for _ in range(6)))
    await eventually(lambda: pool._idle == 3)
    for _ in range(3):
        pool.close()
        assert pool._threads <= 2
        assert await asyncio.wait_for(pool.run(lambda: "still"), 30) == "still"
        await eventually(lambda: pool._idle == pool._threads - 1)
    never.set()
    await stuck


async def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, ran = ThreadPool(2, refusal=Refused), []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        with pytest.raises(Refused, match="no thread left"):
            await pool.run(lambda: ran.append(1))
    assert await pool.run(lambda: "now") == "now"
    let_go = threading.Event()
    busy = asyncio.create_task(pool.run(lambda: let_go.wait(60)))
    await eventually(lambda: pool._jobs.qsize() == 0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        waits = asyncio.create_task(pool.run(lambda: "later"))
        await asyncio.sleep(0)
    let_go.set()
    await busy
    assert await asyncio.wait_for(waits, 30) == "later"
    assert ran == [], "what was refused is not done later"


def test_a_job_may_outlive_its_loop() -> None:
    pool = ThreadPool(1)
    began, let_go = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        let_go.wait(60)

    async def leave() -> None:
        task = asyncio.create_task(pool.run(work))
        await eventually(began.is_set)
        task.cancel()

    asyncio.run(leave())
    let_go.set()

    async def again() -> str:
        return str(await pool.run(lambda: "on another loop"))

    assert asyncio.run(again()) == "on another loop"


# Shares


async def test_jobs_of_one_key_that_never_return_leave_threads_to_others() -> None:
    pool = ThreadPool(8)
    let_go = threading.Event()
    stuck = [asyncio.create_task(pool.run(lambda: let_go.wait(60), "a")) for _ in range(40)]
    await eventually(lambda: pool._threads == 6 and pool._jobs.qsize() == 0)
    assert await asyncio.wait_for(pool.run(lambda: "b", "b"), 30) == "b"
    assert await asyncio.wait_for(pool.run(lambda: "none"), 30) == "none"
    let_go.set()
    await asyncio.gather(*stuck)
    await eventually(lambda: not pool._held)
    assert (pool._parked, pool._parked_count) == ({}, 0)


async def test_every_key_finds_a_thread_while_there_are_keys_that_hold_theirs() -> None:
    pool = ThreadPool(8)
    let_go = threading.Event()
    stuck = [asyncio.create_task(pool.run(lambda: let_go.wait(60), key)) for key in "ab" * 20]
    await eventually(lambda: pool._threads == 7 and pool._jobs.qsize() == 0)
    assert await asyncio.wait_for(pool.run(lambda: "c", "c"), 30) == "c"
    let_go.set()
    await asyncio.gather(*stuck)


async def test_parked_jobs_are_started_key_by_key() -> None:
    pool = ThreadPool(1)
    order: list[str] = []
    let_go = threading.Event()
    jobs = [asyncio.create_task(pool.run(lambda: let_go.wait(60), "x"))]
    await eventually(lambda: pool._threads == 1 and pool._jobs.qsize() == 0)
    for key in "aaabbb":
        jobs.append(asyncio.create_task(pool.run(lambda key=key: order.append(key), key)))
        await asyncio.sleep(0)
    let_go.set()
    await asyncio.gather(*jobs)
    assert order == ["a", "b", "a", "b", "a", "b"]


async def test_parked_jobs_count_as_backlog_and_may_be_cancelled() -> None:
    pool = ThreadPool(1, backlog=2)
    let_go, ran = threading.Event(), []
    first = asyncio.create_task(pool.run(lambda: let_go.wait(60), "a"))
    await eventually(lambda: pool._threads == 1 and pool._jobs.qsize() == 0)
    parked = [asyncio.create_task(pool.run(lambda: ran.append(1), "a")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="calls wait already"):
        await pool.run(lambda: None, "b")
    for task in parked:
        task.cancel()
    await asyncio.wait(parked)
    let_go.set()
    await first
    await eventually(lambda: not pool._parked)
    assert await asyncio.wait_for(pool.run(lambda: "next", "a"), 30) == "next"
    assert ran == []
    assert pool._parked_count == 0
