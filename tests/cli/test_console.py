"""The command `mcpearl console`: a page for a file, and one for all servers of a configuration."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.console.page import Page, open_page

SERVER = """
from mcpearl import Server
app = Server("{name}")
@app.tool
def hello() -> str:
    return "hello from {name}"
if __name__ == "__main__":
    app.run()
"""


@asynccontextmanager
async def console(folder: Path, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """Run the command, and yield what it says."""
    command = [sys.executable, "-m", "mcpearl", "console", "--no-open", "--json", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = b""
        while not said.strip().endswith(b"}"):
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, "the command has ended"
            said += line
        yield json.loads(said)
    finally:
        process.send_signal(signal.SIGINT)  # Ctrl-C, which is how it is closed
        assert await process.wait() == 0


@asynccontextmanager
async def page_of(said: dict[str, Any]) -> AsyncIterator[Page]:
    base, _, key = said["url"].partition("/#key=")
    async with open_page(base, key) as page:
        yield page


async def test_a_file_and_a_configuration(tmp_path: Path):
    entries = {}
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(SERVER.format(name=name))
        entries[name] = {"command": sys.executable, "args": [str(tmp_path / f"{name}.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    async with console(tmp_path, "mcp.json", "one.py") as said, page_of(said) as page:
        assert said["servers"] == ["one", "two", "one.py"]
        places = page.events[0]["places"]
        assert places["two"]["shown"] == "mcp.json:two" and places["one.py"]["shown"] == "one.py"
        await page.connect("two")
        result = await page.call("tools/call", {"name": "hello"})
        assert result["content"][0]["text"] == "hello from two"
        page.events = page.events[:1]
        await page.connect("one.py")
        result = await page.call("tools/call", {"name": "hello"})
        assert result["content"][0]["text"] == "hello from one"
