"""The access log and the log of refused requests: what they say, and what never."""

import asyncio
import gc
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client
from mcpearl.auth import StaticTokens
from mcpearl.runtime.line_file import LineFile
from mcpearl.transports.http_server.access_log import FiledAccess
from mcpearl.transports.http_server.post import PostOutlet
from tests.transports.raw_http import Raw, message, modern
from tests.transports.suite_server import make_app
from tests.waiting import eventually

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


async def test_a_file_has_a_line_for_every_request(tmp_path: Path):
    log = tmp_path / "access.log"
    async with make_app().serving("http", port=0, access_log=log) as url:
        async with Client(url) as client:
            await client.call_tool("add", {"a": 41, "b": 1})
            await client.call_tool("add", {"a": 41, "b": 1})
        await eventually(lambda: log.exists() and "tools/call add" in log.read_text())
        log.rename(tmp_path / "old.log")
        raw = Raw(port_of(url))
        await raw.post(message("ping"), path="/secret?token=abc")
        await raw.post(message("ping"), path="/moved%0a")
    before, after = (tmp_path / "old.log").read_text(), log.read_text()
    shape = re.compile(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 127\.0\.0\.1 "
        r"(POST|GET|DELETE) /\S+ \d+ \d+ bytes \d+\.\d ms( .+)?"
    )
    lines = (before + after).splitlines()
    assert all(shape.fullmatch(line) for line in lines), lines
    assert sum(line.endswith("tools/call add") for line in lines) == 2
    assert "POST /secret 404" in after
    assert "POST /moved\\n 404" in after
    assert "abc" not in before + after


CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


async def test_a_line_in_a_file_has_the_ids_that_the_request_names(tmp_path: Path):
    log = tmp_path / "access.log"
    named: list[tuple[Any, dict[str, Any], str]] = [
        (7, {"traceparent": TRACE}, f"id=7 trace={'a' * 32}"),
        (int("9" * 4000), {}, f"id={'9' * 128}"),
        ("two\nlines", {}, r"id='two\nlines'"),
        ("b", {"traceparent": "x" * 100_000}, "id='b'"),
        ("c" * 1000, {"traceparent": [1]}, f"id='{'c' * 128}'"),
    ]
    async with make_app().serving("http", port=0, access_log=log) as url:
        raw = Raw(port_of(url))
        for id, more, _ in named:
            headers, body = modern("tools/call", CALL, id, **more)
            assert (await raw.post(body, headers)).status == 200
        session = await raw.initialize("2025-03-26")
        for id, more, _ in named:
            await session.ask("tools/call", {**CALL, "_meta": more}, id)
        calls = [message("tools/call", CALL, number) for number in (8, 9)]
        assert len((await session.post(calls)).json) == 2  # a batch has no id of its own
    lines = [line.partition(" ms")[2].lstrip() for line in log.read_text().splitlines()]
    expected = [ids for _, _, ids in named]
    assert lines == [f"{ids} tools/call add" for ids in expected] + ["", "", *expected, ""]


@pytest.mark.parametrize("where", [False, True, "a file"])
async def test_requests_leave_nothing_for_the_collector(where: bool | str, tmp_path: Path):
    """A call refers to its request, and the log notes the call there: no such cycle may stay."""
    log = tmp_path / "access.log" if where == "a file" else where
    async with make_app().serving("http", port=0, access_log=log) as url:
        raw = Raw(port_of(url))
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                headers, body = modern("tools/call", CALL, number)
                assert (await raw.post(body, headers)).status == 200
            left = [each for each in gc.get_objects() if isinstance(each, PostOutlet)]
        finally:
            gc.enable()
    assert len(left) <= 1  # the last one may still be in use


async def test_a_file_under_asgi_too(tmp_path: Path):
    log = tmp_path / "access.log"
    endpoint = make_app().asgi(access_log=str(log))
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "GET", "path": "/nothing", "headers": [(b"host", b"x")]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async with endpoint.running():
        await endpoint(scope, receive, send)
    head, body = sent
    assert f"- GET /nothing {head['status']} {len(body['body'])} bytes" in log.read_text()


async def test_an_application_that_is_mounted_twice_has_both_paths(tmp_path: Path):
    """The heads of its requests are the same: where it is mounted is no part of them."""
    log = tmp_path / "access.log"
    endpoint = make_app().asgi(access_log=str(log))
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"x")]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None: ...

    async with endpoint.running():
        for root in ("/one", "/two", ""):
            here = {"path": f"{root}/nothing", "root_path": root}
            await endpoint(scope | here, receive, send)
    paths = [line.split()[3] for line in log.read_text().splitlines()]
    assert paths == ["/one/nothing", "/two/nothing", "/nothing"]


async def test_only_heads_that_come_again_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Heads that a client makes up, which may be large, are not kept for the log."""
    made: list[FiledAccess] = []

    class Watched(FiledAccess):
        def __init__(self, *details: Any) -> None:
            super().__init__(*details)
            made.append(self)

    monkeypatch.setattr("mcpearl.transports.http_server.access_log.FiledAccess", Watched)
    log = tmp_path / "access.log"
    async with make_app().serving("http", port=0, access_log=log) as url:
        raw = Raw(port_of(url))
        for number in range(3):
            large = {"X-Large": f"{number}" * 5_000}
            assert (await raw.post(message("ping"), large, path="/nothing")).status == 404
        (access,) = made
        assert not access._heads
        async with Client(url) as client:
            await client.call_tool("add", {"a": 41, "b": 1})
            await client.call_tool("add", {"a": 41, "b": 1})
        assert ("POST /mcp", " tools/call add") in access._heads.values()
    assert log.read_text().count("POST /nothing 404") == 3


async def test_a_disk_that_cannot_be_written_costs_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "missing"
    log = folder / "access.log"
    async with make_app().serving("http", port=0, access_log=log) as url, Client(url) as client:
        await client.call_tool("add", {"a": 41, "b": 1})
        await eventually(lambda: "cannot be written" in caplog.text)
        folder.mkdir()
        assert (await client.call_tool("add", {"a": 41, "b": 1})).text == "42"
    assert re.match(r"\(\d+ lines are missing here\)\n", log.read_text())


async def test_a_disk_that_hangs_loses_lines_and_no_more(tmp_path: Path):
    """A pipe that is not read blocks the thread that writes; what may wait is bounded."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = LineFile(pipe, limit=2)
    line = "x" * 99_999 + "\n"  # more than a pipe holds
    for _ in range(5):
        file.put(line)
        file.put(line)
        file._hand_over()
    await asyncio.to_thread(os.set_blocking, reader, True)
    got = b""
    while b"missing" not in got:
        file.put("last\n")
        file._hand_over()
        got += await asyncio.to_thread(os.read, reader, 1 << 20)
    file.close()
    os.close(reader)
    assert got.count(line.encode()) < 10
    assert re.search(rb"\(\d+ lines are missing here\)\n", got)


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


UNREAD = {
    b"GARBAGE\r\n\r\n": "with 400: This is not HTTP.",
    b"GET / HTTP/1.1\r\n\r\n": "with 400: The Host header is missing.",
    b"GET / HTTP/1.1\r\n"
    + b"x: %b\r\n" % (b"a" * 9_000) * 2
    + b"\r\n": "with 431: A header is repeated",
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n": "with 501: ",
}


async def test_what_is_refused_before_it_is_a_request_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mcpearl")
    app = make_app()
    async with app.serving("http", port=0) as url:
        before = app.core.counters()
        for data in UNREAD:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
            writer.write(data)
            assert (await reader.read()).startswith(b"HTTP/1.1 ")
            writer.close()
        after = app.core.counters()
    lines = [record.message for record in caplog.records if record.name == "mcpearl.http"]
    for said in UNREAD.values():
        assert sum(f"refused what 127.0.0.1 sent {said}" in line for line in lines) == 1
    for status, count in ((400, 2), (431, 1), (501, 1)):
        name = f"refused_{status}"
        assert after[name] - before[name] == count


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
