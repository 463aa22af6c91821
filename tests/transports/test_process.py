"""A server process: how it is started, what it may see, how it ends, and that it always does."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from mcpearl import Client, ConnectionLost, McpearlError, RequestTimeout
from mcpearl.protocol.limits import Limits
from mcpearl.transports.process import SAFE_VARIABLES, ProcessTransport, safe_environment
from tests.waiting import at_rest, eventually, turns, wait_until

from ..client.peers import Script

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

# Shakes hands, and stays until the client leaves.
STAY = "welcome()\nfor m in messages(): pass"
ANSWER_ALL = """
    welcome()
    for message in messages():
        if "id" in message:
            answer(message, {"content": [], "pid": os.getpid()})
"""


def client_of(script: Script, grace: float = 0.3, **options: Any) -> Client:
    """A client of a script, as modern as it gets, that does not wait long for stubborn servers."""
    limits = options.pop("limits", None) or Limits()
    process = {name: options.pop(name) for name in ("on_stderr", "env") if name in options}
    transport = ProcessTransport([sys.executable, str(script.path)], limits, grace=grace, **process)
    return Client(transport, limits=limits, validate_output=False, **options)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def noted(script: Script, word: str) -> list[int]:
    """The numbers a script wrote into its log after a word."""
    return [int(line.split()[1]) for line in script.lines() if line.startswith(word)]


def descriptors() -> int:
    """How many pipes and watched processes this process holds open."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            pass  # the one that was open to list them
    return sum("pipe:" in link or "[pidfd]" in link for link in links)


_before: set[int] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Leave out of account what earlier tests keep running until the end."""
    _before.clear()
    _before.update(children())


def children() -> list[int]:
    found = [child.pid for child in psutil.Process().children(recursive=True)]
    return [pid for pid in found if pid not in _before]


# What the process is given


async def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("LANG", "() { :; }; echo exported function")
    script = Script(tmp_path, "note('env ' + json.dumps(dict(os.environ)))\n" + STAY)
    async with Client(script.path, env={"API_KEY": "given"}):
        pass
    seen = json.loads(script.lines()[0][4:])
    assert seen["API_KEY"] == "given"
    assert seen["PATH"] == os.environ["PATH"]
    assert "SECRET_TOKEN" not in seen
    assert "LANG" not in seen
    assert set(seen) - set(SAFE_VARIABLES) <= {"API_KEY", "LC_CTYPE", "PWD", "SHLVL", "_"}


async def test_the_environment_is_inherited_when_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    script = Script(tmp_path, "note('env ' + json.dumps(dict(os.environ)))\n" + STAY)
    async with Client(script.path, inherit_env=True, env={"MORE": "1"}):
        pass
    seen = json.loads(script.lines()[0][4:])
    assert (seen["SECRET_TOKEN"], seen["MORE"]) == ("s3cret", "1")


def test_what_is_given_wins_over_what_is_safe() -> None:
    assert safe_environment({"PATH": "/mine"})["PATH"] == "/mine"


async def test_the_process_has_a_group_of_its_own(tmp_path: Path) -> None:
    """So that Ctrl-C in a terminal ends the client, which then ends the server in order."""
    script = Script(tmp_path, "note(f'group {os.getpgrp()}')\n" + STAY)
    async with client_of(script):
        (group,) = noted(script, "group")
        assert group != os.getpgrp()


# Standard error


async def test_standard_error_comes_line_by_line(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        err = sys.stderr.buffer
        err.write(b"one\\r\\ntwo\\n\\xff\\xfe binary \\x00\\n" + b"L" * 100_000 + b"\\n")
        err.write("gr\\u00fc\\u00dfe\\n".encode()); err.write(b"no end"); err.flush()
        os.close(2)
        welcome()
        for m in messages(): pass
        """,
    )
    lines: list[str] = []
    async with client_of(script, on_stderr=lines.append):
        await eventually(lambda: len(lines) >= 6)
    assert lines == ["one", "two", "\ufffd\ufffd binary \x00", "L" * 4096, "grüße", "no end"]


async def test_standard_error_without_a_newline_takes_no_memory(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        for _ in range(200):
            sys.stderr.write("x" * 100_000)
        sys.stderr.write("\\nlast\\n"); sys.stderr.flush()
        welcome()
        for m in messages(): pass
        """,
    )
    lines: list[str] = []
    async with client_of(script, on_stderr=lines.append):
        await eventually(lambda: len(lines) == 2)
    assert [len(line) for line in lines] == [4096, 4]


async def test_standard_error_is_seen_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(tmp_path, "print('careful', file=sys.stderr, flush=True)\n" + STAY)
    async with client_of(script):
        await eventually(lambda: "careful\n" in capsys.readouterr().err)


async def test_a_stderr_callback_that_raises_harms_nobody(tmp_path: Path) -> None:
    script = Script(
        tmp_path, "print('a\\nb', file=sys.stderr, flush=True)" + "\n" + _flat(ANSWER_ALL)
    )

    def refuse(line: str) -> None:
        raise RuntimeError(line)

    async with client_of(script, on_stderr=refuse) as client:
        await client.call_tool("t")


def _flat(body: str) -> str:
    return textwrap.dedent(body)


# Ending it


async def test_a_server_that_ends_with_its_input_is_left_to_it(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(ANSWER_ALL) + "\nnote('input closed 0')\n")
    async with client_of(script, grace=10) as client:
        pid = (await client.call_tool("t")).extra["pid"]
    assert "input closed 0" in script.lines()
    assert not alive(pid)


async def test_a_server_that_ignores_the_end_of_its_input_gets_a_sigterm(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
def stop(*_):
    note("terminated")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
"""
        + _flat(ANSWER_ALL)
        + "\nwhile True: time.sleep(60)",
    )
    async with client_of(script, grace=3) as client:
        pid = (await client.call_tool("t")).extra["pid"]
    assert script.lines()[-1] == "terminated"
    assert not alive(pid)


async def test_a_server_that_ignores_sigterm_too_is_killed(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + _flat(ANSWER_ALL)
        + "\nwhile True: time.sleep(60)",
    )
    async with client_of(script) as client:
        pid = (await client.call_tool("t")).extra["pid"]
    assert not alive(pid)


GRANDCHILD = """
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", ignore])
    note(f"grandchild {child.pid}")
"""


async def test_what_the_server_started_ends_with_it(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(GRANDCHILD) + _flat(ANSWER_ALL))
    async with client_of(script) as client:
        await client.call_tool("t")
        (grandchild,) = noted(script, "grandchild")
        assert alive(grandchild)
    await eventually(lambda: not alive(grandchild))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes are found on Linux only")
async def test_what_left_the_servers_group_ends_with_it_too(tmp_path: Path) -> None:
    leaves = _flat(GRANDCHILD).replace("ignore])", "ignore], start_new_session=True)")
    script = Script(tmp_path, leaves + _flat(ANSWER_ALL))
    async with client_of(script) as client:
        await client.call_tool("t")
        (grandchild,) = noted(script, "grandchild")
        assert os.getsid(grandchild) == grandchild
    await eventually(lambda: not alive(grandchild))


async def test_what_a_crashed_server_started_ends_at_once(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(GRANDCHILD) + "welcome()\nnext(messages())\nos._exit(3)\n")
    async with client_of(script) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("t")
        (grandchild,) = noted(script, "grandchild")
        await eventually(lambda: not alive(grandchild))


async def test_a_daemon_that_keeps_the_pipes_open_holds_nothing_up(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                  start_new_session=True)
        note(f"daemon {daemon.pid}")
        """
        + ANSWER_ALL.replace("\n    ", "\n        "),
    )
    before = descriptors()
    try:
        async with client_of(script) as client:
            await client.call_tool("t")
        await eventually(lambda: descriptors() == before)
    finally:
        for pid in noted(script, "daemon"):
            os.kill(pid, signal.SIGKILL)


async def test_closing_leaves_no_process_descriptor_task_or_thread(tmp_path: Path) -> None:
    script = Script(tmp_path, ANSWER_ALL)
    async with client_of(script) as client:  # whatever the loop keeps for itself is there now
        await client.call_tool("t")

    def counts() -> tuple[int, int, int, int]:
        gc.collect()
        return (
            len(children()),
            descriptors(),
            len(asyncio.all_tasks()),
            threading.active_count(),
        )

    before = await at_rest(counts)
    for _ in range(3):
        async with client_of(script) as client:
            await client.call_tool("t")
            assert len(children()) == before[0] + 2  # the server and its guard
    # Threads of earlier tests may end meanwhile; what counts is that nothing was added.
    await eventually(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)))
    assert before[0] == 0


async def test_a_transport_can_be_closed_twice_and_opened_again(tmp_path: Path) -> None:
    script = Script(tmp_path, ANSWER_ALL)
    transport = ProcessTransport([sys.executable, str(script.path)], Limits(), grace=0.3)
    client = Client(transport, validate_output=False)
    pids = []
    for _ in range(2):
        async with client:
            pids.append((await client.call_tool("t")).extra["pid"])
            assert transport.pid == pids[-1]
        await transport.close()
        assert transport.pid is None
    assert len(set(pids)) == 2


async def test_where_the_system_cannot_watch_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int) -> int:
        raise OSError("not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing, raising=False)
    script = Script(tmp_path, "welcome()\nnext(messages())\nsys.exit(4)")
    async with client_of(script) as client:
        with pytest.raises(ConnectionLost, match="code 4"):
            await client.call_tool("t")
    async with client_of(script):
        pass
    assert not children()


# Being interrupted


STUBBORN = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(f"pid {os.getpid()}")
"""


async def test_cancelled_while_connecting(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(STUBBORN) + "while True: time.sleep(60)")
    connecting = asyncio.ensure_future(client_of(script).connect())
    await eventually(lambda: noted(script, "pid"))
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await eventually(lambda: not children())
    assert not alive(noted(script, "pid")[0])


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_cancelled_while_starting(tmp_path: Path, turns: int) -> None:
    script = Script(tmp_path, _flat(STUBBORN) + "while True: time.sleep(60)")
    connecting = asyncio.ensure_future(client_of(script, grace=0.1).connect())
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await eventually(lambda: not children())


async def test_cancelled_in_a_call(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(STUBBORN) + "welcome()\nwhile True: time.sleep(60)")

    async def use() -> None:
        async with client_of(script) as client:
            await client.call_tool("t")

    using = asyncio.ensure_future(use())
    await eventually(lambda: "server/discover" in script.methods())
    await turns()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    await eventually(lambda: not children())


async def test_cancelled_while_closing(tmp_path: Path) -> None:
    script = Script(tmp_path, _flat(STUBBORN) + "welcome()\nwhile True: time.sleep(60)")
    client = client_of(script, grace=60)
    await client.connect()
    closing = asyncio.ensure_future(client.close())
    await turns()
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await eventually(lambda: not children())
    await client.close()
    with pytest.raises(McpearlError, match="not connected"):
        await client.ping()


PARENT = """
import asyncio, sys, time
import uvloop
from mcpearl import Client

async def main():
    async with Client({target!r}, protocol="2026-07-28") as client:
        print("connected", flush=True)
        await asyncio.sleep(600)

with asyncio.Runner(loop_factory={factory}) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("factory", ["asyncio.new_event_loop", "uvloop.new_event_loop"])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_killed_parent_takes_its_server_along(
    tmp_path: Path, factory: str, stubborn: bool
) -> None:
    stay = "\nwhile True: time.sleep(60)" if stubborn else ""
    body = _flat(STUBBORN) + _flat(GRANDCHILD) + _flat(ANSWER_ALL) + stay
    script = Script(
        tmp_path, body if stubborn else body.replace("SIG_IGN)\nnote", "SIG_DFL)\nnote")
    )
    program = PARENT.format(target=str(script.path), factory=factory)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"connected\n"
        family = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
        assert len(family) == 3  # the server, what it started, and the guard
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    wait_until(lambda: not [pid for pid in family if alive(pid)])


# Dying


@pytest.mark.parametrize(
    ("death", "how", "code"),
    [
        ("sys.exit(3)", "exited with code 3", 3),
        ("os._exit(0)", "exited with code 0", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL", -9),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV", -11),
        ("raise RuntimeError('boom')", "exited with code 1", 1),
    ],
)
async def test_a_dying_server_fails_every_call_at_once(
    tmp_path: Path, death: str, how: str, code: int
) -> None:
    script = Script(
        tmp_path,
        f"""
        for n in range(30):
            print("line", n, file=sys.stderr, flush=True)
        welcome()
        inbox = messages()
        for _ in range(5):
            next(inbox)
        {death}
        """,
    )
    async with client_of(script) as client:
        calls = [client.call_tool("t", timeout=60) for _ in range(5)]
        errors = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
        for error in errors:
            assert isinstance(error, ConnectionLost)
            assert how in str(error)
            assert error.exit_code == code
            assert error.maybe_executed
            assert "line 29" in error.stderr
            assert "line 1\n" not in error.stderr  # only the last ones
        with pytest.raises(ConnectionLost, match="not sent") as caught:
            await client.call_tool("t")
        assert not caught.value.maybe_executed
        assert caught.value.exit_code == code
    await eventually(lambda: not children())


async def test_a_server_that_dies_at_the_start(tmp_path: Path) -> None:
    script = Script(tmp_path, "import no_such_module")
    with pytest.raises(ConnectionLost, match="no_such_module") as caught:
        await client_of(script).connect()
    assert caught.value.exit_code == 1
    assert not children()


async def test_a_server_killed_from_outside(tmp_path: Path) -> None:
    script = Script(tmp_path, "welcome()\nfor m in messages(): pass")
    async with client_of(script) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: "tools/call" in script.methods())
        transport: Any = client._link.connection.transport
        os.kill(transport.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost, match="SIGKILL"):
            await asyncio.wait_for(calling, 30)
        assert transport.pid is None  # its number may belong to somebody else now


async def test_last_words_are_heard(tmp_path: Path) -> None:
    """An answer written just before the end counts."""
    script = Script(
        tmp_path,
        """
        welcome()
        message = next(messages())
        answer(message, {"content": [{"type": "text", "text": "x" * 50_000}]})
        os._exit(0)
        """,
    )
    async with client_of(script) as client:
        assert len((await client.call_tool("t")).content[0].text) == 50_000


@pytest.mark.parametrize("stream", ["sys.stdout", "sys.stdin"])
async def test_a_server_that_closes_a_stream_but_lives_on(tmp_path: Path, stream: str) -> None:
    script = Script(
        tmp_path,
        f"""
        welcome()
        next(messages())
        os.close({stream}.fileno())
        time.sleep(600)
        """,
    )
    async with client_of(script) as client:
        with pytest.raises(ConnectionLost, match="still running"):
            await asyncio.wait_for(client.call_tool("t"), 30)
    assert not children()


# Misbehaving


async def test_garbage_between_messages(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        welcome()
        for message in messages():
            out = sys.stdout.buffer
            out.write(b"Listening...\\n\\n\\r\\n\\xff\\xfe\\x00\\n{\\n[]\\n[1,2\\n" + b"9" * 50 + b"\\n")
            out.write(b'{"jsonrpc":"2.0"}\\n{"jsonrpc":"1.0","id":1,"result":1}\\n"text"\\nnull\\n')
            out.write(b"[" * 100_000 + b"\\n"); out.flush()
            answer(message, {"content": []})
        """,
    )
    async with client_of(script) as client:
        for _ in range(3):
            await asyncio.wait_for(client.call_tool("t"), 30)


async def test_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        welcome()
        for message in messages():
            chunk = "x" * 1_000_000
            for _ in range(100):
                sys.stdout.write(chunk)
            sys.stdout.write("\\n")
            answer(message, {"content": []})
        """,
    )
    before = psutil.Process().memory_info().rss
    async with client_of(script) as client:
        await asyncio.wait_for(client.call_tool("t"), 60)
    assert psutil.Process().memory_info().rss - before < 60_000_000


async def test_a_server_that_never_reads(tmp_path: Path) -> None:
    script = Script(tmp_path, "welcome()\ntime.sleep(600)")
    limits = Limits(max_outgoing=4_000_000)
    async with client_of(script, limits=limits) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.1)
        before = psutil.Process().memory_info().rss
        argument = {"text": "x" * 100_000}
        errors: list[tuple[type, str]] = []  # exceptions would keep what they were raised with
        for _ in range(1000):  # a hundred megabytes in all
            calling = asyncio.ensure_future(client.call_tool("t", argument, timeout=0.2))
            await asyncio.sleep(0)
            calling.add_done_callback(
                lambda done: errors.append((type(done.exception()), str(done.exception())))
            )
        await eventually(lambda: len(errors) == 1000)
        assert {kind for kind, _ in errors} <= {RequestTimeout, ConnectionLost}
        assert any("does not read" in said for _, said in errors)
        assert psutil.Process().memory_info().rss - before < 60_000_000
    assert not children()


async def test_a_flood_of_notifications_is_held_back(tmp_path: Path) -> None:
    count = 30_000
    script = Script(
        tmp_path,
        f"""
        welcome(modern=False)
        message = next(messages())
        for n in range({count}):
            send(method="notifications/message", params={{"level": "info", "data": n}})
            if n % 1000 == 0:
                note(f"sent {{n}}")
        answer(message, {{"content": []}})
        next(messages())
        """,
    )
    heard: list[int] = []
    gate = asyncio.Event()

    async def slow(params: Any) -> None:
        await gate.wait()
        heard.append(params.data)

    async with client_of(script, on_log=slow) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=60))
        connection = client._link.connection
        await eventually(lambda: connection._full)
        held = await at_rest(lambda: len(connection._notices))
        assert 10_000 <= held < 20_000
        assert max(noted(script, "sent")) < count - 1000  # the server waits
        gate.set()
        await calling
        await eventually(lambda: len(heard) == count, 60)
    assert heard == list(range(count))


async def test_requests_before_initialize_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        send(id=1, method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
        send(id=2, method="ping")
        send(id=3, method="roots/list")
        send(method="notifications/tools/list_changed")
        welcome(modern=False)
        for message in messages():
            if "id" in message and "method" in message:
                answer(message, {"content": []})
        """,
    )
    asked: list[Any] = []
    async with client_of(script, sampling=asked.append, protocol="2025-11-25") as client:
        await client.call_tool("t")
    answers = {m["id"]: m for m in script.received() if "method" not in m}
    assert answers[1]["error"]["code"] == -32600
    assert answers[2]["result"] == {}
    assert not asked


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["server"], "server"),
        (["python", "server.py"], "python server.py"),
        (["python", "server.py", "--key", "s3cret"], "python server.py …"),
        (["python", "-m", "weather.server", "x"], "python -m weather.server …"),
        (["npx", "-y", "@scope/server@1.2", "/home"], "npx -y @scope/server@1.2 …"),
        (["tool", "--token", "s3cret"], "tool …"),
        (["tool", "API_KEY=s3cret"], "tool …"),
        (["tool", "https://me:s3cret@example.com/"], "tool …"),
        (["tool", "https://example.com/?key=s3cret"], "tool …"),
        (["tool", "sk-s3cret0123456789abcdef"], "tool …"),
    ],
)
def test_messages_name_a_process_without_what_may_be_secret(command: list[str], name: str) -> None:
    assert ProcessTransport(command, Limits()).name == name
