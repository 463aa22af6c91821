"""Tools that attack what is around their process: the processes they were forked from, and the server."""

import asyncio
import fcntl
import gc
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mcpearl import Client, Context, Files, Isolate, Server
from mcpearl.runtime.isolation import process
from mcpearl.runtime.isolation.frames import Kind
from mcpearl.runtime.isolation.zygote import _APART as LOWEST_OWN
from mcpearl.runtime.isolation.zygote import _Zygote as Zygote
from mcpearl.server.isolation import tool
from mcpearl.server.isolation.messages import ContextRequest
from mcpearl.testing.clock import MovableClock
from tests.ports import free_port
from tests.server.isolation.apps import alive, make
from tests.server.isolation.test_crashes import sleeps, told
from tests.server.isolation.test_serving import COMMAND, ROOT, connected
from tests.waiting import eventually, turns

ONE = Isolate(processes=1)


def signalling(profile: Isolate) -> Server:
    app = make(profile)

    @app.tool(isolate=profile)
    def send(pid: int, number: int) -> str:
        try:
            os.kill(pid, number)
        except OSError as error:
            return type(error).__name__
        return "sent"

    @app.tool(isolate=profile)
    def parent() -> int:
        return os.getppid()

    @app.tool(isolate=profile)
    def kill_own() -> int:
        """Kill a process that was started here; return what that ended with."""
        started = subprocess.Popen(["sleep", "300"])
        started.kill()
        return started.wait()

    return app


SPARED = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE}
SPARED |= {signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}


async def test_signals_to_the_zygote_do_not_end_it() -> None:
    async with Client(signalling(ONE)) as client:
        zygote = (await client.call_tool("parent")).data
        for number in signal.valid_signals() - SPARED:
            await client.call_tool("send", {"pid": zygote, "number": int(number)})
        await told(client, "segfault")  # the next process is forked from it
        assert (await client.call_tool("parent")).data == zygote


async def test_all_signals_at_once_do_not_end_the_zygote() -> None:
    async with Client(signalling(ONE)) as client:
        zygote = (await client.call_tool("parent")).data
        os.kill(zygote, signal.SIGSTOP)
        await eventually(lambda: psutil.Process(zygote).status() == psutil.STATUS_STOPPED)
        for number in signal.valid_signals() - SPARED - {signal.SIGCONT}:
            os.kill(zygote, number)
        os.kill(zygote, signal.SIGCONT)  # now it gets all of them
        await told(client, "segfault")
        assert (await client.call_tool("parent")).data == zygote
        waiting = Path(f"/proc/{zygote}/status").read_text().split("ShdPnd:")[1].split()[0]
        assert int(waiting, 16) == 0, "signals wait for ever"


async def test_a_stopped_zygote_is_replaced(clock: MovableClock) -> None:
    app = signalling(Isolate(processes=2))
    async with Client(app) as client:
        zygote = (await client.call_tool("parent")).data
        await client.call_tool("send", {"pid": zygote, "number": int(signal.SIGSTOP)})
        call = asyncio.ensure_future(client.call_tool("loop"))
        await eventually(lambda: psutil.Process(zygote).status() == psutil.STATUS_STOPPED)
        await turns()
        call.cancel()  # which takes a zygote that listens
        await clock.advance(20)  # in which it is looked at, and has time for a last answer
        await eventually(lambda: not alive(zygote))
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("parent")).data != zygote


async def test_a_call_that_waits_outlives_a_silent_zygote(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: MovableClock
) -> None:
    stuck = tmp_path / "stuck"
    fork = Zygote._fork

    def hang(self: Zygote, number: int, pool: int, descriptors: list[int]) -> None:
        if stuck.exists():
            stuck.unlink()  # so that the next zygote forks
            time.sleep(600)
        fork(self, number, pool, descriptors)

    monkeypatch.setattr(Zygote, "_fork", hang)
    async with Client(signalling(ONE), timeout=600) as client:
        zygote = (await client.call_tool("parent")).data
        stuck.touch()
        assert "ended with code 3" in (await client.call_tool("leave", {"code": 3})).text
        waiting = asyncio.ensure_future(client.call_tool("add", {"a": 1, "b": 2}))
        await eventually(lambda: not stuck.exists())
        await clock.advance(30)
        assert alive(zygote)
        assert not waiting.done()
        await clock.advance(60)  # now it has been silent for too long
        assert (await waiting).data == 3
        assert not alive(zygote)
        assert (await client.call_tool("parent")).data != zygote


async def test_a_process_without_signals_reaches_nothing_but_its_own() -> None:
    profile = Isolate(processes=2, signals=False)
    async with Client(signalling(profile)) as client:
        zygote = (await client.call_tool("parent")).data
        sibling = (await client.call_tool("pid")).data
        doze = asyncio.ensure_future(client.call_tool("doze", {"seconds": 60}))
        await eventually(lambda: sleeps(sibling))
        for pid in (os.getpid(), zygote, sibling):
            arguments = {"pid": pid, "number": int(signal.SIGKILL)}
            assert (await client.call_tool("send", arguments)).data == "PermissionError"
        assert (await client.call_tool("kill_own")).data == -signal.SIGKILL
        doze.cancel()
        await asyncio.wait([doze])


async def test_what_code_that_is_not_trusted_wants() -> None:
    strict = Isolate(
        files=Files(read=[], write=[]),
        network=False,
        signals=False,
        reuse=1,
        memory="256MB",
        cpu=5,
        processes=2,
    )
    async with Client(signalling(strict)) as client:
        pids = [(await client.call_tool("pid")).data for _ in range(5)]
        assert len(set(pids)) == 5
        assert "SIGSEGV" in await told(client, "segfault")
        assert "exceeded its memory" in await told(client, "eat", {"megabytes": 500})
        arguments = {"pid": os.getpid(), "number": int(signal.SIGTERM)}
        assert (await client.call_tool("send", arguments)).data == "PermissionError"


async def test_processor_time_of_a_tool_that_ignores_the_signal() -> None:
    app = make(Isolate(processes=1, cpu=1))

    @app.tool(isolate=Isolate(processes=1, cpu=1))
    def ignore() -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    async with Client(app) as client:
        assert "used more than 1 s of processor time" in await told(client, "ignore")


async def test_a_tool_that_prints_does_not_wait_for_whoever_reads_the_servers_output() -> None:
    port = free_port()
    command = [*COMMAND, "http", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        client = await connected(port)
        try:
            for _ in range(20):  # a pipe holds 16 of these
                await client.call_tool("say", {"text": "x" * 4096})
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        finally:
            await client.close()
            process.kill()


async def test_where_there_is_no_memory_left_the_system_takes_tools_first() -> None:
    def score(process: int | str) -> int:
        return int(Path(f"/proc/{process}/oom_score_adj").read_text())

    async with Client(make(ONE)) as client:
        pid = (await client.call_tool("pid")).data
        assert score(pid) == min(1000, score("self") + 500)


async def test_a_copy_that_comes_back_is_not_heard() -> None:
    app = Server("copies")

    @app.tool(isolate=ONE)
    def copies() -> int:
        os.fork()
        return os.getpid()

    @app.tool(isolate=ONE)
    def number(value: int) -> int:
        time.sleep(0.05)
        return value

    @app.tool(isolate=Isolate(processes=1, reuse=10_000))
    async def copies_async() -> int:
        os.fork()
        return os.getpid()

    @app.tool(isolate=Isolate(processes=1, reuse=10_000))
    async def number_async(value: int) -> int:
        await asyncio.sleep(0.05)
        return value

    async with Client(app) as client:
        for end in ("", "_async"):
            calls = [client.call_tool(f"copies{end}")]
            calls += [client.call_tool(f"number{end}", {"value": each}) for each in range(10)]
            first, *others = await asyncio.gather(*calls)
            assert [each.data for each in others] == list(range(10))
            for _ in range(3):
                assert (await client.call_tool(f"copies{end}")).data == first.data


def own_inbox() -> int:
    """Return a descriptor that writes to what this process reads its calls from."""
    [inbox] = [
        each
        for each in Path("/proc/self/fd").iterdir()
        if each.is_fifo()
        and int(each.name) >= LOWEST_OWN  # libuv makes a pipe of its own in each forked process
        and fcntl.fcntl(int(each.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    ]
    return os.open(inbox, os.O_WRONLY | os.O_NONBLOCK)


def rewiring(profile: Isolate) -> Server:
    app = make(profile)

    @app.tool(isolate=profile)
    def reopen(folder: Path) -> str:
        """Close everything, and open files in place of what was closed."""
        os.closerange(3, 1000)
        for number in range(50):
            os.open(folder / str(number), os.O_RDWR | os.O_CREAT)
        return "hello"

    @app.tool(isolate=profile, timeout=0.5)
    def fill_inbox() -> None:
        """Write to what this process reads its calls from, without an end."""
        writer = own_inbox()
        while True:
            for data in (b"\x01\x00\x00\x00forged", b"\xff" * 50, b"x", bytes(4)):
                with suppress(BlockingIOError):
                    os.write(writer, data)

    @app.tool(isolate=profile)
    def fill_later(done: Path) -> None:
        """Fill the inbox once this call is answered, and take nothing from it."""

        def fill(number: int, frame: object) -> None:
            writer = own_inbox()
            with suppress(BlockingIOError):
                while True:
                    os.write(writer, bytes(4096))
            done.touch()
            time.sleep(60)

        signal.signal(signal.SIGALRM, fill)
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    return app


async def test_an_answer_is_not_written_to_a_file_of_the_tool(tmp_path: Path) -> None:
    async with Client(rewiring(ONE)) as client:
        assert "failed" in await told(client, "reopen", {"folder": str(tmp_path)})
        assert {each.stat().st_size for each in tmp_path.iterdir()} == {0}


async def test_a_process_that_writes_to_its_own_inbox_costs_its_call() -> None:
    async with Client(rewiring(ONE)) as client:
        assert "did not finish within 0.5 s" in await told(client, "fill_inbox")


async def test_a_process_that_fills_its_inbox_gets_no_more_calls(tmp_path: Path) -> None:
    async with Client(rewiring(ONE)) as client:
        pid = (await client.call_tool("pid")).data
        await client.call_tool("fill_later", {"done": str(tmp_path / "done")})
        await eventually((tmp_path / "done").exists)
        assert (await client.call_tool("add", {"a": 1, "b": 2}, timeout=20)).data == 3
        assert (await client.call_tool("pid")).data != pid


@pytest.mark.parametrize("late", [0, 50], ids=["all answered", "some answered too late"])
async def test_a_process_that_reads_no_answers_costs_its_call(
    late: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_UNREAD", 4_000_000)
    app = make(ONE)

    @app.resource("big://text")
    def big() -> str:
        return "x" * 1_000_000

    @app.resource("late://text")
    async def never() -> str:
        try:
            await asyncio.Event().wait()
        finally:  # the end of the process may be seen before what it has not read is dropped
            monkeypatch.setattr(process, "_UNREAD", -1)
        return "x"

    @app.tool(isolate=ONE)
    def ask_on(ctx: Context) -> None:
        """Ask for more than a process may leave unread, for less than it may ask at once."""
        line = ctx._line._line  # type: ignore[attr-defined]
        for number in range(1, 101):
            uri = "late://text" if number <= late else "big://text"
            line._say(line.call, Kind.ASK, ContextRequest(number, "read", [uri]))
        time.sleep(300)

    async with Client(app) as client:
        assert "does not read the answers" in await told(client, "ask_on")
        await turns()
        gc.collect()
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []


async def test_many_unread_answers_at_once_do_not_cost_the_calls_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them is a reason to kill the process; the zygote is asked once."""
    monkeypatch.setattr(process, "_UNREAD", -1)
    app, asked, go = make(Isolate(processes=2)), asyncio.Semaphore(0), asyncio.Event()

    @app.resource("held://text")
    async def held() -> str:
        asked.release()
        await go.wait()
        return "x"

    @app.tool(isolate=Isolate(processes=2))
    def ask_on(ctx: Context) -> None:
        line = ctx._line._line  # type: ignore[attr-defined]
        for number in range(900):
            line._say(line.call, Kind.ASK, ContextRequest(number, "read", ["held://text"]))
        time.sleep(300)

    async with Client(app) as client:
        other = asyncio.ensure_future(client.call_tool("doze", {"seconds": 300}))
        call = asyncio.ensure_future(told(client, "ask_on"))
        for _ in range(900):
            await asked.acquire()
        go.set()
        assert "does not read the answers" in await call
        assert not other.done()
        other.cancel()
        await asyncio.wait([other])


async def test_a_call_that_ends_together_with_its_process_touches_no_file_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its time is over in the iteration of the loop in which its process is seen to have ended."""
    has_ended = process.Process.has_ended

    def late(self: process.Process, status: int | None) -> None:
        for job in self.jobs.values():
            job.fail(tool._TooLong())
        has_ended(self, status)

    monkeypatch.setattr(process.Process, "has_ended", late)
    app = make(ONE)

    @app.tool(isolate=ONE, timeout=300)
    def end() -> None:
        os._exit(3)

    async with Client(app) as client:
        assert "did not finish within 300 s" in await told(client, "end")
