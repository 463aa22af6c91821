"""The access log and the log of refused requests: what they say, and what never."""

import logging
import re

import pytest

from mcpearl import Client
from mcpearl.auth import StaticTokens
from tests.transports.raw_http import Raw, message
from tests.transports.suite_server import make_app

TOKEN = "a-secret-token-of-a-client"


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


async def test_every_request_is_one_record(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "mcpearl")
    async with make_app().serving("http", port=0, access_log=True) as url:
        for protocol in ("2026-07-28", "2025-11-25"):
            async with Client(url, protocol=protocol) as client:
                await client.call_tool("add", {"a": 41, "b": 1})
        raw = Raw(port_of(url))
        await raw.post(message("ping"), {"Mcp-Name": "x"}, path="/secret?token=abc")
    lines = [record.message for record in caplog.records if record.name == "mcpearl.access"]
    shape = re.compile(r"127\.0\.0\.1 (POST|GET|DELETE) /\S+ \d+ \d+ bytes \d+\.\d ms( .+)?")
    assert all(shape.fullmatch(line) for line in lines), lines
    assert any("POST /mcp 200" in line and line.endswith("tools/call add") for line in lines)
    assert any("POST /mcp 202 0 bytes" in line for line in lines)
    assert any("POST /secret 404" in line for line in lines)
    assert "abc" not in "".join(lines)


async def test_it_is_off_by_default(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "mcpearl")
    app = make_app()
    async with app.serving("http", port=0) as url, Client(url) as client:
        await client.ping()
    assert not [record for record in caplog.records if record.name == "mcpearl.access"]
    endpoint = app.asgi()
    assert endpoint.entrance is endpoint


async def test_what_is_refused_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "mcpearl")
    async with make_app().serving("http", port=0) as url:
        raw = Raw(port_of(url))
        await raw.post(message("ping"), {"Host": "evil.example"})
        await raw.post(message("ping"), {"Origin": "https://evil.example"})
        await raw.post(message("ping"), path="/nowhere\x07%0a")
        for _ in range(30):
            await raw.post(message("ping"), path="/flood")
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any("with 421: Host 'evil.example' is not served here" in line for line in warned)
    assert any("with 403: Origin 'https://evil.example'" in line for line in warned)
    others = [record.message for record in caplog.records if record.name == "mcpearl.http"]
    assert any("with 404: There is nothing at" in line for line in others)
    assert not any("\x07" in line or "\n" in line for line in others)
    assert sum("/flood" in line for line in others) < 30


async def test_no_log_has_a_token_or_an_argument(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    app = make_app()
    options = {"auth": StaticTokens({TOKEN: "ada"}), "access_log": True}
    async with app.serving("http", port=0, **options) as url:
        for protocol in ("2026-07-28", "2025-11-25"):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with Client(url, protocol=protocol, headers=headers) as client:
                await client.call_tool("add", {"a": 77_777_777, "b": 1})
        raw = Raw(port_of(url))
        await raw.post(message("ping"), {"Authorization": "Bearer another-secret-token"})
    assert "mcpearl.access" in {record.name for record in caplog.records}
    for secret in (TOKEN, "another-secret-token", "77777777"):
        assert secret not in caplog.text
