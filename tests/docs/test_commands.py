"""Every command of the documentation is run, or is listed here with the reason why not.

Commands are run as they are written, in a folder with a server, but for addresses and ports: those of
other machines become one that is served here, and ports become free ones.
"""

import json
import re
import shlex
import shutil
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS, ROOT, fits, of_kind, python_of
from tests.docs.sandbox import SERVER, Sandbox
from tests.ports import free_port
from tests.server.wire import meta

NOT_RUN = {
    "pip install .": "tests/docs/test_wheel.py installs into an empty environment",
    "python3 -m venv .venv": "tests/docs/test_wheel.py makes an empty environment",
    ". .venv/bin/activate": "tests/docs/test_wheel.py calls the programs of the environment",
    "make run": "it installs into the checkout; test_pages.py serves the same demo",
    "make test": "it runs these tests",
    "python tools/conformance.py": "`make conformance` runs it",
    "mcpearl bridge https://example.com/mcp --auth oauth": (
        "a person logs in; tests/cli/test_gateway.py bridges with a login"
    ),
    'mcpearl bridge "npx server-filesystem ." --http': "it needs a package of npm",
    'mcpearl call http://127.0.0.1:8000/mcp add text="buy milk" --auth token-of-ann-0123456789': (
        "test_pages.py::test_the_server_that_a_team_shares does"
    ),
}
ELSEWHERE = ("https://example.com/mcp", "https://mcp.example.com/mcp", "http://127.0.0.1:8000/mcp")
OLD = {
    "docs/migration/fastmcp-2.md": ("fastmcp", "FastMCP"),
    "docs/migration/fastmcp-3.md": ("fastmcp", "FastMCP"),
    "docs/migration/fastmcp-4.md": ("fastmcp", "FastMCP"),
    "docs/migration/mcp-1.md": ("mcp.server.fastmcp", "FastMCP"),
    "docs/migration/mcp-2.md": ("mcp.server", "MCPServer"),
}
OLD_SERVER = """
from {module} import {name}

mcp = {name}("old")


@mcp.tool()
def double(number: int) -> int:
    return 2 * number


if __name__ == "__main__":
    mcp.run()
"""


def lines_of(text: str) -> list[str]:
    """Return the commands of a block, without comments."""
    joined = text.replace("\\\n", "")
    stripped = (re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in stripped if line]


COMMANDS = {
    page: [line for block in of_kind("sh") if block.page == page for line in lines_of(block.text)]
    for page in dict.fromkeys(block.page for block in of_kind("sh"))
}
RECEIPTS = "docs/receipts.md"


def goes_on(line: str) -> bool:
    """Whether a command serves or watches until it is stopped."""
    words = shlex.split(line)
    if words[0] == "python":
        return "--port" in words
    if words[0] != "mcpearl":
        return False
    wires = {"--http", "--tcp", "--ws", "--unix"}
    return words[1] in ("dev", "console", "watch") or (
        words[1] in ("run", "gateway", "bridge") and bool(wires & set(words))
    )


def adapted(line: str, url: str, task: str) -> str:
    """Return a command with addresses and ports of this computer."""
    for place in ELSEWHERE:
        line = line.replace(place, url)
    line = re.sub(r"--port \d+", lambda _: f"--port {free_port()}", line)
    line = line.replace("/run/user/1000/weather.sock", "weather.sock")
    line = line.replace("-d 10 ", "-d 1 ")
    return line.replace("result ID", f"result {task}")


def server_of(page: str) -> str:
    """Return the server that a page is about."""
    named = re.findall(
        r"^In `server\.py`:\n\n```python\n(.*?)^```",
        (ROOT / page).read_text(),
        re.DOTALL | re.MULTILINE,
    )
    return named[0] if named else SERVER


@pytest.mark.timeout(300)  # some pages have many commands, and other tests run beside
@pytest.mark.parametrize("page", [page for page in COMMANDS if page != RECEIPTS])
def test_commands_of_a_page(page: str, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, server_of(page))
    cwd = ROOT if page.startswith("examples/") else tmp_path
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / "server.py", tmp_path / folder)
    if page in OLD:
        module, name = OLD[page]
        (tmp_path / "server.py").write_text(OLD_SERVER.format(module=module, name=name))
    lines = [line for line in COMMANDS[page] if line not in NOT_RUN]
    with ExitStack() as stack:
        is_called = any(place in line for line in lines for place in ELSEWHERE)
        url = stack.enter_context(sandbox.serving()) if is_called else ""
        if any("collector:4318" in line for line in lines):
            collector = stack.enter_context(receiving())
            lines = [line.replace("http://collector:4318", collector) for line in lines]
        written = ""
        for line in lines:
            command = adapted(line, url, written.strip().rpartition(" ")[2])
            if goes_on(command):
                with sandbox.running(command, cwd):
                    pass
            else:
                shell = "bash"
                if "completion zsh" in command:
                    if shutil.which("zsh"):
                        shell, command = "zsh", f"autoload -Uz compinit; compinit -D; {command}"
                    else:  # no other shell reads what it writes
                        command = "mcpearl completion zsh"
                written = sandbox.run(command, shell, cwd)
    if page in OLD:
        assert '"double"' in sandbox.run("mcpearl list server.py --json")


class receiving:
    """An address that takes what an exporter sends."""

    def __enter__(self) -> str:
        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_commands_of_receipts(tmp_path: Path) -> None:
    """The page's own log is verified, proved and disclosed; its placeholders are what came before."""
    sandbox = Sandbox(tmp_path)
    code = python_of(RECEIPTS) + "\nimport asyncio\nasyncio.run(main())\n"
    (tmp_path / "keeps.py").write_text(code)
    sandbox.run("python keeps.py")
    [screen] = [block.text for block in of_kind("console") if block.page == RECEIPTS]
    command, _, shown = screen.removeprefix("$ ").partition("\n")
    written = sandbox.run(command)
    assert fits(shown, written), written
    shutil.copy(tmp_path / "receipts" / "checkpoint", tmp_path / "before")
    # A call whose bytes are known: digests are of what was on the wire.
    params = json.dumps({"name": "forecast", "arguments": {"city": "Oslo"}, "_meta": meta()})
    (tmp_path / "params.json").write_text(params)
    (tmp_path / "serves.py").write_text(python_of(RECEIPTS) + "\napp.run()\n")
    request = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}\n'
    (tmp_path / "request.json").write_text(request)
    assert "sun" in sandbox.run("cat request.json | python serves.py")
    records = [
        json.loads(line)
        for line in sandbox.run("mcpearl receipts show receipts/ --json").splitlines()
    ]
    called = [each for each in records if each.get("name") == "forecast"][-1]
    salts: dict[str, str] = {}
    for line in COMMANDS[RECEIPTS]:
        line = line.replace("--since CHECKPOINT", "--since before")
        line = re.sub(r"\bKEY\b", "receipts/key.pub", line)
        line = line.replace("prove ID", f"prove {called['call']}")
        line = line.replace("salt CALL", f"salt {called['call']}")
        line = line.replace("17.tlog-proof", f"{called['number']}.tlog-proof")
        line = line.replace("--salt SALT", f"--salt {salts.get('arguments')}")
        written = sandbox.run(line)
        if " salt " in line:
            salts = dict(each.split() for each in written.strip().splitlines())
        if "--contents" in line:
            assert "its arguments" in written, written


def test_what_is_not_run_is_on_a_page() -> None:
    """A command that is left out is one that a page has."""
    everything = {line for lines in COMMANDS.values() for line in lines}
    assert set(NOT_RUN) <= everything
    assert len(NOT_RUN) < len(everything) / 4


def test_every_block_is_looked_at() -> None:
    """A block is run, read by the program it is for, or compared with what a program writes."""
    kinds = {"python", "console", "sh", "json", "toml", "ini", "nginx", "dockerfile", "text"}
    unknown = [str(block) for block in BLOCKS if block.kind not in {*kinds, "{toctree}"}]
    assert unknown == []
