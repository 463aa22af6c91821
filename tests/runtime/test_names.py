"""Names and properties go with their owner, whatever it is, and cost the same however many there are."""

import asyncio
import time
from typing import Any

import pytest

from mcpearl.runtime.names import Directory, Names, NameTaken


class Owner:
    pass


def test_a_name_is_found_until_its_owner_goes() -> None:
    names, owner = Names(), Owner()
    names.hold("a", owner)
    names.hold("a", owner)
    names.mark(owner, "worker")
    assert names.lookup("a") is owner
    assert list(names.where("worker")) == [owner]
    names.let_go(owner)
    names.let_go(owner)
    assert names.lookup("a") is None
    assert list(names.where("worker")) == []
    assert not any(getattr(names, table) for table in ("_names", "_owners", "_holders"))


def test_a_name_is_held_by_one_owner() -> None:
    names, first = Names(), Owner()
    names.hold("a", first)
    with pytest.raises(NameTaken, match="the name 'a' is held by <") as taken:
        names.hold("a", Owner())
    assert taken.value.owner is first
    names.release("a")
    names.release("a")
    names.hold("a", Owner())


async def test_what_a_task_holds_goes_with_it() -> None:
    names = Names()

    async def work() -> None:
        task = asyncio.current_task()
        names.hold("job", task)
        names.mark(task, "busy")
        await asyncio.sleep(0)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    assert names.lookup("job") is task
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert (len(names), names.count("busy")) == (0, 0)


def test_watchers_hear_of_a_name(caplog: pytest.LogCaptureFixture) -> None:
    names, owner = Names(), Owner()
    heard: list[Any] = []

    def bad(name: Any, owner: Any) -> None:
        raise RuntimeError

    names.watch("a", bad)
    unwatch = names.watch("a", lambda name, owner: heard.append(owner))
    names.hold("a", owner)
    names.hold("b", owner)
    names.let_go(owner)
    assert heard == [owner, None]
    unwatch()
    unwatch()
    names.hold("a", owner)
    assert len(heard) == 2
    assert "a watcher of the name 'a' failed" in caplog.text


async def test_it_is_the_directory_of_one_machine() -> None:
    directory: Directory = Names("here")
    owner = Owner()
    await directory.claim("a", owner)
    assert await directory.machine_of("a") == "here"
    with pytest.raises(NameTaken):
        await directory.claim("a", Owner())
    directory.let_go(owner)
    assert await directory.machine_of("a") is None


def test_one_name_costs_the_same_among_many() -> None:
    def cost(names: Names) -> float:
        owners = [Owner() for _ in range(2000)]
        began = time.process_time()
        for number, owner in enumerate(owners):
            names.hold(("new", number), owner)
            names.mark(owner, "all")
            names.lookup(("new", number))
        for owner in owners:
            names.let_go(owner)
        return time.process_time() - began

    few, many = Names(), Names()
    for number in range(100_000):
        owner = Owner()
        many.hold(number, owner)
        many.mark(owner, "all")
    assert min(cost(many) for _ in range(5)) < 10 * min(cost(few) for _ in range(5))


async def test_names_of_a_kind_are_asked_of_what_has_them() -> None:
    names, rooms = Names("here"), {1: Owner(), 2: Owner()}
    heard: list[Any] = []
    names.serve("room", rooms)
    names.watch("room", lambda name, owner: heard.append((name, owner)))
    names.watch(("room", 1), lambda name, owner: heard.append(owner))
    assert names.lookup(("room", 1)) is rooms[1]
    assert names.lookup(("room", 3)) is names.lookup(("floor", 1)) is None
    assert list(names.where("room")) == [*rooms.values()]
    assert (names.count("room"), len(names)) == (2, 0)
    with pytest.raises(ValueError, match="it is the name of a room"):
        names.hold(("room", 3), Owner())
    names.hold(("floor", 1), rooms[1])
    gone = rooms.pop(1)
    names.changed("room", 1, None)
    names.changed("room", 3, gone)
    assert heard == [None, (("room", 1), None), (("room", 3), gone)]
    assert await names.machine_of(("room", 2)) == "here"
    assert await names.machine_of(("room", 1)) is None


async def test_what_is_claimed_is_claimed_in_the_directory_of_all_machines() -> None:
    there = Names("there")
    here, other = Names("here"), Names("other")
    here.directory = other.directory = there
    owner = Owner()
    await here.claim("a", owner)
    await here.claim("a", owner)
    with pytest.raises(NameTaken):
        await other.claim("a", Owner())
    with pytest.raises(NameTaken):
        await here.claim("a", Owner())
    assert (await here.machine_of("a"), await other.machine_of("a")) == ("here", "there")
    here.let_go(owner)
    assert await other.machine_of("a") is None
    mine = Owner()
    here.hold("b", mine)
    assert await other.machine_of("b") is None
    here.let_go(mine)
