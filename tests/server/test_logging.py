"""Logging to the client: at which level, to whom, and with what."""

from typing import Any

import pytest

from mcpearl import Context, Server
from tests.server.wire import ERAS, LEGACY, MODERN, PREFIX, wire

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def chatty() -> Server:
    app = Server("logging")

    @app.tool
    async def talk(ctx: Context) -> str:
        for level in LEVELS:
            await ctx.log(level, level, "talker")  # type: ignore[arg-type]
        return "done"

    @app.tool
    def talk_plainly(ctx: Context) -> str:
        ctx.debug("d")
        ctx.info("i")
        ctx.warning("w")
        ctx.error("e")
        return "done"

    return app


def levels(messages: list[dict[str, Any]]) -> list[str]:
    assert all(message["method"] == "notifications/message" for message in messages)
    return [message["params"]["level"] for message in messages]


async def test_a_legacy_session_gets_everything_until_it_chooses() -> None:
    async with wire(chatty(), LEGACY) as client:
        await client.call("talk")
        assert levels(await client.silence()) == list(LEVELS)
        for number, level in enumerate(LEVELS):
            assert (await client.ask("logging/setLevel", {"level": level}))["result"] == {}
            await client.call("talk")
            assert levels(await client.silence()) == list(LEVELS[number:])
        refused = await client.ask("logging/setLevel", {"level": "loud"})
        assert refused["error"]["code"] == -32602


async def test_a_modern_request_gets_what_it_asks_for_and_nothing_without() -> None:
    async with wire(chatty()) as client:
        await client.call("talk")
        assert await client.silence() == []
        await client.call("talk", **{f"{PREFIX}logLevel": "error"})
        assert levels(await client.silence()) == list(LEVELS[4:])
        await client.call("talk")
        assert await client.silence() == [], "the level was that of the one request"
        bad = await client.call("talk", **{f"{PREFIX}logLevel": "loud"})
        assert bad["error"]["code"] == -32602
        assert (await client.ask("logging/setLevel", {"level": "debug"}))["error"]["code"] == -32601


async def test_two_sessions_have_levels_of_their_own() -> None:
    app = chatty()
    async with wire(app, LEGACY) as one, wire(app, LEGACY) as other:
        await one.ask("logging/setLevel", {"level": "emergency"})
        await one.call("talk")
        await other.call("talk")
        assert levels(await one.silence()) == ["emergency"]
        assert levels(await other.silence()) == list(LEVELS)


@pytest.mark.parametrize("version", ERAS)
async def test_plain_functions_log_too_and_in_order(version: str) -> None:
    more = {f"{PREFIX}logLevel": "debug"} if version == MODERN else {}
    async with wire(chatty(), version) as client:
        await client.call("talk_plainly", **more)
        assert levels(await client.silence()) == ["debug", "info", "warning", "error"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        ("text", "text"),
        (ValueError("no form"), "ValueError('no form')"),
        ("\ud800", "'\\ud800'"),
        (object, "<class 'object'>"),
    ],
    ids=repr,
)
async def test_whatever_is_logged_arrives_and_never_fails_the_call(data: Any, told: Any) -> None:
    app = Server("logging")

    @app.tool
    async def talk(ctx: Context) -> str:
        await ctx.info(data)
        return "done"

    async with wire(app, LEGACY) as client:
        assert "isError" not in (await client.call("talk"))["result"]
        (message,) = await client.silence()
        assert message["params"]["data"] == told
