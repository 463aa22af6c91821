"""`run --reload` and `dev`: files change, and clients stay connected."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from mcpearl import Client
from mcpearl.cli.reloading.child import ServingProcess
from mcpearl.cli.reloading.conversation import Conversation
from tests.cli.running import Serving, mcpearl
from tests.waiting import eventually

VERSIONS = ["2025-11-25", "2026-07-28"]


def write(file: Path, says: str, more: str = "") -> None:
    file.write_text(
        "import asyncio\n"
        "from mcpearl import Server\n"
        "print('printed while it is loaded')\n"
        "app = Server('reloaded')\n"
        f"@app.tool\ndef version() -> str:\n    return {says!r}\n"
        "@app.tool\nasync def endless() -> str:\n    await asyncio.sleep(3600)\n"
        f"@app.resource('x://y')\ndef y() -> str:\n    return {says!r}\n"
        f"@app.tool\ndef touch() -> str:\n    app.notify_resource_updated('x://y')\n    return ''\n{more}"
    )


async def version_of(client: Client) -> str:
    return (await client.call_tool("version")).text


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_on_stdio_stays_connected(tmp_path: Path, version: str):
    file = tmp_path / "server.py"
    write(file, "one")
    notes: list[str] = []
    lost: list[str] = []
    said: list[str] = []
    async with Client(
        [sys.executable, "-m", "mcpearl", "run", str(file), "--reload", "--stdio"],
        protocol=version,
        on_notification=lambda notice: notes.append(notice.method),
        on_state=lambda phase: lost.append(phase),
        on_stderr=said.append,
        reconnect=False,
    ) as client:
        lost.clear()
        assert await version_of(client) == "one"
        await client.subscribe("x://y")

        write(file, "two", "@app.tool\ndef more() -> str:\n    return ''\n")
        await eventually(lambda: _is(client, "two"))
        assert "more" in [tool.name for tool in (await client.list_tools()).tools]
        if version == "2025-11-25":
            await eventually(lambda: "notifications/tools/list_changed" in notes)
        await client.call_tool("touch")  # the new server knows the subscription of the old one
        await eventually(lambda: "notifications/resources/updated" in notes)

        write(file, "three", "def unfinished(")
        await eventually(lambda: any("the last version goes on" in line for line in said))
        assert await version_of(client) == "two"
        # A look between emptying the file and writing it finds no server, which is reported first.
        await eventually(lambda: any("SyntaxError" in line for line in said))
        assert not any("mcpearl/cli" in line for line in said)

        write(file, "four")
        await eventually(lambda: _is(client, "four"))
        assert lost == []


async def _is(client: Client, says: str) -> bool:
    return await version_of(client) == says


@pytest.mark.parametrize("version", VERSIONS)
async def test_over_http_the_address_stays(tmp_path: Path, version: str):
    file = tmp_path / "server.py"
    write(file, "one")
    with Serving("dev", file, "--port", "0") as serving:
        async with Client(serving.url, protocol=version) as client:
            assert await version_of(client) == "one"
            write(file, "two")
            await asyncio.to_thread(serving.until, "serves at", times=2)
            assert await version_of(client) == "two"
        written = serving.until("changed: ")
        pages = re.findall(r"console: (\S+)", written)
        assert len(pages) == 2
        assert len(set(pages)) == 1  # the page in the browser goes on
        assert "info    server: reloaded 0.0.0 serves at http://127.0.0.1:" in written
        assert serving.stop() == 0


def test_a_server_that_ends_by_itself_is_loaded_again_at_the_next_change(tmp_path: Path):
    file = tmp_path / "server.py"
    write(file, "one", "@app.tool\ndef die() -> str:\n    import os\n    os._exit(3)\n")
    with Serving("run", file, "--reload", "--http", "--port", "0") as serving:
        url = serving.url
        assert mcpearl("call", url, "die").code == 3
        serving.until("the server ended with code 3; waiting for a change")
        write(file, "two")
        serving.until("serves at", times=2)
        assert mcpearl("call", url, "version").out == "two\n"


async def test_the_serving_process_does_not_outlive_the_one_that_reloads(tmp_path: Path):
    file = tmp_path / "server.py"
    write(file, "one")
    with Serving("run", file, "--reload", "--http", "--port", "0") as serving:
        url = serving.url
        serving.process.kill()
        await eventually(lambda: mcpearl("ping", url).code == 3)


def test_what_cannot_be_reloaded(tmp_path: Path):
    file = tmp_path / "server.py"
    write(file, "one")
    assert "leave --workers out" in mcpearl("run", file, "--reload", "--workers", "2").err
    assert "on stdio alone" in mcpearl("run", file, "--reload", "--stdio", "--http").err


def test_calls_in_flight_are_answered_when_their_server_goes():
    talk = Conversation()
    assert talk.from_client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}')
    assert talk.from_client(b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}')
    assert talk.from_server(b'{"jsonrpc":"2.0","id":2,"result":{}}')
    assert talk.from_server(b'{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}')
    error, cancelled = talk.lost()
    assert b'"id":1,"error":{"code":-32603' in error
    assert b"notifications/cancelled" in cancelled
    assert not talk.from_client(
        b'{"jsonrpc":"2.0","id":"q","result":{}}'
    )  # for a server that is gone
    assert talk.lost() == []


def test_what_is_not_a_message_passes():
    talk = Conversation()
    for line in (b"", b"nonsense", b"[]", b"[{}]", b'{"id": [1], "method": "x"}', b"null"):
        assert talk.from_client(line)
        assert talk.from_server(line)
    assert (talk.opening(), talk.news()) == ([], [])


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path):
    write(tmp_path / "server.py", "one")
    done = mcpearl("dev", "servr.py", "--no-open", cwd=tmp_path)
    assert (done.code, "did you mean `server.py`?" in done.err) == (2, True), done.err


def test_a_process_that_still_loads_its_file_does_not_outlive_the_command(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(
        "import os, time\nprint('loads in', os.getpid(), flush=True)\ntime.sleep(3600)\n"
    )
    with Serving("dev", file, "--no-open", "--port", "0") as serving:
        found = re.search(r"loads in (\d+)", serving.until("loads in "))
        serving.stop(signal.SIGINT)
    assert found
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[1]), signal.SIGKILL)


async def test_a_process_that_still_loads_its_file_is_asked_to_stop(tmp_path: Path) -> None:
    file, loads = tmp_path / "slow.py", tmp_path / "loads"
    file.write_text(f"import time\nopen({str(loads)!r}, 'w').close()\ntime.sleep(3600)\n")
    child = ServingProcess([str(file), "--http"], [])
    loading = asyncio.create_task(child.load())
    await eventually(loads.exists)
    loading.cancel()
    await asyncio.wait([loading])
    await child.stop()
    assert child.process.returncode != -signal.SIGKILL


async def test_a_child_that_cannot_load_its_file_ends_without_a_word_of_the_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "broken.py").write_text("def (")
    for _ in range(5):
        child = ServingProcess([str(tmp_path / "broken.py"), "--http"], [])
        assert not await child.load()
        # It is a zombie for an instant, in which a signal would take its exit code from the loop.
        await child.stop()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_the_log_of_a_reload_has_no_refusals(tmp_path: Path):
    """A client whose session was at the last version begins a new one; that is not worth a line."""
    file = tmp_path / "server.py"
    write(file, "one")
    with Serving("dev", file, "--no-open", "--port", "0") as serving:
        async with Client(serving.url, protocol="2025-11-25") as client:
            assert await version_of(client) == "one"
            write(file, "two")
            await asyncio.to_thread(serving.until, "serves at", times=2)
            assert await version_of(client) == "two"
        assert "session begun" in serving.until("session begun", times=2)
        assert "refused" not in "".join(serving.written)
