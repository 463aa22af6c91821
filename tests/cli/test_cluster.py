"""`mcpearl cluster`: who is there, and what is held."""

import asyncio

from tests.cli.running import mcpearl as run
from tests.deployment.machines import two_machines
from tests.redis_server import fresh_address
from tests.waiting import eventually


async def test_members_names_and_what_is_held_are_listed() -> None:
    address = fresh_address()
    async with two_machines(address) as (one, two):
        await one.raw.initialize()
        await one.store.names.claim("job", one)
        await eventually(lambda: not one.store.sessions.counted._changed)
        (deployment,) = (await asyncio.to_thread(run, "cluster", address, "--json")).json
        await one.store.members.report()  # as it does all the time
        (again,) = (await asyncio.to_thread(run, "cluster", address, "--json")).json
        assert again["members"] == deployment["members"]  # each is there since it joined
        numbers = {each["number"] for each in deployment["members"]}
        assert numbers == {one.store.members.number, two.store.members.number}
        assert [each["name"] for each in deployment["names"]] == ["'job'"]
        assert deployment["sessions"] == 1 and deployment["keys"]["sessions that changed"] == 1
        text = (await asyncio.to_thread(run, "cluster", address)).out
        assert ": 1 session\n" in text and "'job'" in text and str(one.store.members.number) in text


def test_a_store_that_is_not_there() -> None:
    done = run("cluster", "redis://127.0.0.1:1")
    assert done.code == 3 and "cannot be reached" in done.err
    done = run("cluster", "http://127.0.0.1:1")
    assert done.code == 2, done.err
