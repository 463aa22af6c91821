"""What a server on stdio loads until it has answered `initialize`: little, so that it starts fast."""

import subprocess
import sys

import pytest

from mcpearl.server.running import AFTER_START

PROGRAM = """
import atexit, sys
from mcpearl import Server

app = Server("quick")

@app.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

atexit.register(lambda: print(*sys.modules, file=sys.stderr))
app.run()
"""

INITIALIZE = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}\n'
)

# Modules of the package that a start may load. Lower it when one less is loaded.
MOST = 92

NOT_NEEDED = (
    "mcpearl.auth",
    "mcpearl.client",
    "mcpearl.console",
    "mcpearl.gateway",
    "mcpearl.host",
    "mcpearl.net.addresses",
    "mcpearl.net.fairness",
    "mcpearl.net.systemd",
    "mcpearl.receipts",
    "mcpearl.runtime.bounded",
    "mcpearl.runtime.eager",
    "mcpearl.runtime.isolation",
    "mcpearl.runtime.names",
    "mcpearl.runtime.observer",
    "mcpearl.runtime.observers",
    "mcpearl.runtime.rate",
    "mcpearl.runtime.timers",
    "mcpearl.schema",
    "mcpearl.server.asking",
    "mcpearl.server.calls",
    "mcpearl.server.composition",
    "mcpearl.server.context",
    "mcpearl.server.failures",
    "mcpearl.server.listen_streams",
    "mcpearl.server.peer",
    "mcpearl.server.registry.dependencies",
    "mcpearl.server.registry.encoded",
    "mcpearl.server.registry.forms",
    "mcpearl.server.registry.functions",
    "mcpearl.server.registry.prompts",
    "mcpearl.server.registry.resources",
    "mcpearl.server.registry.results",
    "mcpearl.server.registry.returns",
    "mcpearl.server.registry.tools",
    "mcpearl.server.serving.dump",
    "mcpearl.server.serving.wires",
    "mcpearl.server.session",
    "mcpearl.server.solo_connection",
    "mcpearl.server.tasks",
    "mcpearl.stores.bus",
    "mcpearl.stores.errors",
    "mcpearl.stores.sessions",
    "mcpearl.stores.shared",
    "mcpearl.stores.state",
    "mcpearl.transports.http_server",
    "mcpearl.transports.mirrored_headers",
    "mcpearl.transports.null",
    "mcpearl.transports.stdio_files",
    "mcpearl.types.completion",
    "mcpearl.types.content",
    "mcpearl.types.discover",
    "mcpearl.types.elicitation",
    "mcpearl.types.envelopes",
    "mcpearl.types.error_data",
    "mcpearl.types.input_required",
    "mcpearl.types.logging",
    "mcpearl.types.pages",
    "mcpearl.types.progress",
    "mcpearl.types.prompts",
    "mcpearl.types.resources",
    "mcpearl.types.roots",
    "mcpearl.types.sampling",
    "mcpearl.types.subscriptions",
    "mcpearl.types.tasks",
    "mcpearl.types.tool_calls",
    "mcpearl.types.tools",
    "bisect",
    "copy",
    "dataclasses",
    "importlib.metadata",
    "multiprocessing",
    "pydantic",
    "tempfile",
    "urllib.request",
)


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a server with one tool has loaded when it ends after `initialize`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=INITIALIZE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"protocolVersion":"2025-11-25"' in done.stdout
    return set(done.stderr.splitlines()[-1].split())


def test_parts_that_it_does_not_use_are_not_loaded(loaded: set[str]) -> None:
    found = [
        name
        for name in sorted(loaded)
        if any(name == each or name.startswith(f"{each}.") for each in NOT_NEEDED)
    ]
    assert found == []


def test_what_is_not_needed_exists() -> None:
    from importlib.util import find_spec

    assert [name for name in NOT_NEEDED if find_spec(name) is None] == []


def test_what_is_loaded_after_a_start_exists_and_is_not_loaded_by_it(loaded: set[str]) -> None:
    from importlib.util import find_spec

    later = {f"mcpearl.{name}" for name in AFTER_START}
    assert [name for name in sorted(later) if find_spec(name) is None] == []
    assert later & loaded == set()


def test_a_start_loads_no_more_modules_than_it_did(loaded: set[str]) -> None:
    ours = sorted(name for name in loaded if name.split(".")[0] == "mcpearl")
    assert len(ours) <= MOST, ours
