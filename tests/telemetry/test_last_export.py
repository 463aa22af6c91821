"""What is left to export when a process ends is sent. A collector that is away does not hold it up."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from tests.telemetry.collector import collecting

PATIENCE = 50  # seconds, beside other tests; the SDK itself waits for a minute and more
CLIENT = """
import asyncio
from mcpearl import Client, Server

app = Server("ended", telemetry=False)

@app.tool
async def work() -> str:
    return "done"

async def main():
    async with Client(app, telemetry=True) as client:
        await client.call_tool("work")

asyncio.run(main())
print("called", flush=True)
"""
SERVER = CLIENT.replace("telemetry=False", "telemetry=True")
OWN = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider

class OwnProvider(MeterProvider):
    def shutdown(self, timeout_millis=30_000, **more):
        print("shut down by the SDK")

metrics.set_meter_provider(OwnProvider())
"""


async def run(program: str, url: str) -> str:
    """Run a program and return what it writes at its end, for which it has some seconds."""
    settings = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "OTEL_METRIC_EXPORT_INTERVAL": "600000",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=settings, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"called\n"
        async with asyncio.timeout(PATIENCE):
            written = await process.stdout.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return written.decode()


@pytest.mark.parametrize("program", [CLIENT, SERVER], ids=["client", "server"])
async def test_a_process_ends_while_its_collector_is_away(program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await run(program, f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("program", [CLIENT, SERVER], ids=["client", "server"])
async def test_what_is_left_is_exported_at_the_end(program: str) -> None:
    with collecting() as collector:
        await run(program, collector.url)
        assert "tools/call work" in {span["name"] for span in collector.spans}


async def test_providers_of_the_application_are_left_to_it() -> None:
    with collecting() as collector:
        assert await run(OWN + CLIENT, collector.url) == "shut down by the SDK\n"
