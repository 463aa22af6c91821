"""What pages show as text is what programs write. `…` stands for anything."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS, ROOT, fits, of_kind, python_of
from tests.docs.sandbox import Sandbox
from tests.ports import free_port

RECEIPTS = "docs/receipts.md"


def block_with(page: str, words: str) -> str:
    """Return the text of the block of a page that has these words."""
    [found] = [each.text for each in of_kind("text") if each.page == page and words in each.text]
    return found


def layers(folder: Path) -> None:
    text = block_with("docs/architecture.md", "sans-I/O")
    columns = [line[:33].split() for line in text.splitlines() if not line.startswith("─")]
    shown = [name for names in columns for name in names]
    packages = {
        path.parent.name
        for path in (ROOT / "src" / "mcpearl").glob("*/__init__.py")
        if any(path.parent.glob("*.py"))
    }
    assert len(shown) == len(set(shown))
    assert set(shown) == packages


def the_line_of_a_console(folder: Path) -> None:
    port = free_port()
    code = python_of("docs/console.md").replace("8000", str(port))
    said = said_by(folder, code)
    shown = block_with("docs/console.md", "serves at").replace("8000", str(port))
    assert fits(f"…{shown.strip()}…", said), said


def the_line_of_a_server(folder: Path) -> None:
    port = free_port()
    code = python_of("docs/console.md").replace("8000", str(port)).replace(", console=True", "")
    said = said_by(folder, code)
    shown = block_with("docs/deployment.md", "serves at").strip().replace("8000", str(port))
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    assert re.match(moment, shown) and re.match(moment, said)
    assert re.sub(moment, "", shown) in said, said


def said_by(folder: Path, code: str) -> str:
    """Return what a server says when it starts."""
    sandbox = Sandbox(folder, code)
    with sandbox.running("python server.py") as said:
        return said


def log_of_receipts(folder: Path) -> list[str]:
    """Return the lines of the first file of a log."""
    code = python_of(RECEIPTS) + "\nimport asyncio\nasyncio.run(main())\n"
    Sandbox(folder, code).run("python server.py")
    [file] = (folder / "receipts").glob("*.log")
    return file.read_text().splitlines(keepends=True)


def the_header_of_receipts(folder: Path) -> None:
    header, *_ = log_of_receipts(folder)
    shown = block_with(RECEIPTS, '"log"').strip()
    names = re.findall(r'"(\w+)":', shown)
    assert list(json.loads(header)) == names
    assert header == json.dumps(json.loads(header), separators=(",", ":")) + "\n"


def the_records_of_receipts(folder: Path) -> None:
    _, *records = log_of_receipts(folder)
    assert block_with(RECEIPTS, "HASH SPACE").strip() == "HASH SPACE JSON NEWLINE"
    assert len(records) == 6
    for record in records:
        found = re.fullmatch(r"[0-9a-f]{64} (\{.*\})\n", record)
        assert found and json.loads(found[1])


def a_tool_that_changed(folder: Path) -> None:
    """The page's server with a third number in `add`, as the page says."""
    server = python_of("docs/testing.md")
    sandbox = Sandbox(folder, server)
    test = python_of_file("docs/testing.md", "test_offer.py")
    (folder / "test_offer.py").write_text(test)
    (folder / "conftest.py").write_text(python_of_file("docs/testing.md", "conftest.py"))
    sandbox.run("python -m pytest -q test_offer.py --mcpearl-update")
    changed = server.replace("def add(a: int, b: int)", "def add(a: int, b: int, c: int)")
    assert changed != server
    (folder / "server.py").write_text(changed)
    said = without_marks(sandbox.run("python -m pytest -q test_offer.py || true"))
    shown = block_with("docs/testing.md", "breaks callers")
    assert fits(f"…{shown.strip()}…", said), said


def a_tool_that_divides(folder: Path) -> None:
    server = python_of("docs/testing.md")
    divide = (
        "@app.tool\ndef divide(a: int, b: int) -> float:\n"
        '    """Divide two numbers."""\n    return a / b\n\n\n@app.tool\ndef add('
    )
    sandbox = Sandbox(folder, server.replace("@app.tool\ndef add(", divide))
    (folder / "conftest.py").write_text(python_of_file("docs/testing.md", "conftest.py"))
    (folder / "test_divide.py").write_text(
        "from mcpearl.testing import check_tools\n\n\n"
        'async def test_tools(mcp_app):\n    await check_tools(mcp_app, ["divide"], examples=25)\n'
    )
    said = without_marks(sandbox.run("python -m pytest -q test_divide.py || true"))
    shown = block_with("docs/testing.md", "ZeroDivisionError")
    assert fits(f"…{shown.strip()}…", said), said


def python_of_file(page: str, name: str) -> str:
    """Return the file that a page names."""
    text = (ROOT / page).read_text()
    found = re.search(
        rf"^In `{re.escape(name)}`:\n\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert found
    return found[1]


def without_marks(said: str) -> str:
    """Remove what pytest writes before each line of an error."""
    return re.sub(r"^E {7}|^E *$", "", said, flags=re.MULTILINE)


SHOWN: dict[str, Callable[[Path], None]] = {
    "docs/architecture.md sans-I/O": layers,
    "docs/console.md serves at": the_line_of_a_console,
    "docs/deployment.md serves at": the_line_of_a_server,
    f'{RECEIPTS} "log"': the_header_of_receipts,
    f"{RECEIPTS} HASH SPACE": the_records_of_receipts,
    "docs/testing.md breaks callers": a_tool_that_changed,
    "docs/testing.md ZeroDivisionError": a_tool_that_divides,
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    SHOWN[name](tmp_path)


def test_every_text_is_compared() -> None:
    for block in of_kind("text"):
        page = [words.partition(" ")[2] for words in SHOWN if words.startswith(f"{block.page} ")]
        assert any(words in block.text for words in page), str(block)


def test_every_screen_is_run() -> None:
    """Screens are on pages that tests follow, with what commands write on them."""
    followed = {"docs/command.md", "docs/start.md", "docs/testing.md", RECEIPTS}
    pages = {block.page for block in BLOCKS if block.kind == "console"}
    assert {page for page in pages if not page.startswith("docs/tutorials/")} == followed
