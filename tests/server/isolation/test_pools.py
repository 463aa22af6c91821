"""Pools and the zygote in the tree: what is restarted, added and refused."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import Client, Context, Files, Isolate, Limits, McpError, RateLimit, Server
from mcpearl.auth import Principal
from mcpearl.types import TextContent
from tests.server.isolation.apps import children, descriptors, make
from tests.server.wire import text_of, wire
from tests.waiting import eventually

ONE = Isolate(processes=1)


def zygote_of(pid: int) -> int:
    parent: int = psutil.Process(pid).ppid()
    return parent


async def test_the_tree_shows_the_zygote_and_the_pool() -> None:
    app = make(ONE)
    async with Client(app) as client:
        pid = (await client.call_tool("pid")).data
        isolation = app.tree().find("isolation")
        assert isolation is not None
        zygote, pool = isolation.children
        assert (zygote.name, zygote.state) == ("zygote", "running")
        assert pool.name == "pool of `add`, `pid`, `segfault` and 12 more"
        (process,) = pool.children
        assert (process.name, process.state) == (f"process {pid}", "running")
    assert app.tree().find("isolation") is None


async def test_a_zygote_that_ends_is_replaced() -> None:
    app = make(ONE)
    async with Client(app) as client:
        pid = (await client.call_tool("pid")).data
        calls = [asyncio.ensure_future(client.call_tool("doze", {"seconds": 60}))]
        calls += [asyncio.ensure_future(client.call_tool("add", {"a": 1, "b": 2}))]
        await eventually(lambda: "nanosleep" in Path(f"/proc/{pid}/wchan").read_text())
        os.kill(zygote_of(pid), signal.SIGKILL)
        # The call in hand is lost; the one that waits is not.
        assert "was lost with the process" in (await calls[0]).text
        assert (await calls[1]).data == 3
        zygote = app.tree().find("isolation", "zygote")
        assert zygote is not None
        assert zygote.restarts == 1


async def test_a_client_that_fills_the_queue_of_a_pool_leaves_a_share_to_others() -> None:
    app = make(Isolate(processes=1, queue=4))
    async with app.serving("tcp", port=0) as url, Client(url) as flood, Client(url) as other:
        pid = (await other.call_tool("pid")).data
        first = asyncio.ensure_future(flood.call_tool("doze", {"seconds": 60}))
        await eventually(lambda: "nanosleep" in Path(f"/proc/{pid}/wchan").read_text())
        arguments = {"a": 1, "b": 2}
        calls = {asyncio.ensure_future(flood.call_tool("add", arguments)) for _ in range(5)}
        done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        call = asyncio.ensure_future(other.call_tool("add", arguments))
        pushed_out, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for each in (*done, *pushed_out):
            assert "1 processes at work and 4 calls waiting" in str(each.exception())
        first.cancel()
        assert (await call).data == 3
        assert [each.data for each in await asyncio.gather(*calls)] == [3, 3, 3]


async def test_a_free_process_is_for_the_client_that_has_fewest(tmp_path: Path) -> None:
    app = Server("held")
    begun = tmp_path / "begun"

    @app.tool(isolate=Isolate(processes=2))
    def hold(name: str) -> str:
        with begun.open("a") as file:
            file.write(f"{name}\n")
        while not (tmp_path / name).exists():
            time.sleep(0.005)
        return name

    def order() -> list[str]:
        return begun.read_text().split() if begun.exists() else []

    async with app.serving("tcp", port=0) as url, Client(url) as many, Client(url) as few:
        calls = [asyncio.ensure_future(many.call_tool("hold", {"name": f"many{n}"})) for n in "123"]
        await eventually(lambda: len(order()) == 2)
        await eventually(lambda: app.isolation is not None and app.isolation.pools[0].waiting == 1)
        calls += [asyncio.ensure_future(few.call_tool("hold", {"name": f"few{n}"})) for n in "12"]
        await eventually(lambda: app.isolation is not None and app.isolation.pools[0].waiting == 3)
        # One came first, and its client has a process already; the other client has none.
        for name, next_one in (("many1", "few1"), ("few1", "few2"), ("many2", "many3")):
            (tmp_path / name).touch()
            await eventually(lambda next_one=next_one: order()[-1] == next_one)  # type: ignore[misc]
        (tmp_path / "few2").touch()
        (tmp_path / "many3").touch()
        await asyncio.gather(*calls)


async def test_a_fork_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, server, fork = tmp_path / "full", os.getpid(), os.fork

    def limited_fork() -> int:
        if os.getpid() != server and full.exists():  # in the zygote, as at a limit of the system
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited_fork)
    async with Client(make(ONE)) as client:
        full.touch()
        assert "SIGSEGV" in (await client.call_tool("segfault")).text
        failed = await client.call_tool("add", {"a": 1, "b": 2})
        reason = "its process could not be started: Resource temporarily unavailable"
        assert failed.text == f"Tool `add` failed: {reason}"
        full.unlink()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_an_isolated_process_that_ends_is_replaced() -> None:
    async with Client(make(ONE)) as client:
        first = (await client.call_tool("pid")).data
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not psutil.pid_exists(first))
        assert (await client.call_tool("pid")).data != first


async def test_a_process_that_does_not_come_up_costs_a_call(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    parent = os.getpid()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        if os.getpid() != parent and broken.exists():
            raise RuntimeError("the database is gone")
        yield

    async with Client(make(ONE, lifespan=lifespan)) as client:
        broken.touch()
        assert "SIGSEGV" in (await client.call_tool("segfault")).text
        failed = await client.call_tool("add", {"a": 1, "b": 2})
        assert "cannot enter the lifespan" in failed.text
        broken.unlink()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_tool_that_is_added_at_run_time_is_isolated_too() -> None:
    app = make(ONE)
    async with Client(app) as client:
        first = (await client.call_tool("pid")).data
        running = asyncio.ensure_future(client.call_tool("doze", {"seconds": 0.5}))
        await eventually(lambda: "nanosleep" in Path(f"/proc/{first}/wchan").read_text())
        here = os.getpid()

        @app.tool(isolate=Isolate(processes=2))
        def late() -> list[int]:
            return [here, os.getpid()]

        found = (await client.call_tool("late")).data
        assert found[0] == here != found[1]
        assert (await running).data == "rested"
        await eventually(lambda: app.tree().find("isolation") is None)
        assert app.tree().find("isolation 2") is not None
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert children() == []


async def test_the_first_isolated_tool_may_be_added_at_run_time() -> None:
    app = Server("later")
    app.add_tool(os.getpid, name="here")
    async with Client(app) as client:

        @app.tool(isolate=True)
        def late() -> int:
            return os.getpid()

        assert (await client.call_tool("late")).data != os.getpid()
    assert children() == []


async def test_all_tools_of_a_server() -> None:
    app = Server("isolated", isolate=ONE)

    @app.tool
    def there() -> int:
        return os.getpid()

    @app.tool(isolate=False)
    def here() -> int:
        return os.getpid()

    async with Client(app) as client:
        assert (await client.call_tool("there")).data != os.getpid()
        assert (await client.call_tool("here")).data == os.getpid()


async def test_a_mounted_server_isolates_its_own_tools() -> None:
    inner = make(ONE)
    outer = Server("outer")
    outer.mount("part", inner)
    seen: list[Any] = []

    @outer.middleware
    async def watch(ctx: Context, call_next: Any) -> Any:
        result = await call_next()
        seen.append(getattr(result, "content", None))
        return result

    @inner.tool(isolate=ONE)
    def told(ctx: Context) -> str:
        return f"{ctx.params.name} in {os.getpid() != here}"

    here = os.getpid()
    async with Client(outer) as client:
        assert (await client.call_tool("part__add", {"a": 1, "b": 2})).data == 3
        assert (await client.call_tool("part__told")).data == "told in True"
        assert "SIGSEGV" in (await client.call_tool("part__segfault")).text
    assert [TextContent(text="told in True")] in seen
    assert children() == []


def test_a_server_without_isolated_tools_loads_nothing_of_it() -> None:
    script = (
        "import asyncio, sys\n"
        "from mcpearl import Client, Server\n"
        "app = Server('plain')\n"
        "@app.tool\n"
        "def add(a: int, b: int) -> int: return a + b\n"
        "async def main():\n"
        "    async with Client(app) as client: await client.call_tool('add', {'a': 1, 'b': 2})\n"
        "asyncio.run(main())\n"
        "sys.exit(any('isolation' in name for name in sys.modules))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_a_call_behind_one_that_hangs_goes_to_another_process() -> None:
    async with Client(make(Isolate(processes=2))) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        calls = [asyncio.ensure_future(client.call_tool("doze", {"seconds": 60}))]
        quick = [client.call_tool("add", {"a": 1, "b": n}) for n in range(40)]
        answers = await asyncio.gather(*quick)
        assert [each.data for each in answers] == list(range(1, 41))
        calls[0].cancel()


async def test_a_client_that_floods_has_its_turn_like_others() -> None:
    app = make(ONE)
    async with (
        wire(app, principal=Principal("flood")) as flooding,
        wire(app, principal=Principal("other")) as other,
    ):
        doze = {"name": "doze", "arguments": {"seconds": 0.02}}
        ids = [flooding.request("tools/call", doze) for _ in range(100)]
        await flooding.answer_to(ids[0])
        order: list[str] = []

        async def flood() -> None:
            await flooding.answer_to(ids[50])
            order.append("flood")

        async def add() -> None:
            assert text_of(await other.call("add", {"a": 1, "b": 2})) == "3"
            order.append("other")

        await asyncio.gather(flood(), add())
        assert order == ["other", "flood"]


async def test_large_arguments_and_results() -> None:
    app = Server("large")

    @app.tool(isolate=ONE)
    def double(text: str) -> str:
        return text * 2

    async with Client(app) as client:
        texts = ["é" * size for size in (1, 8_000, 20_000, 1_000_000, 3)] * 3
        answers = await asyncio.gather(*(client.call_tool("double", {"text": t}) for t in texts))
        assert all(each.data == text * 2 for each, text in zip(answers, texts, strict=True))


async def test_a_result_larger_than_may_be_sent_costs_one_call() -> None:
    app = Server("large", limits=Limits(max_outgoing=100_000))

    @app.tool(isolate=ONE)
    def long(size: int) -> str:
        return "x" * size

    async with Client(app) as client:
        text = (await client.call_tool("long", {"size": 1_000_000})).text
        assert "wrote a message of" in text
        assert (await client.call_tool("long", {"size": 3})).data == "xxx"


async def test_limits_of_a_tool_come_first() -> None:
    app = Server("limited")

    @app.tool(isolate=ONE, rate=RateLimit(1, per=3600), concurrency=1)
    def rare() -> int:
        return os.getpid()

    async with Client(app) as client:
        assert (await client.call_tool("rare")).data != os.getpid()
        with pytest.raises(McpError, match="Over the limit"):
            await client.call_tool("rare")


async def test_what_a_tool_printed_is_kept_from_clients_where_errors_are() -> None:
    async with Client(make(ONE, mask_errors=True)) as client:
        text = (await client.call_tool("segfault")).text
        assert text == "Tool `segfault` failed: its process was ended by SIGSEGV"


async def test_a_lifespan_that_fails_in_the_process_is_an_error_at_the_start() -> None:
    parent = os.getpid()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        if os.getpid() != parent:
            raise RuntimeError("no database here")
        yield

    app = make(ONE, lifespan=lifespan)
    with pytest.raises(ValueError, match=r"cannot enter the lifespan.*no database here"):
        async with Client(app):
            pass
    assert children() == []


async def test_a_lifespan_is_left_when_a_process_ends(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        yield
        with trace.open("a") as file:
            file.write(f"{os.getpid()} ")

    app = make(ONE, lifespan=lifespan)
    async with Client(app) as client:
        pid = (await client.call_tool("pid")).data
    assert set(trace.read_text().split()) == {str(pid), str(os.getpid())}


async def test_files(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "secret").write_text("secret")
    app = Server("files")

    def use(path: str, text: str | None = None) -> str:
        import email.mime.image  # a module that is loaded later is found

        assert email.mime.image
        try:
            return Path(path).read_text() if text is None else str(Path(path).write_text(text))
        except OSError as error:
            return type(error).__name__

    writes = Isolate(processes=1, files=Files(write=[tmp_path / "open"]))
    reads = Isolate(processes=1, files=Files(read=[tmp_path / "open"], write=[]))
    app.add_tool(use, name="write_there", isolate=writes)
    app.add_tool(use, name="read_there", isolate=reads)

    async def call(tool: str, path: Path, text: str | None = None) -> Any:
        return (await client.call_tool(tool, {"path": str(path), "text": text})).data

    async with Client(app) as client:
        assert await call("write_there", tmp_path / "open" / "a", "hello") == "5"
        assert await call("write_there", tmp_path / "closed" / "a", "hello") == "PermissionError"
        assert await call("write_there", tmp_path / "closed" / "secret") == "secret"
        assert await call("read_there", tmp_path / "open" / "a") == "hello"
        assert await call("read_there", tmp_path / "open" / "a", "bye") == "PermissionError"
        assert await call("read_there", tmp_path / "closed" / "secret") == "PermissionError"


async def test_no_network() -> None:
    app = Server("network")

    def dial(port: int) -> str:
        import socket

        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError as error:
            return type(error).__name__
        return "connected"

    app.add_tool(dial, name="inside", isolate=Isolate(processes=1))
    app.add_tool(dial, name="cut_off", isolate=Isolate(processes=1, network=False))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(app) as client:
        assert (await client.call_tool("inside", {"port": port})).data == "connected"
        assert (await client.call_tool("cut_off", {"port": port})).data == "OSError"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"processes": 0}, "whole number from 1"),
        ({"memory": "lots"}, "text such as '512MB'"),
        ({"memory": -1}, "whole number from 1"),
        ({"cpu": 0}, "number of seconds"),
        ({"reuse": 1.5}, "whole number from 1"),
        ({"queue": -1}, "whole number from 0"),
    ],
)
def test_settings_that_are_wrong(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Isolate(**option)


def test_more_settings_that_are_wrong() -> None:
    app = Server("wrong")
    with pytest.raises(TypeError, match="`isolate` is True or"):
        app.add_tool(print, isolate=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no"):
        Files(read=["/not/there"])
    with pytest.raises(TypeError, match="must be a list"):
        Files(write="/tmp")


def test_sizes() -> None:
    assert Isolate(memory="512MB").memory_bytes == 512_000_000
    assert Isolate(memory="1.5 GiB").memory_bytes == 3 * 2**29
    assert Isolate(memory=1000).memory_bytes == 1000
    assert Isolate().memory_bytes is None


async def test_many_kills_leave_nothing() -> None:
    from tests.server.isolation.killing import kill

    before = descriptors()
    report = await kill(150)
    assert report.wrong == []
    assert children() == []
    assert descriptors() == before
