"""Time limits on every wire: the other side is told, progress extends them, a hard maximum ends them."""

import asyncio

import pytest

from mcpearl import RequestTimeout

from .world import LEGACY, MODERN, World, eventually

BOTH = pytest.mark.parametrize("protocol", [LEGACY, MODERN])


@BOTH
async def test_timeouts(world: World, protocol: str) -> None:
    async with world.client(protocol=protocol, max_timeout=2.0) as client:
        keys = [f"{world.mark}-{name}" for name in ("silent", "working", "endless", "given-up")]
        silent, working, endless, given_up = keys

        async def call(key: str, times: int, *, timeout: float, told: bool) -> str:
            heard = (lambda _: None) if told else None
            arguments = {"key": key, "times": times}
            result = await client.call_tool("tick", arguments, timeout=timeout, on_progress=heard)
            return str(result.content[0].text)  # type: ignore[union-attr]

        giving_up = asyncio.ensure_future(call(given_up, 1000, timeout=20, told=False))
        outcomes = await asyncio.gather(
            call(
                silent, 1000, timeout=0.2, told=False
            ),  # nobody asked for progress, so there is none
            call(working, 20, timeout=0.8, told=True),
            call(endless, 1000, timeout=0.8, told=True),
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
