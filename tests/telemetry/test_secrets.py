"""No output of a server has a secret: logs, access log, metrics, spans, receipts, dumps."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcpearl import Client, McpError
from tests.ports import free_port
from tests.telemetry.collector import collecting
from tests.transports.raw_http import Raw, message
from tests.waiting import eventually

SERVER = """
import asyncio, logging, sys
from typing import Literal
from mcpearl import Server, ToolError
from mcpearl.auth import StaticTokens

logging.getLogger("mcpearl").setLevel(logging.DEBUG)
app = Server(
    "secretive", log="json", receipts=sys.argv[2], auth=StaticTokens({"s3cret-token-of-ada": "ada"})
)

@app.tool
async def work(password: str) -> str:
    "Work."
    logging.getLogger("mcpearl.application").info("working")
    return "s3cret-result"

@app.tool
async def fail(password: str) -> str:
    "Fail."
    raise ToolError("s3cret-reason")

@app.tool
async def stuck(password: str) -> str:
    "Wait."
    await asyncio.Event().wait()

@app.tool
async def unfit(password: str) -> int:
    "Return something else."
    return password

@app.tool(output_schema={"type": "object", "additionalProperties": False})
async def undeclared(password: str):
    "Return something else."
    return {password: password}

@app.resource("note://{name}")
async def note(name: str) -> str:
    "A note."
    return "s3cret-note"

@app.tool
async def pick(color: Literal["red", "blue"]) -> str:
    "Pick."
    return color

@app.resource("broken://{name}")
async def broken(name: str) -> str:
    "Fail."
    raise RuntimeError("nothing is here")

@app.prompt
async def ask(topic: Literal["weather"]) -> str:
    "Ask."
    return "s3cret-prompt"

app.run("http", port=int(sys.argv[1]), metrics="/metrics", health="/health", access_log=sys.argv[3])
"""
TOKEN = "s3cret-token-of-ada"


async def test_no_output_has_a_secret(tmp_path: Path) -> None:
    script, port = tmp_path / "server.py", free_port()
    script.write_text(SERVER)
    stderr, access, receipts = (tmp_path / name for name in ("stderr", "access", "receipts"))
    with collecting() as collector, stderr.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), str(port), str(receipts), str(access)],
            stderr=output,
            stdout=output,
            env={
                **os.environ,
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_BSP_SCHEDULE_DELAY": "50",
                "MCPEARL_LOG_LEVEL": "DEBUG",
            },
        )
        raw = Raw(port)
        try:
            page = await talk(process, raw, port, stderr)
        finally:
            process.terminate()
            process.wait(30)
        spans = json.dumps([collector.spans, repr(collector.metrics)])
    records = "".join(path.read_text() for path in receipts.glob("*.log"))
    outputs = {
        "log": stderr.read_text(),
        "access log": access.read_text(),
        "metrics": page,
        "spans": spans,
        "receipts": records,
    }
    for uri in ("elsewhere://s3cret-uri", "broken://s3cret-uri"):
        assert uri in records, "a resource is named as a tool is"
        outputs["receipts"] = outputs["receipts"].replace(uri, "")
    for name, text in outputs.items():
        assert "work" in text, f"{name} tells of the call"
        assert "s3cret" not in text, f"{name}: {text[max(0, text.find('s3cret') - 200) :][:400]}"
    check_ids(outputs["log"], spans, records)


async def talk(process: "subprocess.Popen[bytes]", raw: Raw, port: int, stderr: Path) -> str:
    """Send secrets in every place that a request has; return the page of metrics."""

    async def is_up() -> bool:
        try:
            return (await raw.request("GET", {}, path="/health/live")).status == 200
        except OSError:
            return False

    await eventually(is_up)
    url, headers = f"http://127.0.0.1:{port}/mcp", {"Authorization": f"Bearer {TOKEN}"}
    for protocol in ("2026-07-28", "2025-11-25"):
        client = Client(url, headers=headers, protocol=protocol, telemetry=False)
        async with client:
            parent = f"00-{'c' * 32}-{'d' * 16}-01"
            meta = {"traceparent": parent, "note": "s3cret-meta"}
            await client.call_tool("work", {"password": "s3cret-argument"}, meta=meta)
            await client.call_tool("fail", {"password": "s3cret-argument"})
            await client.call_tool("work", {"password": ["s3cret-argument"]})
            for unfit in ("unfit", "undeclared"):
                answer = await client.call_tool(unfit, {"password": "s3cret-argument"})
                assert "s3cret-argument" in answer.text, "the caller is told"
            await client.read_resource("note://mine")
            await client.call_tool("pick", {"color": "s3cret-argument"})
            for refused in (
                client.call_tool("made-up", {"password": "s3cret-argument"}),
                client.call_tool("work\n", {"password": "s3cret-argument"}),
                client.read_resource("elsewhere://s3cret-uri"),
                client.read_resource("broken://s3cret-uri"),
                client.get_prompt("ask", {"topic": "s3cret-argument"}),
                client.get_prompt("ask", {"s3cret-argument": "weather"}),
            ):
                with pytest.raises(McpError):
                    await refused
    await raw.post(message("ping"), {"Authorization": "Bearer s3cret-wrong-token-of-eve"})
    await raw.post(message("ping"), {**headers, "X-Key": "s3cret"}, path="/mcp?key=s3cret")
    await raw.post(b'{"s3cret": ', headers)
    await raw.request("GET", {"Cookie": "s3cret"}, path="/nothing?token=s3cret")
    async with Client(url, headers=headers, telemetry=False) as client:
        call = asyncio.ensure_future(client.call_tool("stuck", {"password": "s3cret-argument"}))

        def is_dumped() -> bool:
            process.send_signal(signal.SIGUSR2)
            return "1 calls in flight" in stderr.read_text()

        await eventually(is_dumped)
        call.cancel()
    return (await raw.request("GET", headers, path="/metrics")).body.decode()


def check_ids(log: str, spans: str, records: str) -> None:
    """The ids of trace and request join logs, spans and receipts."""
    working = [json.loads(line) for line in log.splitlines() if '"working"' in line]
    assert [line["trace_id"] for line in working] == ["c" * 32] * 2
    begun = [
        json.loads(line.partition(" ")[2]) for line in records.splitlines() if '"begin"' in line
    ]
    traced = [record for record in begun if record.get("trace") == "c" * 32]
    assert [str(record["request"]) for record in traced] == [line["request_id"] for line in working]
    assert "c" * 32 in spans
