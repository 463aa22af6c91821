"""The exporter in the tree of a server shows what the SDK exports, and what it could not export."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

from tests.ports import free_port
from tests.telemetry.collector import collecting

PROGRAM = """
import asyncio, json, sys
from mcpearl import Client, Server

app = Server("shown", telemetry=True)

@app.tool
async def work() -> str:
    return "done"

def shown():
    node = app.tree().find("exporter")
    below = {each.name: [each.state, each.restarts, each.last_error] for each in node.children}
    return [node.state, node.restarts, below]

async def main():
    async with Client(app, telemetry=False) as client:
        await client.call_tool("work")
        seen = [shown()]
        %s
        print(json.dumps(seen))

asyncio.run(main())
"""
FAILS = """
        for _ in range(600):
            if all(part[1] for part in shown()[2].values()):
                break
            await asyncio.sleep(0.05)
        seen.append(shown())
"""
ENDS = """
        from opentelemetry import trace
        await asyncio.to_thread(trace.get_tracer_provider().shutdown)
        seen.append(shown())
"""
KILLED = """
        assert app.parts.kill("exporter")
        while shown()[:2] != ["running", 1]:
            await asyncio.sleep(0.01)
        seen.append(shown())
"""


async def shown(what: str, url: str | None) -> list[Any]:
    settings = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
    }
    if url is not None:
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM % what],
        env=settings,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    found: list[Any] = json.loads(ended.stdout)
    return found


async def test_exports_that_fail_are_shown() -> None:
    _, after = await shown(FAILS, f"http://127.0.0.1:{free_port()}")
    assert after[0] == "running"
    for kind in ("spans", "metrics"):
        state, failures, error = after[2][kind]
        assert state == "running"
        assert failures >= 1
        assert kind in error


async def test_an_exporter_that_was_shut_down_is_shown_as_failed() -> None:
    with collecting() as collector:
        before, after = await shown(ENDS, collector.url)
    assert before == [
        "running",
        0,
        {"spans": ["running", 0, None], "metrics": ["running", 0, None]},
    ]
    assert after[2]["spans"][::2] == ["failed", "the thread that exports spans has ended"]
    assert after[2]["metrics"] == ["running", 0, None]


async def test_it_is_restarted_as_other_parts_are() -> None:
    with collecting() as collector:
        _, after = await shown(KILLED, collector.url)
    assert after == ["running", 1, {"spans": ["running", 0, None], "metrics": ["running", 0, None]}]
    assert [span["name"] for span in collector.spans].count("tools/call work") == 1


async def test_without_an_sdk_nothing_is_exported() -> None:
    (before,) = await shown("", None)
    assert before == ["running", 0, {}]
