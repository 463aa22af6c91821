"""The lifespan: entered with the first connection, left with the last, and its failures reported."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import anyio
import pytest

from mcpearl import Client, Context, Server
from tests.server.wire import ERAS, text_of, wire
from tests.waiting import eventually


class Database:
    def __init__(self) -> None:
        self.trace: list[str] = []
        self.open = False

    @asynccontextmanager
    async def lifespan(self, app: Server) -> AsyncIterator["Database"]:
        await asyncio.sleep(0.01)
        self.trace.append(f"open for {app.name}")
        self.open = True
        try:
            yield self
        finally:
            self.open = False
            self.trace.append("close")


def server(database: Database) -> Server:
    app = Server("living", lifespan=database.lifespan)

    @app.tool
    async def look(ctx: Context) -> bool:
        return ctx.lifespan is database and database.open

    return app


@pytest.mark.parametrize("version", ERAS)
async def test_its_value_is_in_the_context(version: str) -> None:
    database = Database()
    async with wire(server(database), version) as client:
        assert text_of(await client.call("look")) == "true"
    assert database.trace == ["open for living", "close"]


async def test_many_connections_share_it() -> None:
    database = Database()
    app = server(database)

    all_there = asyncio.Barrier(20)

    async def serve() -> None:
        async with Client(app) as client:
            assert (await client.call_tool("look")).structured_content == {"result": True}
            await all_there.wait()

    await asyncio.gather(*(serve() for _ in range(20)))
    assert database.trace == ["open for living", "close"]


async def test_it_is_entered_again_after_the_last_has_left() -> None:
    database = Database()
    app = server(database)
    for _ in range(2):
        async with app.running(), app.running():
            assert app.lifespan_value is database
        assert app.lifespan_value is None
    assert database.trace == ["open for living", "close"] * 2


def test_one_server_on_two_loops_in_turn() -> None:
    database = Database()
    app = server(database)

    async def once() -> None:
        async with wire(app) as client:
            await client.call("look")

    asyncio.run(once())
    asyncio.run(once())
    assert database.trace == ["open for living", "close"] * 2


def test_one_server_on_two_loops_at_once_is_refused() -> None:
    app = server(Database())

    async def elsewhere() -> None:
        async with app.running():
            pytest.fail("never reached")

    async def hold() -> None:
        async with app.running():
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, elsewhere())
            async with wire(app) as client:
                assert text_of(await client.call("look")) == "true"

    asyncio.run(hold())


async def test_a_handler_may_be_a_client_of_its_own_server() -> None:
    app = server(Database())

    @app.tool
    async def look_again() -> str:
        async with Client(app) as client:
            return str((await client.call_tool("look")).structured_content)

    async with wire(app) as client:
        assert text_of(await client.call("look_again")) == "{'result': True}"


async def test_a_start_that_fails_is_told_and_may_be_tried_again() -> None:
    tries: list[int] = []

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[str]:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("no database")
        yield "up"

    app = Server("living", lifespan=lifespan)
    with pytest.raises(ConnectionError, match="no database"):
        async with app.running():
            pytest.fail("never reached")
    async with app.running():
        assert app.lifespan_value == "up"


async def test_handlers_end_before_the_lifespan_does() -> None:
    """What a handler does in its `finally` still has what the lifespan gave it."""
    database = Database()
    app = server(database)
    open_at_the_end: list[bool] = []
    begun = asyncio.Event()

    @app.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            open_at_the_end.append(database.open)
        return "never"

    async with wire(app) as client:
        client.request("tools/call", {"name": "wait", "arguments": {}})
        await asyncio.wait_for(begun.wait(), 30)
    assert open_at_the_end == [True]


async def test_a_handler_that_does_not_end_does_not_keep_the_lifespan() -> None:
    database = Database()
    app = server(database)
    begun, let_go = asyncio.Event(), asyncio.Event()

    @app.tool
    async def stubborn() -> str:
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        return "at last"

    async with wire(app) as client:
        client.request("tools/call", {"name": "stubborn", "arguments": {}})
        await asyncio.wait_for(begun.wait(), 30)
    assert database.trace == ["open for living", "close"]
    let_go.set()


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "from contextlib import asynccontextmanager\n"
        "from mcpearl import Server\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    raise ConnectionError('no database')\n"
        "    yield\n"
        "Server('broken', lifespan=lifespan).run()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], stdin=subprocess.PIPE, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"no database" in done.stderr
    assert done.stdout == b""


def test_a_process_leaves_its_lifespan_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import sys\n"
        "from contextlib import asynccontextmanager\n"
        "from mcpearl import Server\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    print('up', file=sys.stderr)\n"
        "    yield\n"
        "    print('down', file=sys.stderr)\n"
        "Server('fine', lifespan=lifespan).run()\n"
    )
    done = subprocess.run([sys.executable, str(script)], input=b"", capture_output=True, check=True)
    up, serves, down = done.stderr.splitlines()
    assert (up, down) == (b"up", b"down")
    assert serves.endswith(b"serves on stdio")


def test_a_program_that_ends_without_leaving_its_client_closes_a_server_once() -> None:
    program = """
import asyncio
from mcpearl import Client, Server

app = Server("outer")
app.mount("part", Server("inner"))
client = Client(app)  # still there when the loop closes what is open
asyncio.run(client.__aenter__())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_ends_without_leaving_its_client_leaves_the_lifespan_once() -> None:
    program = """
import asyncio
from contextlib import asynccontextmanager
from mcpearl import Client, Server

@asynccontextmanager
async def lifespan(app):
    try:
        yield
    finally:
        await asyncio.sleep(0.01)  # the loop goes on closing the rest meanwhile
        print("left")

asyncio.run(Client(Server("living", lifespan=lifespan)).__aenter__())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


async def test_a_task_group_in_it_is_left_by_the_task_that_entered_it() -> None:
    """`anyio` refuses to leave a group in another task, and the first client may leave first."""
    trace: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            yield
            group.cancel_scope.cancel()
        trace.append("left")

    app = Server("living", lifespan=lifespan)
    entered, leave = [asyncio.Event() for _ in range(2)], [asyncio.Event() for _ in range(2)]

    async def hold(number: int) -> None:
        async with app.running():
            entered[number].set()
            await leave[number].wait()

    first = asyncio.create_task(hold(0))
    await entered[0].wait()
    second = asyncio.create_task(hold(1))
    await entered[1].wait()
    for number, task in enumerate((first, second)):
        leave[number].set()
        await asyncio.wait_for(task, 30)
    assert trace == ["left"]


def losing_its_database(when: asyncio.Event) -> Server:
    """Return a server whose lifespan has a task that fails."""

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    async def fail() -> None:
        await when.wait()
        raise ConnectionError("the database went away")

    return Server("living", lifespan=lifespan)


async def test_one_that_fails_while_the_server_runs_ends_its_holder() -> None:
    holding = asyncio.Event()
    with pytest.raises(ExceptionGroup) as raised:
        async with losing_its_database(holding).running():
            holding.set()
            await asyncio.wait_for(asyncio.Event().wait(), 30)
    assert raised.group_contains(ConnectionError, match="the database went away")
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_one_that_fails_does_not_cancel_a_holder_that_has_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hold() -> None:
        with pytest.raises(ExceptionGroup):
            async with app.running():
                held.set()
                await done.wait()

    held, left, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    app = losing_its_database(left)
    async with app.running():
        other = asyncio.create_task(hold())
        await held.wait()
    left.set()
    await eventually(lambda: "the lifespan of living failed" in caplog.text)
    done.set()
    await asyncio.wait_for(other, 30)


async def test_the_error_reaches_the_first_holder_though_another_one_stays() -> None:
    async def stay() -> None:
        with pytest.raises(ExceptionGroup):
            async with app.running():
                held.set()
                await done.wait()

    held, fails, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    app = losing_its_database(fails)
    with pytest.raises(ExceptionGroup):
        async with app.running():
            other = asyncio.create_task(stay())
            await held.wait()
            fails.set()
            await asyncio.wait_for(asyncio.Event().wait(), 30)
    done.set()
    await asyncio.wait_for(other, 30)
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_the_error_reaches_a_holder_that_held_the_server_twice() -> None:
    fails = asyncio.Event()
    app = losing_its_database(fails)
    with pytest.raises(ExceptionGroup):
        async with app.running():
            async with app.running():
                pass
            fails.set()
            await asyncio.wait_for(asyncio.Event().wait(), 30)


async def test_the_error_reaches_the_holder_that_entered_it_after_another_failed() -> None:
    begun, go_on, fails = asyncio.Event(), asyncio.Event(), asyncio.Event()
    attempts: list[None] = []

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        attempts.append(None)
        begun.set()
        await go_on.wait()
        if len(attempts) == 1:
            raise PermissionError("not yet")
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    async def fail() -> None:
        await fails.wait()
        raise ConnectionError("the database went away")

    async def hold() -> None:
        async with app.running():
            fails.set()
            await asyncio.wait_for(asyncio.Event().wait(), 30)

    app = Server("living", lifespan=lifespan)
    first = asyncio.create_task(hold())
    await begun.wait()
    second = asyncio.create_task(hold())
    await asyncio.sleep(0)  # it waits for the first
    go_on.set()
    with pytest.raises(PermissionError):
        await first
    with pytest.raises(ExceptionGroup):
        await second


async def test_one_that_ends_without_an_error_ends_its_holder_with_one() -> None:
    scope = anyio.CancelScope()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        with scope:
            yield

    with pytest.raises(RuntimeError, match="living ended while the server was running"):
        async with Server("living", lifespan=lifespan).running():
            scope.cancel()
            await asyncio.wait_for(asyncio.Event().wait(), 30)
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def hold(app: Server) -> None:
    async with app.running():
        pass


async def test_a_holder_that_is_cancelled_while_it_waits_does_not_keep_the_server_up() -> None:
    database = Database()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        begun.set()
        await go_on.wait()
        async with database.lifespan(app):
            yield

    app = Server("living", lifespan=lifespan)
    first = asyncio.create_task(hold(app))
    await begun.wait()
    second = asyncio.create_task(hold(app))
    await asyncio.sleep(0)  # it waits for the first
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    await first
    assert database.trace == ["open for living", "close"]


async def test_a_holder_that_is_cancelled_while_calls_finish_leaves_it() -> None:
    database, called = Database(), asyncio.Event()
    app = server(database)

    @app.tool
    async def stubborn() -> None:
        called.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                leaving.set()
                await go_on.wait()
                raise

    async def serve() -> None:
        async with wire(app) as client:
            client.request("tools/call", {"name": "stubborn", "arguments": {}})
            await called.wait()

    leaving, go_on = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve())
    await leaving.wait()
    serving.cancel()
    await asyncio.wait([serving], timeout=30)
    go_on.set()
    assert database.trace == ["open for living", "close"]


async def test_a_holder_that_comes_while_it_is_left_enters_it_anew() -> None:
    trace: list[str] = []
    leaving, go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        trace.append("enter")
        yield
        leaving.set()
        await go_on.wait()
        trace.append("leave")

    app = Server("living", lifespan=lifespan)
    first = asyncio.create_task(hold(app))
    await leaving.wait()
    second = asyncio.create_task(hold(app))
    await asyncio.sleep(0)  # it waits for the first
    go_on.set()
    await asyncio.gather(first, second)
    assert trace == ["enter", "leave"] * 2


async def test_a_start_that_is_cancelled_leaves_one_that_goes_on_all_the_same() -> None:
    trace: list[str] = []
    begun = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        yield
        trace.append("left")

    task = asyncio.create_task(hold(Server("living", lifespan=lifespan)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert trace == ["left"]


async def test_a_start_that_is_cancelled_ends_it() -> None:
    trace: list[str] = []
    begun = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            trace.append("ended")
        yield

    task = asyncio.create_task(hold(Server("living", lifespan=lifespan)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert trace == ["ended"]


async def test_context_variables_that_it_sets_are_seen_by_handlers() -> None:
    tenant = ContextVar("tenant", default="none")

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        tenant.set("acme")
        yield

    app = Server("living", lifespan=lifespan)

    @app.tool
    async def whose() -> str:
        return tenant.get()

    async with wire(app) as client:
        assert text_of(await client.call("whose")) == "acme"


async def test_context_variables_that_it_sets_are_as_before_when_it_is_left() -> None:
    tenant, region = ContextVar("tenant", default="none"), ContextVar[str | None]("region")

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        region.set(None)
        token = tenant.set("acme")
        yield
        tenant.reset(token)

    async with Server("living", lifespan=lifespan).running():
        assert (tenant.get(), region.get()) == ("acme", None)
    assert (tenant.get(), region.get("unset")) == ("none", "unset")


async def test_unknown_wires_are_named() -> None:
    with pytest.raises(ValueError, match="carrier pigeon"):
        await Server("x").serve("carrier pigeon")
