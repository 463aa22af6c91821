"""A supervisor against a model of one, under virtual time, over all strategies."""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Backoff
from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.supervisor_errors import GaveUp, StartFailed
from tests.runtime.virtual_time import VirtualLoop

_DELAYS = (1.0, 2.0, 4.0)
_SETTLED = 10.0
_RESTARTS, _PERIOD = 4, 20.0
KINDS = st.sampled_from(["permanent", "transient", "temporary"])


class Part:
    """A child that ends when it is told to, and notes what happens to it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.bad_starts = 0
        self.end: asyncio.Future[None] = asyncio.get_event_loop().create_future()

    async def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.bad_starts:
            self.bad_starts -= 1
            raise OSError("bad start")
        self.end = asyncio.get_running_loop().create_future()

    async def ended(self) -> None:
        await self.end

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")

    async def run(self) -> None:
        """The same as a coroutine function."""
        await self.start()
        try:
            await self.end
        finally:
            await self.stop()


class ModelChild:
    def __init__(self, name: str, restart: str, added: bool) -> None:
        self.name, self.restart, self.added = name, restart, added
        self.state = "running"
        self.restarts = 0
        self.attempts = 0
        self.bad_starts = 0
        self.since = 0.0
        self.due: float | None = None


class Model:
    """What a supervisor is to do, in the plainest form."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.now = 0.0
        self.children: list[ModelChild] = []
        self.failures: list[float] = []
        self.log: list[str] = []
        self.gave_up = False

    def start(self, child: ModelChild) -> bool:
        self.log.append(f"start {child.name}")
        child.due = None
        if child.bad_starts:
            child.bad_starts -= 1
            return False
        child.state, child.since = "running", self.now
        return True

    def stop(self, child: ModelChild) -> None:
        child.due = None
        if child.state == "running":
            self.log.append(f"stop {child.name}")
        child.state = "ended"

    def ended(self, child: ModelChild, failed: bool) -> None:
        self.log.append(f"stop {child.name}")
        if self.now - child.since > _SETTLED:
            child.attempts = 0
        if child.restart == "permanent" or (child.restart == "transient" and failed):
            self.fail(child)
            return
        child.state = "failed" if failed else "ended"
        if child.added or child.restart == "temporary":
            self.children.remove(child)

    def fail(self, child: ModelChild) -> None:
        self.failures.append(self.now)
        child.state = "waiting"
        if sum(self.now - at <= _PERIOD for at in self.failures) > _RESTARTS:
            for each in reversed(self.children):
                self.stop(each)
            child.state = "failed"
            self.gave_up = True
            return
        delay = _DELAYS[min(child.attempts, len(_DELAYS) - 1)]
        child.attempts += 1
        for each in reversed(self.with_it(child)):
            if each is not child:
                self.stop(each)
                if each.restart == "temporary":
                    self.children.remove(each)
                else:
                    each.state = "waiting"
        child.due = self.now + delay

    def with_it(self, child: ModelChild) -> list[ModelChild]:
        if self.strategy == "one_for_all":
            return list(self.children)
        if self.strategy == "rest_for_one":
            return self.children[self.children.index(child) :]
        return [child]

    def restart(self, child: ModelChild) -> None:
        group = self.with_it(child)
        for each in group:
            each.restarts += 1
        self.start_all(group)

    def start_all(self, group: list[ModelChild]) -> None:
        for each in group:
            if each.state != "running" and not self.start(each):
                self.fail(each)
                return

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while not self.gave_up:
            waiting = [each for each in self.children if each.due is not None and each.due <= end]
            if not waiting:
                break
            first = min(waiting, key=lambda each: each.due or 0.0)
            self.now = first.due or 0.0
            self.restart(first)
        self.now = end

    def remove(self, child: ModelChild) -> None:
        awaited = child.due is not None
        group = [each for each in self.with_it(child) if each.state == "waiting"]
        self.stop(child)
        self.children.remove(child)
        if awaited:
            self.start_all([each for each in group if each is not child])


class SupervisorMachine(RuleBasedStateMachine):
    strategy = "one_for_one"

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        clock.use(self.loop)
        self.model = Model(self.strategy)
        self.log: list[str] = []
        self.parts: dict[str, Part] = {}
        self.supervisor: Supervisor
        self.named = 0

    def child(self, restart: str, plain: bool) -> Child:
        self.named += 1
        part = self.parts[f"c{self.named}"] = Part(f"c{self.named}", self.log)
        run: Any = part.run if plain else part
        return Child(part.name, run, restart=restart)  # type: ignore[arg-type]

    @initialize(children=st.lists(st.tuples(KINDS, st.booleans()), min_size=1, max_size=4))
    def begin(self, children: list[tuple[str, bool]]) -> None:
        given = [self.child(*each) for each in children]
        self.supervisor = Supervisor(
            "s",
            given,
            strategy=self.strategy,  # type: ignore[arg-type]
            restarts=_RESTARTS,
            period=_PERIOD,
            backoff=Backoff(delays=_DELAYS, jitter=0, settled_after=_SETTLED),
        )
        for each in given:
            child = ModelChild(each.name, each.restart, added=False)
            self.model.children.append(child)
            self.model.start(child)
        self.loop.run(self.supervisor.start())

    def pick(self, data: st.DataObject, *states: str) -> ModelChild | None:
        # Two things never happen at the same instant.
        self.loop.advance(0.001)
        self.model.advance(0.001)
        some = [each for each in self.model.children if each.state in states]
        return data.draw(st.sampled_from(some)) if some else None

    @precondition(lambda self: not self.model.gave_up)
    @rule(data=st.data(), how=st.sampled_from(["fails", "returns", "is killed"]))
    def end(self, data: st.DataObject, how: str) -> None:
        child = self.pick(data, "running")
        if child is None or self.model.gave_up:
            return
        self.model.ended(child, failed=how != "returns")

        async def end() -> None:
            part = self.parts[child.name]
            if how == "fails":
                part.end.set_exception(ValueError("failed"))
            elif how == "returns":
                part.end.set_result(None)
            else:
                assert self.supervisor.kill(child.name)

        self.loop.run(end())

    @precondition(lambda self: not self.model.gave_up)
    @rule(data=st.data(), times=st.integers(1, 3))
    def spoil_starts(self, data: st.DataObject, times: int) -> None:
        child = self.pick(data, "running", "waiting")
        if child is not None and self.parts[child.name] in self.services():
            child.bad_starts = self.parts[child.name].bad_starts = times

    def services(self) -> list[object]:
        kept = self.supervisor._children.values()
        return [each.child.run for each in kept if isinstance(each.child.run, Part)]

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 5.0, 11.0, 30.0]))
    def advance(self, seconds: float) -> None:
        self.model.advance(seconds)
        self.loop.advance(seconds)

    @precondition(lambda self: not self.model.gave_up)
    @rule(restart=KINDS, plain=st.booleans(), bad=st.booleans())
    def add(self, restart: str, plain: bool, bad: bool) -> None:
        child = self.child(restart, plain)
        model = ModelChild(child.name, restart, added=True)
        if bad and not plain:
            self.parts[child.name].bad_starts = model.bad_starts = 1
        if self.model.start(model):
            self.model.children.append(model)
            self.loop.run(self.supervisor.add(child))
        else:
            with pytest.raises(StartFailed, match=f"`{child.name}` did not start: OSError"):
                self.loop.run(self.supervisor.add(child))

    @precondition(lambda self: not self.model.gave_up)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        child = self.pick(data, "running", "waiting", "ended")
        if child is not None and not self.model.gave_up:
            self.model.remove(child)
            assert self.loop.run(self.supervisor.remove(child.name))

    @invariant()
    def same(self) -> None:
        assert self.log == self.model.log
        tree = self.supervisor.tree()
        seen = [(each.name, each.state, each.restarts) for each in tree.children]
        assert seen == [(each.name, each.state, each.restarts) for each in self.model.children]
        assert (tree.state == "failed") is self.model.gave_up
        if self.model.gave_up:
            with pytest.raises(GaveUp) as raised:
                self.loop.run(self.supervisor.ended())
            assert len(raised.value.failures) == _RESTARTS + 1

    def teardown(self) -> None:
        for each in reversed(self.model.children):
            self.model.stop(each)
        self.loop.run(self.supervisor.stop())
        try:
            assert self.log == self.model.log
            assert not asyncio.all_tasks(self.loop)
        finally:
            clock.use(clock.SystemSource)
            asyncio.set_event_loop(None)
            self.loop.close()


class OneForAll(SupervisorMachine):
    strategy = "one_for_all"


class RestForOne(SupervisorMachine):
    strategy = "rest_for_one"


_SETTINGS = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestOneForOne = SupervisorMachine.TestCase
TestOneForAll = OneForAll.TestCase
TestRestForOne = RestForOne.TestCase
TestOneForOne.settings = TestOneForAll.settings = TestRestForOne.settings = _SETTINGS
