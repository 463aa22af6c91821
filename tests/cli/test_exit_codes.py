"""The exit codes for a login that is missing or refused, and for an answer that does not come."""

import asyncio

import pytest

from mcpearl import Server
from mcpearl.auth import StaticTokens
from tests.cli.running import mcpearl

TOKEN = "good-token-0123456789"


def guarded() -> Server:
    app = Server("guarded")

    @app.tool
    async def hang() -> None:
        await asyncio.Event().wait()

    return app


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["ping"], 5),
        (["ping", "--auth", "bad-token-0123456789"], 5),
        (["ping", "--auth", TOKEN], 0),
        (["call", "hang", "--auth", TOKEN, "--timeout", "0.5"], 6),
    ],
    ids=["no login", "wrong login", "login", "no answer"],
)
async def test_a_login_and_a_timeout_have_codes_of_their_own(words: list[str], code: int) -> None:
    command, *rest = words
    async with guarded().serving("http", port=0, auth=StaticTokens({TOKEN: "ann"})) as url:
        done = await asyncio.to_thread(mcpearl, command, url, *rest)
    assert done.code == code, done.err
    assert TOKEN not in done.err and bool(done.err) == bool(code)
