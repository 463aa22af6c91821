"""Time limits on every wire: the other side is told, progress extends them, a hard maximum ends them."""

import asyncio

import pytest

from mcpearl import Client, RequestTimeout
from tests.waiting import eventually

from .world import LEGACY, MODERN, World

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


@BOTH
async def test_timeouts(world: World, protocol: str) -> None:
    async with (
        world.client(protocol=protocol) as client,
        world.client(protocol=protocol) as limited,
    ):
        keys = [f"{world.mark}-{name}" for name in ("silent", "working", "endless", "given-up")]
        silent, working, endless, given_up = keys

        async def call(
            by: Client, key: str, times: int, *, timeout: float, longest: float | None = None
        ) -> str:
            heard = None if longest is None else lambda _: None
            arguments = {"key": key, "times": times}
            result = await by.call_tool(
                "tick", arguments, timeout=timeout, max_timeout=longest, on_progress=heard
            )
            return str(result.content[0].text)  # type: ignore[union-attr]

        giving_up = asyncio.ensure_future(call(client, given_up, 10_000, timeout=60))
        outcomes = await asyncio.gather(
            # Nobody asked for progress, so there is none.
            call(client, silent, 10_000, timeout=2.0),
            call(client, working, 90, timeout=4.0, longest=60),
            call(limited, endless, 10_000, timeout=4.0, longest=4.5),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], RequestTimeout)
        assert outcomes[1] == working
        assert isinstance(outcomes[2], RequestTimeout)
        assert "maximum" in str(outcomes[2])
        giving_up.cancel()
        stopped = {f"{key}-stopped" for key in (silent, endless, given_up)}
        await eventually(lambda: stopped <= set(world.server.ran()))
        assert f"{working}-stopped" not in world.server.ran()
