"""Supervisors: starting, giving up, stopping within each child's time, nesting, following changes."""

import asyncio
from collections.abc import Callable

import pytest

from mcpearl import Child, Supervisor
from mcpearl.runtime.backoff import Backoff
from mcpearl.runtime.supervisor_errors import GaveUp, StartFailed
from mcpearl.runtime.tree import NodeChange
from mcpearl.testing.clock import MovableClock
from tests.waiting import eventually, turns

AT_ONCE = Backoff(delays=(0.0,), jitter=0)


async def forever() -> None:
    await asyncio.Event().wait()


async def broken() -> None:
    raise ValueError("no bread")


class Part:
    """A service that notes what happens to it."""

    def __init__(self, name: str, log: list[str], start: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, start

    async def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.error is not None:
            raise self.error

    async def ended(self) -> None:
        await forever()

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")

    def child(self) -> Child:
        return Child(self.name, self)


async def test_a_failed_start_is_an_error_and_stops_those_before() -> None:
    log: list[str] = []
    parts = [Part("a", log), Part("b", log), Part("c", log, OSError("the port is taken"))]
    supervisor = Supervisor("ports", [part.child() for part in parts])
    with pytest.raises(
        StartFailed, match="`ports`: child `c` did not start: OSError: the port"
    ) as e:
        await supervisor.start()
    assert isinstance(e.value.__cause__, OSError)
    assert log == ["start a", "start b", "start c", "stop b", "stop a"]
    assert supervisor.tree().state == "ended"


async def test_it_gives_up_with_the_whole_story() -> None:
    children = [Child("baker", broken), Child("other", forever)]
    async with Supervisor("shop", children, restarts=2, backoff=AT_ONCE) as supervisor:
        with pytest.raises(GaveUp) as raised:
            await supervisor.ended()
        assert [each.child for each in raised.value.failures] == ["baker"] * 3
        assert str(raised.value).startswith(
            "supervisor `shop` gave up after 3 failures within 60 s"
        )
        assert str(raised.value).count("ValueError: no bread") == 3
        assert isinstance(raised.value.__cause__, ValueError)
        tree = supervisor.tree()
        assert [child.state for child in tree.children] == ["failed", "ended"]
        with pytest.raises(RuntimeError, match="not running"):
            await supervisor.add(Child("late", forever))
        await supervisor.stop()


async def test_giving_up_is_not_lost_when_nothing_waits_for_it() -> None:
    with pytest.raises(GaveUp, match="no bread"):
        async with Supervisor("shop", [Child("baker", broken)], restarts=0) as supervisor:
            await eventually(lambda: supervisor.tree().state == "failed")


async def test_failures_outside_the_period_do_not_count(clock: MovableClock) -> None:
    supervisor = Supervisor(
        "shop", [Child("baker", forever)], restarts=1, period=10, backoff=AT_ONCE
    )
    async with supervisor:
        for restarts in range(1, 6):
            assert supervisor.kill("baker")
            await clock.advance(11)
            assert supervisor.tree().children[0].restarts == restarts
        assert supervisor.tree().state == "running"


async def test_trees_nest_and_fail_upwards() -> None:
    inner = Supervisor("inner", [Child("baker", broken)], restarts=1, backoff=AT_ONCE)
    outer = Supervisor("outer", [Child("inner", inner)], restarts=1, backoff=AT_ONCE)
    async with outer:
        with pytest.raises(GaveUp, match=r"`outer` gave up after 2 .* `inner` gave up") as raised:
            await outer.ended()
        cause = raised.value.__cause__
        assert isinstance(cause, GaveUp)
        assert isinstance(cause.__cause__, ValueError)
        await outer.stop()


async def test_a_nested_supervisor_that_gave_up_is_started_again() -> None:
    runs = 0

    async def settles() -> None:
        nonlocal runs
        runs += 1
        if runs <= 3:
            raise ValueError("not yet")
        await forever()

    inner = Supervisor("inner", [Child("part", settles)], restarts=1, backoff=AT_ONCE)
    async with Supervisor("outer", [Child("inner", inner)], backoff=AT_ONCE) as outer:
        await eventually(lambda: runs == 4)
        node = outer.tree().find("inner", "part")
        assert node is not None and node.state == "running"
        assert outer.tree().children[0].restarts == 1
        assert outer.kill("inner", "part")
        await eventually(lambda: runs == 5)


async def test_children_stop_in_reverse_order() -> None:
    log: list[str] = []
    async with Supervisor("s", [Part(name, log).child() for name in "abc"]):
        pass
    assert log[3:] == ["stop c", "stop b", "stop a"]


async def test_children_can_be_stopped_together() -> None:
    stopping = asyncio.Barrier(3)  # passed only if all three are stopping at the same time

    async def run() -> None:
        try:
            await forever()
        finally:
            await stopping.wait()

    children = [Child(name, run) for name in "abc"]
    async with asyncio.timeout(30), Supervisor("s", children, stop_together=True):
        pass


async def test_each_child_has_its_own_time_to_stop_and_is_cancelled_then(
    clock: MovableClock,
) -> None:
    ended: list[str] = []

    def slow(name: str, seconds: float) -> Callable[[], object]:
        async def run() -> None:
            try:
                await forever()
            finally:
                try:
                    await asyncio.sleep(seconds)
                    ended.append(f"{name} in time")
                except asyncio.CancelledError:
                    ended.append(f"{name} cancelled")
                    raise

        return run

    supervisor = Supervisor(
        "s",
        [
            Child("quick", slow("quick", 2), shutdown=3),  # type: ignore[arg-type]
            Child("slow", slow("slow", 2), shutdown=1),  # type: ignore[arg-type]
        ],
    )
    await supervisor.start()
    await asyncio.sleep(0)
    stopping = asyncio.create_task(supervisor.stop())
    await clock.advance(0)
    await clock.advance(1.5)
    assert ended == ["slow cancelled"]
    await clock.advance(2)
    assert ended == ["slow cancelled", "quick in time"]
    await stopping


async def test_a_child_that_swallows_its_cancellation_is_left_behind(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    supervisor = Supervisor("s", [Child("stubborn", stubborn, shutdown=1)])
    await supervisor.start()
    await asyncio.sleep(0)
    stopping = asyncio.create_task(supervisor.stop())
    await clock.advance(0)
    await clock.advance(3)
    await stopping
    assert "stubborn does not end" in caplog.text
    release.set()


async def test_a_service_that_does_not_stop_in_its_time_is_cancelled(clock: MovableClock) -> None:
    class Slow(Part):
        async def stop(self) -> None:
            try:
                await forever()
            finally:
                self.log.append("cancelled")

    log: list[str] = []
    supervisor = Supervisor("s", [Child("slow", Slow("slow", log), shutdown=2)])
    await supervisor.start()
    stopping = asyncio.create_task(supervisor.stop())
    await clock.advance(0)
    await clock.advance(1.9)
    assert log == ["start slow"]
    await clock.advance(1.2)
    assert log == ["start slow", "cancelled"]
    await stopping


async def test_a_significant_child_ends_its_supervisor() -> None:
    done = asyncio.Event()

    async def main() -> None:
        await done.wait()

    log: list[str] = []
    children = [Part("a", log).child(), Child("main", main, restart="transient", significant=True)]
    async with Supervisor("s", children) as supervisor:
        done.set()
        await supervisor.ended()
        assert log == ["start a", "stop a"]


async def test_a_significant_child_that_fails_for_good_says_why() -> None:
    children = [Child("main", broken, restart="temporary", significant=True)]
    with pytest.raises(GaveUp, match=r"after 1 failure within .*no bread") as raised:
        async with Supervisor("s", children) as supervisor:
            await supervisor.ended()
    assert isinstance(raised.value.__cause__, ValueError)


async def test_children_come_and_go_while_it_runs() -> None:
    log: list[str] = []
    async with Supervisor("s") as supervisor:
        await supervisor.add(Part("a", log).child())
        with pytest.raises(ValueError, match="has a child named 'a' already"):
            await supervisor.add(Part("a", log).child())
        with pytest.raises(StartFailed, match="did not start: OSError: full"):
            await supervisor.add(Part("b", log, OSError("full")).child())
        assert [each.name for each in supervisor.tree().children] == ["a"]
        assert await supervisor.remove("a")
        assert not await supervisor.remove("a")
    assert log == ["start a", "start b", "stop a"]


async def test_ten_thousand_children_that_ended_leave_nothing_behind() -> None:
    async def short() -> None:
        await asyncio.sleep(0)

    async with Supervisor("s") as supervisor:
        for number in range(10_000):
            await supervisor.add(Child(f"{number}", short, restart="transient"))
        await eventually(lambda: len(supervisor) == 0)


class Lasting:
    """A service that takes a while to stop, and counts how often it is up."""

    def __init__(self) -> None:
        self.up = 0

    async def start(self) -> None:
        self.up += 1

    async def ended(self) -> None:
        await forever()

    async def stop(self) -> None:
        try:
            await turns()
        finally:
            self.up -= 1


class Slow(Lasting):
    """One whose start does not end."""

    async def start(self) -> None:
        await forever()


@pytest.mark.parametrize("cancelled", [1, 2, 3])
async def test_a_start_that_is_cancelled_again_while_it_cleans_up_leaves_no_child_behind(
    cancelled: int,
) -> None:
    first, second = Lasting(), Lasting()
    children = [Child("first", first), Child("second", second), Child("slow", Slow())]
    starting = asyncio.ensure_future(Supervisor("s", children).start())
    await eventually(lambda: second.up == 1)
    for _ in range(cancelled):
        starting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert (first.up, second.up) == (0, 0)


@pytest.mark.parametrize("cancelled", [1, 2])
@pytest.mark.parametrize("together", [False, True])
async def test_a_stop_that_is_cancelled_leaves_no_child_behind(
    cancelled: int, together: bool
) -> None:
    parts = [Lasting() for _ in range(3)]
    children = [Child(f"{number}", part) for number, part in enumerate(parts)]
    supervisor = Supervisor("s", children, stop_together=together)
    await supervisor.start()
    stopping = asyncio.ensure_future(supervisor.stop())
    for _ in range(cancelled):
        for _ in range(5):
            await asyncio.sleep(0)
        stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    assert [part.up for part in parts] == [0, 0, 0]
    assert {child.state for child in supervisor.tree().children} == {"ended"}


async def test_a_child_that_is_ending_is_not_killed_again() -> None:
    async with Supervisor("s", [Child("lasting", Lasting())]) as supervisor:
        assert supervisor.kill("lasting")
        assert not supervisor.kill("lasting")


async def test_changes_can_be_followed() -> None:
    inner = Supervisor("inner", [Child("part", forever)], backoff=AT_ONCE)
    outer = Supervisor("outer", [Child("inner", inner)])
    heard: list[NodeChange] = []
    unfollow = outer.follow(heard.append)
    changes = outer.changes()
    await outer.start()
    await asyncio.sleep(0)
    inner.kill("part")
    path = ("outer", "inner", "part")
    async for change in changes:
        if change == NodeChange(path, "waiting", "it was cancelled"):
            changes.close()
    assert [each.state for each in heard if each.path == path][:3] == [
        "starting",
        "running",
        "waiting",
    ]
    await eventually(lambda: outer.tree().find("inner", "part").state == "running")  # type: ignore[union-attr]
    unfollow()
    count = len(heard)
    await outer.stop()
    assert len(heard) == count


async def test_changes_that_are_not_taken_are_dropped_oldest_first() -> None:
    supervisor = Supervisor("s")
    changes = supervisor.changes(limit=10)
    async with supervisor:
        for number in range(20):
            await supervisor.add(Child(f"{number}", forever))
    assert changes.missed > 0
    changes.close()
    assert len([change async for change in changes]) == 10


async def test_a_follower_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def bad(change: NodeChange) -> None:
        raise RuntimeError("follower")

    supervisor = Supervisor("s", [Child("part", forever)])
    supervisor.follow(bad)
    async with supervisor:
        assert supervisor.tree().children[0].state in ("starting", "running")
    assert "a follower of the tree failed" in caplog.text


async def test_stopping_while_starting_stops_what_was_started() -> None:
    class Never(Part):
        async def start(self) -> None:
            await super().start()
            await forever()

    log: list[str] = []
    supervisor = Supervisor("s", [Part("a", log).child(), Never("b", log).child()])
    starting = asyncio.create_task(supervisor.start())
    await eventually(lambda: "start b" in log)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert log == ["start a", "start b", "stop a"]


def test_a_tree_reads_as_text() -> None:
    supervisor = Supervisor("s", [Child("a", forever), Child("b", Supervisor("b", ()))])
    assert str(supervisor.tree()) == "s: ended\n  a: ended\n  b: ended"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Supervisor("s", strategy="all"), "`strategy` is one_for_one"),  # type: ignore[arg-type]
        (lambda: Supervisor("s", restarts=-1), "`restarts` is not below 0"),
        (lambda: Child("a", 3), "`run` is a coroutine function"),  # type: ignore[arg-type]
        (lambda: Child("a", forever, restart="always"), "`restart` is permanent"),  # type: ignore[arg-type]
        (lambda: Child("a", forever, shutdown=-1), "`shutdown` is a number of seconds"),
    ],
)
def test_impossible_settings_are_refused(make: Callable[[], object], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        make()
