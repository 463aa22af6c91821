"""Exit codes: logins, answers that do not come, what is not a server, wrong command lines."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mcpearl import McpError, Server
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


def test_a_server_that_never_answers_is_given_up_after_the_timeout() -> None:
    done = mcpearl("list", "sleep 90", "--timeout", "1")
    assert (done.code, "was not answered within 1 s" in done.err) == (6, True), done.err


@pytest.fixture
def website() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_web_page_is_not_a_server(website: str) -> None:
    done = mcpearl("list", website)
    assert done.code == 3
    assert "is the path right? That of MCP servers is often /mcp" in done.err
    first, *_ = done.err.splitlines()
    assert "<title>Error response</title>" in first  # what it sent, on one line
    assert "is the path right?" in mcpearl("doctor", website).out


async def test_an_error_of_a_server_that_names_a_status_is_an_error_of_the_server() -> None:
    app = Server("upstream")

    @app.prompt
    async def brief() -> str:
        raise McpError(-32000, "the upstream is busy", {"status": 503})

    async with app.serving("http", port=0) as url:
        done = await asyncio.to_thread(mcpearl, "prompt", url, "brief")
    assert done.code == 1
    assert "the upstream is busy" in done.err and "is the path right?" not in done.err


@pytest.mark.parametrize(
    "line",
    [
        ["lst"],
        ["ping"],
        ["ping", "x", "--bad"],
        ["list", "x", "tolls"],
        ["migrate", "no-such-path"],
    ],
)
def test_a_wrong_command_line_is_an_object_too(line: list[str]) -> None:
    done = mcpearl(*line, "--json")
    assert done.code == 2
    assert json.loads(done.out)["error"]["code"] == 2
