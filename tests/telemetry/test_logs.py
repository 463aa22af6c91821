"""Logs: as JSON with the ids of calls, and what a signal has a server write."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpearl import Client, Server
from mcpearl.runtime import served
from mcpearl.telemetry.logs import AddIds, JsonFormatter
from tests.ports import free_port
from tests.server.wire import ERAS, wire
from tests.transports.raw_http import modern, serving
from tests.waiting import eventually

SERVER = """
import asyncio, logging, sys
from mcpearl import Server

app = Server("dumped", log=sys.argv[2], telemetry=False)

@app.tool
async def stuck(secret: str) -> None:
    "Wait for ever."
    await asyncio.Event().wait()

@app.tool
def warn(configure: bool) -> None:
    "Log a warning of the application."
    if configure:
        logging.basicConfig(format="configured: %(message)s")
    logging.getLogger("the application").warning("low on sugar")

app.run("http", port=int(sys.argv[1]), workers=int(sys.argv[3]))
"""


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_a_record_is_one_line_of_json() -> None:
    formatter = JsonFormatter()
    try:
        raise ValueError("no\nnumber")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x",
            logging.ERROR,
            "f.py",
            1,
            "it %s",
            ("failed",),
            sys.exc_info(),
            extra={"a": object()},
        )
    line = formatter.format(record)
    found = json.loads(line)
    assert "\n" not in line
    assert (found["level"], found["logger"], found["message"]) == ("ERROR", "x", "it failed")
    assert found["error"].endswith("ValueError: no\nnumber")
    assert found["time"].endswith("Z")
    assert found["a"].startswith("<object")


@contextmanager
def json_lines(logger: logging.Logger) -> Iterator[list[str]]:
    """Keep what a logger is told as lines of JSON, with the ids of calls."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Lines()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(AddIds())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


async def test_records_of_a_handler_have_the_ids_of_its_call() -> None:
    logger = logging.getLogger("an application")
    app = Server("logged", log="json", telemetry=False)

    @app.tool
    def work(secret: str) -> str:
        logger.warning("working")
        return secret

    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    with json_lines(logger) as lines:
        async with Client(app, telemetry=False) as client:
            await client.call_tool("work", {"secret": "s3cret"}, meta={"traceparent": parent})
        logger.warning("outside")
    inside, outside = map(json.loads, lines)
    assert inside["tool"] == "work"
    assert inside["method"] == "tools/call"
    assert inside["request_id"]
    assert inside["trace_id"] == "a" * 32
    assert "request_id" not in outside
    assert "s3cret" not in "".join(lines)


@pytest.fixture
def access_lines() -> Iterator[list[str]]:
    """Return the list of what is logged of requests, as JSON."""
    with json_lines(logging.getLogger("mcpearl.access")) as lines:
        yield lines


@pytest.mark.parametrize("version", ERAS)
async def test_a_line_of_the_access_log_has_the_ids_of_its_call(
    version: str, access_lines: list[str]
) -> None:
    app = Server("logged", log="json", telemetry=False)

    @app.tool
    async def quick() -> str:
        return "done"

    @app.tool
    async def waits() -> str:
        await asyncio.sleep(0)
        return "done"

    @app.tool
    def threaded() -> str:
        return "done"

    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    tools = ("quick", "waits", "threaded")
    async with (
        app.serving("http", port=0, access_log=True) as url,
        Client(url, telemetry=False, protocol=version) as client,
    ):
        for tool in tools:
            await client.call_tool(tool, {}, meta={"traceparent": parent})
    found = [json.loads(line) for line in access_lines]
    calls = [each for each in found if each.get("method") == "tools/call"]
    assert [each["tool"] for each in calls] == list(tools)
    assert {each["trace_id"] for each in calls} == {"a" * 32}
    assert len({each["request_id"] for each in calls}) == len(tools)


async def test_a_line_of_the_access_log_has_the_ids_of_the_span_of_its_call(
    access_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    app = Server("logged", log="json", telemetry=True)

    @app.tool
    async def quick() -> str:
        return "done"

    @app.tool
    async def waits() -> str:
        await asyncio.sleep(0)
        return "done"

    async with (
        app.serving("http", port=0, access_log=True) as url,
        Client(url, telemetry=False) as client,
    ):
        for tool in ("quick", "waits"):
            await client.call_tool(tool, {})
    provider.shutdown()
    contexts = {each.name: each.context for each in exporter.get_finished_spans()}
    found = [json.loads(line) for line in access_lines]
    calls = {each["tool"]: each for each in found if each.get("method") == "tools/call"}
    assert calls.keys() == {"quick", "waits"}
    for tool, line in calls.items():
        context = contexts[f"tools/call {tool}"]
        assert line["span_id"] == f"{context.span_id:016x}"
        assert line["trace_id"] == f"{context.trace_id:032x}"


@pytest.mark.parametrize("version", ERAS)
async def test_calls_that_a_handler_makes_are_not_those_of_the_request(
    version: str, access_lines: list[str]
) -> None:
    inner = Server("inner", log="json", telemetry=False)
    outer = Server("outer", log="json", telemetry=False)
    kept: list[object] = []

    @inner.tool
    async def deep() -> str:
        return "done"

    @outer.tool
    async def shallow() -> str:
        async with Client(inner, telemetry=False) as client:
            for _ in range(3):
                await client.call_tool("deep", {})
        kept.append(served.contexts.get())
        return "done"

    async with (
        outer.serving("http", port=0, access_log=True) as url,
        Client(url, telemetry=False, protocol=version) as client,
    ):
        await client.call_tool("shallow", {})
    found = [json.loads(line) for line in access_lines]
    (call,) = [each for each in found if each.get("method") == "tools/call"]
    assert call["tool"] == "shallow"
    assert kept == [None], "what a handler starts must not keep the contexts of its calls"


@pytest.mark.parametrize("version", ERAS)
async def test_a_refused_request_is_logged_with_its_reason(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcpearl.server")
    async with wire(Server("x", telemetry=False), version) as client:
        await client.ask("no/such\nmethod", {"secret": "s3cret"})
        client.raw(b"{not json")
        await client.ask("ping" if version == ERAS[0] else "server/discover")
    refused = [text for text in caplog.messages if "refused" in text]
    assert refused[0].startswith(
        "refused a request over memory: Method not found: no/such\\nmethod"
    )
    assert "-32700" in refused[1]
    assert "s3cret" not in caplog.text


async def test_a_refused_request_over_http_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mcpearl.server")
    async with serving(Server("x", telemetry=False)) as client:
        headers, body = modern("no/such", {})
        assert (await client.post(body, headers)).status == 404
    assert "refused a request over http: Method not found: no/such [-32601]" in caplog.messages


async def test_headers_that_differ_from_the_message_are_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mcpearl.http")
    app = Server("x", telemetry=False)

    @app.tool
    async def work() -> str:
        return "done"

    async with serving(app, metrics="/metrics") as client:
        for method, header in (("tools/call", "Mcp-Name"), ("tools/list", "Mcp-Method")):
            headers, body = modern(method, {"name": "work"} if method == "tools/call" else {})
            assert (await client.post(body, {**headers, header: "s3cret"})).status == 400
        page = (await client.request("GET", {}, path="/metrics")).body
    told = [text for text in caplog.messages if text.startswith("refused")]
    assert [text.rpartition(": ")[2] for text in told] == ["Mcp-Name", "Mcp-Method"]
    assert "s3cret" not in caplog.text
    assert b'mcpearl_http_refused_total{status="400"} 2' in page


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'text' or 'json'"):
        Server("x", log="xml")  # type: ignore[arg-type]


@contextmanager
def running(tmp_path: Path, form: str, workers: int) -> Iterator[tuple[int, Path, int]]:
    """Run the server; return its port, the file that has its stderr, and the id of its process."""
    script, log, port = tmp_path / "server.py", tmp_path / "log", free_port()
    script.write_text(SERVER)
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(script), str(port), form, str(workers)], stderr=stderr
        )
    try:
        yield port, log, process.pid
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("form", ["text", "json"])
async def test_warnings_of_the_application_look_as_those_of_the_server(
    form: str, tmp_path: Path
) -> None:
    """Until it configures logging: from then on its own configuration counts."""
    with running(tmp_path, form, 1) as (port, log, _):
        await eventually(lambda: is_open(port))
        async with Client(f"http://127.0.0.1:{port}/mcp", telemetry=False) as client:
            await client.call_tool("warn", {"configure": False})
            (line,) = [each for each in log.read_text().splitlines() if "sugar" in each]
            if form == "json":
                record = json.loads(line)
                assert record["logger"] == "the application"
                assert (record["method"], record["tool"]) == ("tools/call", "warn")
            else:
                assert line.endswith(" WARNING the application: low on sugar")
            await client.call_tool("warn", {"configure": True})
            assert log.read_text().splitlines()[-1] == "configured: low on sugar"


@pytest.mark.parametrize(("form", "workers"), [("text", 1), ("json", 2)])
async def test_a_signal_has_a_server_write_what_it_does(
    form: str, workers: int, tmp_path: Path
) -> None:
    with running(tmp_path, form, workers) as (port, log, pid):
        await eventually(lambda: is_open(port))
        async with Client(f"http://127.0.0.1:{port}/mcp", telemetry=False) as client:
            call = asyncio.ensure_future(client.call_tool("stuck", {"secret": "s3cret"}))

            def written() -> bool:
                os.kill(pid, signal.SIGUSR2)
                return "1 calls in flight" in log.read_text()

            def told_by(what: str) -> set[str]:
                """The processes that wrote this, which workers do at the same time."""
                return set(re.findall(rf"{what}.{{0,20}}process (\d+)", log.read_text()))

            await eventually(written)
            await eventually(lambda: "asyncio.Event().wait()" in log.read_text())
            for what in ("the parts of dumped", "calls in flight", "tasks"):
                await eventually(lambda what=what: len(told_by(what)) == workers)
            assert len(told_by("1 calls in flight")) == 1
            call.cancel()
            await asyncio.wait([call])  # else the server waits for it to end
    text = log.read_text()
    assert "tools/call" in text
    assert "stuck" in text
    assert "bus" in text
    assert "s3cret" not in text
