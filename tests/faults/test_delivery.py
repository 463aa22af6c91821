"""Side effects counted over thousands of cut connections: nothing that must not run twice does.

Every connection is cut after a random number of bytes, in the middle of whatever it carries then.
What the callers were told is held against what the server did.
"""

import asyncio
import random

import pytest

from mcpearl import Client, Reconnect

from .world import LEGACY, MODERN, Outcomes, World

AT_ONCE = Reconnect(delays=(0.0, 0.005))


@pytest.mark.parametrize(
    ("wire", "protocol", "cuts"),
    [
        ("tcp", MODERN, 1000),
        ("tcp", LEGACY, 1000),
        ("unix", MODERN, 300),
        ("tls", MODERN, 100),
        ("ws", MODERN, 300),
        ("http", MODERN, 300),
        ("http", LEGACY, 300),
        ("stdio", LEGACY, 20),
    ],
)
async def test_nothing_runs_twice(world: World, protocol: str, cuts: int) -> None:
    chance = random.Random(20)
    outcomes = {"charge": Outcomes(), "put": Outcomes()}
    clients = [
        world.client(protocol=protocol, reconnect=AT_ONCE, validate_output=False) for _ in range(4)
    ]
    for client in clients:
        await client.connect()
        await client.list_tools()
    world.proxy.allowance = lambda: chance.randrange(1, 6000)
    world.proxy.reset()

    async def call_on(client: Client, number: int) -> None:
        made = 0
        while world.proxy.cuts < cuts:
            made += 1
            tool = "put" if made % 4 == 0 else "charge"
            key = f"{world.mark}-{number}-{made}"
            call = client.call_tool(tool, {"key": key}, timeout=30)
            await outcomes[tool].of(key, call)

    await asyncio.gather(
        *(call_on(client, 10 * n + each) for n, client in enumerate(clients) for each in range(4))
    )
    world.proxy.allowance = lambda: None
    world.proxy.cut()
    for client in clients:
        await client.ping()  # serves again by itself
        await client.close()
    ran = world.server.ran()
    outcomes["charge"].check(ran, once=True)
    outcomes["put"].check(ran, once=False)
    assert not outcomes["put"].maybe  # each was repeated until it succeeded
    assert outcomes["charge"].done
    assert outcomes["charge"].maybe  # there were cuts in the middle
    assert world.proxy.cuts >= cuts
