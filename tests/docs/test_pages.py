"""Every Python snippet of the documentation runs, and the examples do what they say."""

import asyncio
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
WALKS = [
    ROOT / "docs" / "start.md",
    ROOT / "docs" / "testing.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page not in WALKS]


def snippets(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{page.stem}-{n}")
        for page in PAGES
        for n, code in enumerate(snippets(page))
    ],
)
def test_snippet(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # some write files
    names = {"__name__": "snippet"}
    exec(compile(code, "snippet", "exec"), names)
    if "main" in names:
        asyncio.run(names["main"]())


def test_no_snippet_escapes_these_tests():
    """Each block of Python has the one form that is found here, on a page that is looked at."""
    looked_at = {*PAGES, *WALKS, ROOT / "README.md"}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        blocks = re.findall(
            r"^\s*(?:```|~~~|:::).*\bpy(?:thon|con)?\b.*$", page.read_text(), re.MULTILINE
        )
        assert len(blocks) == len(snippets(page)), (page.name, blocks)
        assert not blocks or page in looked_at, page.name


FILE = re.compile(r"^In `([\w.]+\.py)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SCREEN = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_a_page_can_be_followed_step_by_step(page: Path, tmp_path: Path):
    """Files are written as the page says, and commands print what it shows; `…` is anything."""
    text = page.read_text()
    files = FILE.findall(text)
    assert [code for _, code in files] == snippets(page)
    for name, code in files:
        (tmp_path / name).write_text(code)
        compile(code, name, "exec")
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for screen in SCREEN.findall(text):
        for step in re.split(r"^\$ ", screen, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": places, "HOME": str(tmp_path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            expected = ".*".join(map(re.escape, shown.strip().split("…")))
            assert re.fullmatch(expected, done.stdout.strip(), re.DOTALL), (command, done.stdout)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_server_and_the_client_of_the_readme(tmp_path: Path):
    server, client = snippets(ROOT / "README.md")
    assert len(server.strip().splitlines()) <= 12
    assert len(client.strip().splitlines()) <= 12
    (tmp_path / "server.py").write_text(server)
    (tmp_path / "client.py").write_text(client)
    printed = run("client.py", cwd=tmp_path)
    assert "forecast - What the weather will be." in printed
    assert "sun in Oslo" in printed


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("weather_client.py", '{"city":"Lisbon","sky":"sun"}'),
        ("asking.py", "modern: {'result': 'Booked B-1001.'}"),
        ("handler.py", "Olá Ada"),
        ("many_servers.py", "Solaris: shelf 7"),
        ("tasks.py", "second server: {'result': 'The report of 2025, published'}"),
        ("many_wires.py", "ws: {'result': 'Welcome Barbara, visitor number 3.'}"),
        ("weather_server.py", ""),
    ],
)
def test_example(example: str, says: str):
    assert says in run(Path("examples") / example)


def test_the_demo_over_http():
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with subprocess.Popen(
        [sys.executable, "examples/weather_server.py", "--http", str(port)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert f"serves at {url}" in server.stderr.readline()
            wait_until(lambda: listens(port))
            printed = run("examples/weather_client.py", url)
        finally:
            server.terminate()
    assert '{"city":"Lisbon","sky":"sun"}' in printed
    assert server.returncode == 0


def test_the_server_that_a_team_shares(tmp_path: Path):
    """The page's server is served, at a port that is free, and called as its words say."""
    page = (ROOT / "docs" / "tutorials" / "sharing.md").read_text()
    [(name, code)] = FILE.findall(page)
    [line] = re.findall(r"^mcpearl (call .*)$", page, re.MULTILINE)
    port = free_port()
    assert "8000" in code and "8000" in line
    (tmp_path / name).write_text(code.replace("8000", str(port)))
    words = ["-m", "mcpearl", *shlex.split(line.replace("8000", str(port)))]
    with subprocess.Popen(
        [sys.executable, name], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_until(lambda: listens(port))
            assert [run(*words).strip() for _ in range(2)] == ["1", "2"]
            other = [word.replace("of-ann", "of-bob") for word in words]
            assert run(*other).strip() == "1"
            refused = subprocess.run(
                [sys.executable, *words[: words.index("--auth")]],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert refused.returncode == 5, refused.stderr
        finally:
            server.terminate()


def anchors(page: Path) -> set[str]:
    """Return the names by which headings of a page are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_no_link_between_files_is_dead(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), target


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_every_example_is_run():
    tried = {
        "weather_client.py",
        "asking.py",
        "handler.py",
        "tasks.py",
        "many_wires.py",
        "many_servers.py",
        "weather_server.py",
        "login_client.py",  # by tests/auth/client/test_login.py
        "protected_server.py",  # by tests/auth/server/test_example.py
    }
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tried


def test_every_message_of_the_troubleshooting_page_is_one_of_the_source():
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    messages = [text for heading in headings for text in re.findall(r"`([^`]+)`", heading)]
    assert len(messages) >= 10
    assert [text for text in messages if not text.isdigit() and text not in source] == []
