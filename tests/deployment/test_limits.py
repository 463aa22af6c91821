"""Limits that hold over all machines of a deployment: rates, and how many sessions there are."""

from mcpearl import RateLimit
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_rates import RedisRateStore
from tests.deployment.machines import Machine, two_machines
from tests.redis_server import fresh_address, running
from tests.transports.raw_http import LEGACY, Session, message
from tests.waiting import eventually

BEGINS = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


async def allowed(machine: Machine, calls: int, tool: str = "add") -> int:
    """Return how many of some calls a machine lets through."""
    arguments = {"a": 1, "b": 2}
    answers = [(await machine.raw.call(tool, arguments, id=n)).json for n in range(calls)]
    return sum("result" in answer for answer in answers)


async def test_what_one_machine_let_through_counts_at_the_others() -> None:
    rate = RateLimit(10, per=3600, burst=10)
    async with two_machines(server={"rate": rate}) as (one, two):
        assert await allowed(one, 10) == 10
        assert await allowed(two, 1) == 1  # it has not heard of them yet

        async def is_refused() -> bool:
            return await allowed(two, 1) == 0

        await eventually(is_refused)
        assert await allowed(one, 1) == 0


async def test_a_rate_costs_no_command_while_a_call_runs() -> None:
    async with two_machines(server={"rate": RateLimit(1000)}) as (one, _):
        assert await allowed(one, 1) == 1
        await eventually(lambda: not one.app._meters()[""]._used)
        before = one.store.link.sent
        assert await allowed(one, 50) == 50
        reports = 12  # ten a second at most, whatever the calls; and signs of life
        assert one.store.link.sent - before <= reports


async def test_without_the_store_each_machine_counts_for_itself() -> None:
    with running("redis") as redis:
        rate = RateLimit(3, per=3600, burst=3)
        async with two_machines(redis.url, server={"rate": rate}) as (one, two):
            redis.kill()
            assert await allowed(one, 4) == 3
            assert await allowed(two, 4) == 3
            redis.start()  # so that closing need not wait


async def test_what_is_owed_is_the_sum_of_all_calls() -> None:
    link = RedisLink(parse(fresh_address()))
    await link.start()
    rates = RedisRateStore(link)
    many = [(str(n), 1) for n in range(1200)]
    assert len(await rates.spend("x", 100.0, many)) == 1200
    (owed, other) = await rates.spend("x", 100.0, [("1", 4), ("new", 2)])
    assert 490 < owed <= 500 and 190 < other <= 200
    assert 90 < (await rates.spend("y", 100.0, [("1", 1)]))[0] <= 100
    await link.close()


async def test_the_cap_on_sessions_holds_over_machines() -> None:
    async with two_machines(max_sessions=3) as (one, two):
        begun = [await machine.raw.initialize() for machine in (one, two, one)]
        await eventually(lambda: two.store.sessions.count == one.store.sessions.count == 3)
        for machine in (one, two):
            refused = await Session(machine.raw.port).post(message("initialize", BEGINS, 0))
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
            assert "on all machines" in refused.json["error"]["message"]
        assert (await two.take_up(begun[0]).ask("ping")).status == 200  # it is not a new one
        assert (await begun[0].delete()).status == 204
        await eventually(lambda: two.store.sessions.count == 2)
        await two.raw.initialize()
