"""Upstreams that send too much: what it costs their callers, and that it costs the others nothing."""

from typing import Any

import pytest

from mcpearl import McpError
from mcpearl.gateway.logs import MAX_LOGGED
from mcpearl.gateway.settings import UpstreamSettings
from tests.gateway.test_bad_input import HASTY, beside
from tests.gateway.upstream_server import LEGACY, MODERN
from tests.waiting import eventually

ERAS = pytest.mark.parametrize("protocol", [LEGACY[0], MODERN[0]])


@ERAS
async def test_an_answer_that_is_too_large_fails_at_once_and_alone(protocol: str) -> None:
    """As often as it happens, the upstream is not left alone for it: it does answer."""
    async with beside("huge", protocol=protocol) as (client, gateway):
        for _ in range(6):
            with pytest.raises(
                McpError, match="`bad`: the answer cannot be taken: message is over the limit"
            ):
                await client.call_tool("bad__x")
        assert gateway.servers["bad"].state == "ready"


@ERAS
async def test_a_second_answer_is_none(protocol: str) -> None:
    async with beside("twice", protocol=protocol) as (client, _):
        for _ in range(3):
            assert (await client.call_tool("bad__x")).text == "first"


@ERAS
async def test_names_that_no_host_could_take(protocol: str) -> None:
    async with beside("names", protocol=protocol) as (client, gateway):
        await eventually(lambda: gateway.upstreams["bad"].lists.tools())
        names = [tool.name async for tool in client.tools()]
        assert len(names) == len(set(names))
        own = [name for name in names if name.startswith("bad_")]
        assert len(own) == 7
        for name in own:
            assert len(name) <= 64
            assert name.replace("_", "").isalnum()
            assert name.isascii()
            assert (await client.call_tool(name)).text == "x"
        assert (await client.call_tool("good__add", {"a": 1, "b": 2})).text == "3"


async def test_instructions_without_end_are_cut() -> None:
    async with beside("instructs") as (client, gateway):
        assert gateway.servers["bad"].state == "ready"
        assert len(client.instructions or "") < 20_000
        assert len(gateway.core.offer.instructions or "") < 20_000


@ERAS
async def test_more_questions_at_once_than_anybody_could_answer(protocol: str) -> None:
    asked: list[Any] = []

    def answer(params: Any) -> dict[str, Any]:
        asked.append(params)
        return {}

    options: dict[str, Any] = {"protocol": protocol, "elicitation": answer, "max_rounds": 10_000}
    async with beside("asks_at_once", HASTY, **options) as (client, gateway):
        with pytest.raises(McpError, match="was not answered within"):
            await client.call_tool("bad__x")
        assert len(asked) <= 5000
        upstream = gateway.upstreams["bad"]
        await eventually(lambda: len(upstream.parked) == 0 and gateway.mounts["bad"].calls == 0)


async def test_a_list_without_end_is_given_up() -> None:
    settings = UpstreamSettings(patience=0.5)
    async with beside("pages", settings) as (client, gateway):
        await eventually(lambda: gateway.upstreams["bad"].lists.tools() is not None)
        assert not [tool async for tool in client.tools() if tool.name.startswith("bad")]
        assert (await client.call_tool("bad__x")).text == "x"


@ERAS
async def test_messages_without_end_in_one_call(protocol: str) -> None:
    logs: list[Any] = []
    steps: list[float] = []
    options: dict[str, Any] = {"on_log": logs.append, "log_level": "debug", "protocol": protocol}
    async with beside("talks", **options) as (client, _):
        result = await client.call_tool("bad__x", on_progress=lambda p: steps.append(p.progress))
        assert result.text == "x"
        await eventually(lambda: len(logs) >= MAX_LOGGED)
        assert len(logs) == MAX_LOGGED  # the others are dropped
        assert steps == sorted(steps)
        assert (await client.call_tool("good__steps")).text == "ok"
        await eventually(lambda: len(logs) == MAX_LOGGED + 2)  # of another upstream
