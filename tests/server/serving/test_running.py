"""`app.run` as a process: what it says when it starts, and when it cannot."""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpearl import Client, Server
from tests.transports.certificates import Authority
from tests.waiting import eventually

SCRIPT = """
import asyncio, logging, sys
from mcpearl import Context, Server

app = Server("weather", version="1.2")

@app.tool
async def speak(ctx: Context) -> str:
    print("printed")
    await ctx.elicit("Still there?")
    return "done"

@app.tool
async def hang(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(60)
    return "done"
"""


# What the process inherits depends on how the tests were started: under `nohup` a hangup is ignored.
HANGUP_ENDS = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "server.py"


def start(script: Path, last: str, *, stdin: int = subprocess.DEVNULL, **env: str):
    script.write_text(f"{SCRIPT}\n{last}\n")
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        text=True,
    )


@contextmanager
def started(script: Path, last: str, **options) -> Iterator[subprocess.Popen[str]]:
    process = start(script, last, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def fails(script: Path, last: str, **env: str) -> str:
    process = start(script, last, **env)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    (line,) = errors.splitlines()  # and so no traceback
    return line


# Starting


@pytest.mark.parametrize(
    ("wire", "scheme"), [("http", "http"), ("tcp", "tcp"), ("ws", "ws"), ("sse", "http")]
)
def test_the_first_line_says_where_it_is(script: Path, wire: str, scheme: str):
    with started(script, f"app.run(transport={wire!r}, port='0')") as process:
        line = process.stderr.readline()
        url = line.split("Client('")[1].split("'")[0]
        assert f"weather 1.2 serves at {url}" in line
        assert url.startswith(f"{scheme}://127.0.0.1:")
        assert (" and http://" in line and "/sse;" in line) == (wire == "sse")

        async def use() -> None:
            async with Client(url) as client:
                await client.ping()

        asyncio.run(use())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "stopping on SIGTERM" in errors
        assert "weather has stopped" in errors


WRITING = """
@app.background(name="writes")
async def writes() -> None:
    while True:
        print("x" * 8000, file=sys.stderr)
        await asyncio.sleep(0)

app.run("tcp", port=0)
"""


def test_a_signal_that_comes_while_the_process_writes_to_its_log_stops_it(script: Path):
    with started(script, WRITING, PYTHONUNBUFFERED="") as process:
        while "serves at" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "stopping on SIGTERM" in errors
        assert "reentrant" not in errors


def test_workers_are_announced_by_their_parent(script: Path):
    with started(script, "app.run('http', port=0, workers=2)") as process:
        line = process.stderr.readline()
        assert "weather 1.2, in 2 workers, serves at http://127.0.0.1:" in line
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "serves at" not in errors


def test_stdio_says_one_line_and_a_hint_on_a_terminal(script: Path):
    with started(script, "app.run()", stdin=subprocess.PIPE) as process:
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        (line,) = errors.splitlines()
        assert line.endswith("weather 1.2 serves on stdio")
    ours, theirs = pty.openpty()
    try:
        with started(script, "app.run()", stdin=theirs) as process:
            line = process.stderr.readline()
            assert "weather 1.2 reads MCP messages from this terminal" in line
            assert f"Client({str(script)!r})" in line
            assert "app.run('http')" in line
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_configuration_of_the_application_wins(script: Path):
    own = "logging.basicConfig(level='INFO', format='mine %(message)s', stream=sys.stdout)"
    with started(script, f"{own}\napp.run('http', port=0)") as process:
        assert process.stdout.readline().startswith("mine weather 1.2 serves at http://")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[1] == ""
    with started(script, "app.run('http', port=0)", MCPEARL_LOG_LEVEL="error") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[1] == ""


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_what_a_tool_prints_appears_at_once(script: Path, wire: str, tmp_path: Path):
    """While the call is still waiting for its client, although neither stream is a terminal."""
    seen: list[str] = []
    shown = tmp_path / "shown"
    with started(script, "app.run('http', port=0)" if wire == "http" else "app.run()") as process:
        if wire == "http":
            url = (await asyncio.to_thread(process.stderr.readline)).split("'")[1]

            async def ask(form: object) -> dict[str, bool]:
                seen.append(await asyncio.to_thread(process.stdout.readline))
                return {}

            target: object = url
        else:
            target = [sys.executable, "-c", f"import runpy; runpy.run_path({str(script)!r})"]

            async def ask(form: object) -> dict[str, bool]:
                await eventually(lambda: "printed" in shown.read_text())
                seen.append("printed\n")
                return {}

            script.write_text(
                f"import os, sys\nos.dup2(os.open({str(shown)!r}, os.O_CREAT | os.O_WRONLY), 2)\n"
                f"{SCRIPT}\napp.run()\n"
            )
        async with Client(target, elicitation=ask) as client:
            await client.call_tool("speak")
    assert seen == ["printed\n"]


# Not starting


def test_a_port_in_use_is_one_line(script: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for workers in (1, 2):
            line = fails(script, f"app.run('http', port={port}, workers={workers})")
            assert line == (
                f"weather: cannot listen on 127.0.0.1 port {port}: Address already in use; stop the "
                "program that uses it, or choose another port (0 for any that is free)"
            )


def test_what_cannot_be_served_is_one_line(script: Path, tmp_path: Path):
    authority = Authority(tmp_path)
    own, other = authority.vouch("server"), authority.vouch("other")
    absent, text = tmp_path / "absent.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    for options, says in (
        ("'http', port='80x'", "`port` must be a number from 0 to 65535, not '80x'"),
        ("'http', host='192.0.2.1'", "cannot listen on 192.0.2.1 port 8000: Cannot assign"),
        (f"'http', certificate={str(absent)!r}", f"`certificate`: cannot read '{absent}': No such"),
        (
            f"'tcp', certificate={str(own.certificate)!r}, key={str(absent)!r}",
            f"`key`: cannot read '{absent}': No such file",
        ),
        (
            f"'http', workers=2, certificate={str(own.certificate)!r}, key={str(other.key)!r}",
            f"`key`: the key in '{other.key}' is not that of the certificate in '{own.certificate}'",
        ),
        (
            f"'ws', certificate={str(text)!r}",
            f"`certificate`: '{text}' must have a certificate and",
        ),
        (
            f"'http', certificate={str(own.certificate)!r}, key={str(own.key)!r}, "
            f"client_ca={str(text)!r}",
            f"`client_ca`: '{text}' has no certificate in PEM",
        ),
        (f"'unix', path={str(tmp_path / ('x' * 120))!r}", "and a Unix socket's may have 107"),
    ):
        line = fails(script, f"app.run({options})")
        assert line.startswith("weather: ")
        assert says in line
    assert "MCPEARL_LOG_LEVEL is 'loud'" in fails(script, "app.run()", MCPEARL_LOG_LEVEL="loud")


async def test_in_a_running_loop_it_names_serve():
    with pytest.raises(RuntimeError, match=r"write `await app.serve\(\)` instead"):
        Server("any").run("http")


# Ending


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_call_beyond_the_grace_is_told_why(script: Path, protocol: str):
    last = f"{HANGUP_ENDS}\napp.core.grace = 0.1\napp.run('http', port=0)"
    with started(script, last) as process:
        url = (await asyncio.to_thread(process.stderr.readline)).split("'")[1]
        begun = asyncio.Event()
        async with Client(url, reconnect=False, protocol=protocol) as client:
            call = asyncio.ensure_future(
                client.call_tool("hang", on_progress=lambda _: begun.set())
            )
            await asyncio.wait_for(begun.wait(), 30)
            process.send_signal(signal.SIGHUP)
            with pytest.raises(Exception, match="shutting down") as raised:
                result = await asyncio.wait_for(call, 30)
                raise Exception(result.content[0].text)
            assert "CancelledError" not in str(raised.value)
        assert await asyncio.to_thread(process.wait, 30) == 0


async def test_under_nohup_a_hangup_is_ignored(script: Path):
    last = f"{HANGUP_ENDS.replace('SIG_DFL', 'SIG_IGN')}\napp.run('http', port=0)"
    with started(script, last) as process:
        url = (await asyncio.to_thread(process.stderr.readline)).split("'")[1]
        process.send_signal(signal.SIGHUP)
        async with Client(url, reconnect=False) as client:
            assert [tool.name for tool in await client.list_tools()] == ["speak", "hang"]
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0


# The program cancels the task, and the end of the loop cancels it and all others at once.
LEFT_EARLY = """
async def main():
    serving = asyncio.create_task(app.serve({wire}))
    while not (wires := app.tree().find("wires")) or wires.children[0].state != "running":
        await asyncio.sleep(0.01)
    serving.cancel()

asyncio.run(main())
print("over")
"""


@pytest.mark.parametrize(
    "wire", ["'http', port=0", "'http', port=0, server='granian'", "'tcp', port=0", "'ws', port=0"]
)
def test_a_loop_may_end_before_serving_was_cancelled(script: Path, wire: str):
    with started(script, LEFT_EARLY.format(wire=wire)) as process:
        out, errors = process.communicate(timeout=60)
    assert out == "over\n", errors
    assert "left behind" not in errors
