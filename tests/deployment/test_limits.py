"""Limits that hold over all machines of a deployment: rates, and how many sessions there are."""

import asyncio
from typing import Any

import pytest

from mcpearl import RateLimit
from mcpearl.auth import Principal
from mcpearl.stores.errors import TOLD
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_rates import RedisRateStore
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.session_records import caller_name
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


class ByHeader:
    """Takes each client's word for its name."""

    def document(self, request: Any) -> None:
        return None

    def known(self, request: Any) -> None:
        return None

    async def admit(self, request: Any) -> Principal:
        return Principal(request.headers[b"x-name"].decode())

    def insufficient(self, request: Any, needed: Any) -> Refused:
        return Refused(403, f"needs {needed}")


async def test_the_cap_on_sessions_holds_over_machines() -> None:
    async with two_machines(max_sessions=3, auth=ByHeader()) as (one, two):
        begun = [
            await machine.raw.initialize(**{"X-Name": name})
            for machine, name in ((one, "ann"), (two, "bob"), (one, "cem"))
        ]
        await eventually(lambda: two.store.sessions.count == one.store.sessions.count == 3)
        for machine in (one, two):
            new = Session(machine.raw.port)
            refused = await new.post(message("initialize", BEGINS, 0), {"X-Name": "dan"})
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
            assert "on all machines" in refused.json["error"]["message"]
        assert (await two.take_up(begun[0]).ask("ping")).status == 200  # it is not a new one
        assert (await begun[0].delete()).status == 204
        await eventually(lambda: two.store.sessions.count == 2)
        await two.raw.initialize(**{"X-Name": "dan"})


@pytest.mark.parametrize("by", ["principal", "address"])
async def test_one_caller_does_not_get_all_sessions_of_all_machines(by: str) -> None:
    options: dict[str, Any] = {"auth": ByHeader()} if by == "principal" else {}
    own = caller_name(Principal("ann") if by == "principal" else "127.0.0.1")
    async with two_machines(max_sessions=12, **options) as machines:
        for number in range(6):  # it may have as many as are free then
            begun = await machines[number % 2].raw.initialize(**{"X-Name": "ann"})
        for machine in machines:
            new = Session(machine.raw.port)
            refused = await new.post(message("initialize", BEGINS, 0), {"X-Name": "ann"})
            assert refused.status == 503
            assert "has 6 of the 12 sessions" in refused.json["error"]["message"]
            assert "end one with DELETE" in refused.json["error"]["message"]
        if by == "principal":
            for machine in machines:
                await machine.raw.initialize(**{"X-Name": "bob"})
        assert (await begun.ask("ping")).status == 200
        for machine in machines:  # ended at one, they are free at the other
            assert (await machine.take_up(begun).delete()).status in (204, 404)
        await eventually(lambda: machines[0].store.sessions.count_of(own) == 5)


async def begin_at_once(machines: tuple[Machine, Machine], names: list[str]) -> list[Any]:
    """Begin sessions of these callers at two machines, all at the same time; return the answers."""
    sessions = [Session(machines[n % 2].raw.port) for n in range(len(names))]
    posts = [
        each.post(message("initialize", BEGINS, 0), {"X-Name": name})
        for each, name in zip(sessions, names, strict=True)
    ]
    return await asyncio.gather(*posts)


@pytest.mark.parametrize(
    ("names", "most"), [(["ann"] * 24, 12), ([f"caller {n}" for n in range(24)], 6)]
)
async def test_sessions_that_begin_at_once_on_two_machines_stay_within_the_cap(
    names: list[str], most: int
) -> None:
    async with two_machines(max_sessions=most, auth=ByHeader()) as machines:
        answers = await begin_at_once(machines, names)
        refused = [answer for answer in answers if answer.status == 503]
        assert [answer.status for answer in answers].count(200) == 6
        assert len(refused) == len(names) - 6
        for answer in refused:
            assert answer.headers["retry-after"] == "10"
            assert "mcp-session-id" not in answer.headers
        # What was refused is not here, and was not counted.
        assert sum(len(each.app.connections) for each in machines) == 6
        await eventually(lambda: all(each.store.sessions.count == 6 for each in machines))


async def test_a_session_that_ended_makes_room_at_once_where_it_ended() -> None:
    async with two_machines(max_sessions=2, auth=ByHeader()) as (one, _):
        begun = await one.raw.initialize(**{"X-Name": "ann"})
        for _ in range(3):
            assert (await begun.delete()).status == 204
            begun = await one.raw.initialize(**{"X-Name": "ann"})


@pytest.mark.parametrize("most", [5, 100_000])
async def test_no_session_begins_while_the_store_is_away(most: int) -> None:
    with running("redis") as redis:
        async with two_machines(redis.url, max_sessions=most) as (one, _):
            begun = await one.raw.initialize()
            redis.kill()
            assert (await begun.delete()).status == 503  # now it is noticed
            new = Session(one.raw.port)
            refused = await new.post(message("initialize", BEGINS, 0))
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert refused.json["error"]["message"] == f"No session can begin: {TOLD}"
            assert len(one.app.connections) == 1
            redis.start()

            async def begins() -> bool:
                answer = await Session(one.raw.port).post(message("initialize", BEGINS, 0))
                return answer.status == 200

            await eventually(begins)


async def test_near_the_cap_a_session_is_not_begun_before_the_store_has_counted_it() -> None:
    with running("redis") as redis:
        async with two_machines(redis.url, max_sessions=3) as (one, _):
            await eventually(lambda: one.store.is_up)
            redis.kill()  # which nobody has noticed yet
            refused = await Session(one.raw.port).post(message("initialize", BEGINS, 0))
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert not one.app.connections
            redis.start()
            await eventually(lambda: one.store.is_up)
            await one.raw.initialize()
            await eventually(lambda: one.store.sessions.count == 1)
