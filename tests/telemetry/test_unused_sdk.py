"""An SDK of OpenTelemetry that is loaded and not set up: calls do next to no work for it."""

import json
import os
import subprocess
import sys
from typing import Any

COUNTED = """
import asyncio, json, sys
LOADED, TRACED = sys.argv[1] == "loaded", sys.argv[2] if len(sys.argv) > 2 else ""
if LOADED:
    import opentelemetry.sdk.trace
from mcpearl import Client, Context, Server

app = Server("plain")
metas = []

@app.tool
async def look(ctx: Context):
    metas.append(dict(ctx.params.meta or {}))
    return "seen"

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

def counting(which):
    counts = {"all": 0, "sdk": 0}
    def count(frame, event, argument):
        if event == "call":
            counts["all"] += 1
            counts["sdk"] += "opentelemetry" in frame.f_code.co_filename
    return counts, count

async def calls(client, number):
    for _ in range(number):
        await client.call_tool("add", {"a": 1, "b": 2})

async def main():
    found = {}
    for side, options in (("server", {"telemetry": False}), ("both", {})):
        async with Client(app, **options) as client:
            await calls(client, 100)
            counts, count = counting(side)
            sys.setprofile(count)
            await calls(client, 480)
            sys.setprofile(None)
            found[side] = {name: number / 480 for name, number in counts.items()}
            await client.call_tool("look")
    print(json.dumps({"counts": found, "metas": metas}))

asyncio.run(main())
"""

SET_LATER = """
import asyncio, json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from mcpearl import Client, Context, Server

app, other = Server("first"), Server("second")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
seen = []

@other.tool
async def inside(ctx: Context) -> str:
    seen.append((ctx.params.meta or {}).get("traceparent"))
    return "done"

@app.tool
async def outside() -> str:
    async with Client(other) as client:
        return (await client.call_tool("inside")).text

async def main():
    exporter = InMemorySpanExporter()
    async with Client(app, telemetry=False) as client:
        await client.call_tool("outside")
        await client.call_tool("outside", meta={"traceparent": PARENT})
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        for _ in range(20):
            await client.call_tool("outside")
    names = [span.name for span in exporter.get_finished_spans()]
    print(json.dumps({"seen": seen, "calls": names.count("tools/call outside")}))

asyncio.run(main())
"""


def run(script: str, *arguments: str) -> Any:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_sdk_that_is_not_set_up_costs_calls_next_to_nothing() -> None:
    """Counted in calls of Python functions: a few more, of the seventy or so of a call."""
    without, loaded = run(COUNTED, "plain"), run(COUNTED, "loaded")
    for side in ("server", "both"):
        before = without["counts"][side]
        assert before["sdk"] == 0
        assert before["all"] > 20
    assert loaded["counts"]["server"]["sdk"] < 0.25
    assert loaded["counts"]["server"]["all"] - without["counts"]["server"]["all"] < 5
    assert loaded["counts"]["both"]["all"] - without["counts"]["both"]["all"] < 25
    assert not any("traceparent" in meta for meta in loaded["metas"]), "there is no trace"


def test_a_provider_that_is_set_later_is_used() -> None:
    """Until then the trace of a caller passes through."""
    found = run(SET_LATER)
    first, second, *_ = found["seen"]
    assert first is None
    assert second == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert 4 <= found["calls"] <= 20
