"""Several processes behind one port: sessions find their owner, the dead are replaced."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import Client, McpError, Server
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.jsonrpc import RATE_LIMITED
from tests.ports import free_port
from tests.readiness import ServiceManager
from tests.transports.raw_http import HANGS, Raw, Response, Session, modern, response
from tests.waiting import eventually

SERVER = Path(__file__).with_name("worker_server.py")
WORKERS = 3


class Crew:
    def __init__(
        self, process: "subprocess.Popen[str]", port: int, manager: ServiceManager
    ) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._manager = manager

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    async def up(self) -> None:
        await self._manager.ready(self.process)


@contextmanager
def started(tmp_path: Path, *more: str, **environment: str) -> Iterator[Crew]:
    port, manager = free_port(), ServiceManager()
    arguments = [str(SERVER), str(port), str(WORKERS), str(tmp_path / "pid"), *more]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **manager.environment, **environment},
    )
    try:
        yield Crew(process, port, manager)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@asynccontextmanager
async def crew(tmp_path: Path, *more: str, **environment: str) -> AsyncIterator[Crew]:
    with started(tmp_path, *more, **environment) as crew:
        await crew.up()
        yield crew


async def pids(crew: Crew, count: int, **options: Any) -> set[int]:
    """Which processes answer, each call on a connection of its own."""
    found = set()
    for _ in range(count):
        async with Client(crew.url, **options) as client:
            found.add(int((await client.call_tool("who")).content[0].text))
    return found


async def test_modern_calls_are_answered_by_any_worker(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        (first,) = await pids(running, 1)
        os.kill(first, signal.SIGSTOP)  # so that another has to answer
        try:
            others = await pids(running, 10)
        finally:
            os.kill(first, signal.SIGCONT)
        assert first not in others
        answered = others | await pids(running, 10)
        assert answered <= {worker.pid for worker in running.workers}


async def test_the_tree_of_a_worker_names_its_wire_as_a_server_without_workers_does(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path) as running, Client(running.url) as client:
        names = (await client.call_tool("wires")).data
    assert names == [f"http 127.0.0.1:{running.port}", "parent of the workers"]


async def test_the_tree_of_the_parent_shows_the_workers(tmp_path: Path) -> None:
    async with crew(tmp_path, "--show-tree") as running:
        shown = tmp_path / "tree"

        def lines() -> list[str]:
            return [line.strip() for line in shown.read_text().splitlines()]

        await eventually(lambda: any(line.startswith("worker 2: running") for line in lines()))
        assert [line.split(":")[0] for line in lines()] == [
            "crew",
            "workers",
            *("worker 0", "worker 1", "worker 2"),
        ]
        victim = min(running.workers, key=lambda each: each.pid)
        victim.kill()
        said = f"restarted 1 times (process {victim.pid} was ended by SIGKILL)"
        await eventually(lambda: any(line.endswith(said) for line in lines()))


async def test_changes_of_the_workers_are_followed_in_the_parent(tmp_path: Path) -> None:
    async with crew(tmp_path, "--follow-tree") as running:
        parent = running.process.pid
        followed = tmp_path / "changes"

        def changes(number: int) -> list[str]:
            of = f"{parent} ('crew', 'workers', 'worker {number}') "
            return [line.removeprefix(of) for line in lines() if line.startswith(of)]

        def lines() -> list[str]:
            return followed.read_text().splitlines() if followed.exists() else []

        await eventually(lambda: all(changes(n) == ["running None"] for n in range(WORKERS)))
        victim = min(running.workers, key=lambda each: each.pid)  # the first that was forked
        victim.kill()
        said = f"waiting process {victim.pid} was ended by SIGKILL"
        await eventually(lambda: changes(0) == ["running None", said, "running None"])
        # A worker follows its own tree; the iterator of the parent's loop is not in it.
        assert {line.split()[0] for line in lines()} == {str(parent)}


async def test_a_session_lives_in_one_worker_wherever_its_requests_land(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        owners = set()
        for _ in range(6):
            raw = Raw(running.port)
            session = await raw.initialize()
            # Every request of this client is a new connection, and lands anywhere.
            answers = [await session.use("who", id=id) for id in range(10)]
            found = {answer.json["result"]["content"][0]["text"] for answer in answers}
            assert len(found) == 1
            owners |= found
            streamed = await session.use("count", {"to": 3}, token=1)
            messages = await streamed.rest()
            assert [each["params"]["progress"] for each in messages[:-1]] == [1, 2, 3]
            assert {messages[-1]["result"]["content"][0]["text"]} == found
            assert (await session.delete()).status == 204
            assert (await session.use("who")).status == 404
        assert owners <= {str(worker.pid) for worker in running.workers}


async def test_a_response_that_is_passed_on_is_as_the_owner_gave_it(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        origin = {"Origin": f"http://127.0.0.1:{running.port}"}
        for _ in range(12):  # of which some land at the owner, and others do not
            session = await Raw(running.port).initialize(**origin)
            _, seen = await raw_head(session, "POST")
            assert seen.count(b"access-control-allow-origin") == 1
            status, _ = await raw_head(session, "HEAD")
            assert status == 405
            status, head = await raw_head(session, "DELETE")
            assert status == 204
            assert b"transfer-encoding" not in head


async def raw_head(session: Session, method: str) -> tuple[int, bytes]:
    """The status and head of a response, after which nothing comes that does not belong to it."""
    reader, writer = await session.connect()
    writer.write(session.head(method, {"Content-Length": "0", "Connection": "close"}))
    async with asyncio.timeout(HANGS):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        rest = await reader.read()
    if method == "POST":
        assert rest.endswith(b"}")
    else:
        assert rest == b""
    writer.close()
    return int(head.split()[1]), head


async def test_a_client_is_asked_across_workers_in_both_eras(tmp_path: Path) -> None:
    async def accept(_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"a": "b"})

    async with crew(tmp_path) as running:
        for protocol in ("2025-11-25", "2026-07-28"):
            for _ in range(8):
                async with Client(running.url, elicitation=accept, protocol=protocol) as client:
                    answer = await client.call_tool("ask")
                    assert answer.content[0].text.startswith("accept ")


async def test_an_update_reaches_subscribers_of_every_worker(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        heard: list[str] = []
        clients = [
            Client(
                running.url,
                protocol=protocol,
                on_notification=lambda notice: heard.append(notice.method),
            )
            for protocol in ("2025-11-25", "2026-07-28") * 4
        ]
        for client in clients:
            await client.connect()
            await client.subscribe("test://thing")
        async with Client(running.url) as other:
            await other.call_tool("touch")
        await eventually(lambda: heard.count("notifications/resources/updated") == len(clients))
        for client in clients:
            await client.close()


async def owned(crew: Crew) -> tuple[Session, int]:
    """A session, and the process it lives in."""
    session = await Raw(crew.port).initialize()
    return session, int((await session.use("who")).json["result"]["content"][0]["text"])


async def stream_at(pid: int, session: Session) -> Response:
    """Ask a certain process for the standing stream of a session, on a connection it has."""
    headers, body = modern("tools/call", {"name": "who", "arguments": {}})
    data = json.dumps(body).encode()
    kinds = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    question = Raw(session.port).head("POST", {**headers, **kinds}) + data
    async with asyncio.timeout(HANGS):
        while True:
            reader, writer = await session.connect()
            writer.write(question)
            answer = await response(reader, writer)
            await answer.read()
            if int(answer.json["result"]["content"][0]["text"]) == pid:
                break
            writer.close()  # it has landed elsewhere
    writer.write(session.head("GET", {"Accept": "text/event-stream"}))
    return await response(reader, writer)


async def test_streams_that_are_passed_on_count_as_streams(tmp_path: Path) -> None:
    async with crew(tmp_path, "--one-stream") as running:
        session, owner = await owned(running)
        async with asyncio.timeout(HANGS):
            own, other = await owned(running)
            while other == owner:
                own, other = await owned(running)

        # The other has its one stream, so it passes none on, though the owner has room.
        standing = await stream_at(other, own)
        assert standing.status == 200
        refused = await stream_at(other, session)
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        direct = await stream_at(owner, session)
        assert direct.status == 200
        for stream in (standing, refused, direct):
            stream.close()

        # What it passes on is its one stream, and for the owner's sake a stream of the owner's.
        passed_on = await until_free(other, session)
        for pid, who in ((other, own), (owner, session)):
            refused = await stream_at(pid, who)
            assert refused.status == 503
            refused.close()
        passed_on.close()
        (await until_free(other, own)).close()
        (await until_free(owner, session)).close()


async def until_free(pid: int, session: Session) -> Response:
    """A stream, once the ones that were hung up on are noticed to be over."""
    async with asyncio.timeout(HANGS):
        while (stream := await stream_at(pid, session)).status == 503:
            stream.close()
            await asyncio.sleep(0.02)
    assert stream.status == 200
    return stream


async def test_old_clients_find_their_session_too(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        for _ in range(6):
            async with Client(f"http://127.0.0.1:{running.port}/sse") as client:
                answers = {(await client.call_tool("who")).content[0].text for _ in range(6)}
                assert len(answers) == 1


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        before = {worker.pid for worker in running.workers}
        raw = Raw(running.port)
        session = await raw.initialize()
        owner = int((await session.use("who")).json["result"]["content"][0]["text"])
        os.kill(owner, signal.SIGKILL)
        await eventually(
            lambda: (
                len(running.workers) == WORKERS
                and owner not in {worker.pid for worker in running.workers}
            )
        )

        # Its sessions went with it, and no others.
        async def status() -> int | None:
            found = (await session.use("who")).status
            return None if found == 503 else found

        assert await eventually(status) == 404
        assert await pids(running, 20) <= {worker.pid for worker in running.workers}
        assert len(before & {worker.pid for worker in running.workers}) == WORKERS - 1


async def test_rates_are_counted_by_all_workers_together(tmp_path: Path) -> None:
    answered: list[int] = []
    limits: list[str] = []
    async with crew(tmp_path, "--rated") as many:
        for _ in range(20):
            async with Client(many.url, validate_output=False) as client:
                try:
                    answered.append(int((await client.call_tool("rare")).content[0].text))  # type: ignore[union-attr]
                except McpError as error:
                    assert error.code == RATE_LIMITED
                    limits.append("tool" if "of tool `rare`" in error.message else "server")
    assert len(answered) == 10
    assert len(set(answered)) > 1, "several workers have answered"
    assert set(limits) == {"tool", "server"}
    assert limits == sorted(limits, reverse=True), "the server's is the larger one"


async def test_a_signal_lets_calls_finish_and_leaves_no_process(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        workers = running.workers
        async with Client(running.url) as client:
            begun = asyncio.Event()
            call = asyncio.create_task(
                client.call_tool("slow", {"seconds": 1.0}, on_progress=lambda _: begun.set())
            )
            await asyncio.wait_for(begun.wait(), HANGS)
            running.process.terminate()
            assert (await call).content[0].text == "done"
        assert await asyncio.to_thread(running.process.wait, 30) == 0
        assert not [worker for worker in workers if worker.is_running()]


async def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    async with crew(tmp_path) as running:
        workers = running.workers
        running.process.kill()
        gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert not alive and len(gone) == WORKERS


async def test_the_folder_of_a_killed_parent_is_removed_at_the_next_start(tmp_path: Path) -> None:
    folders = tmp_path / "tmp"
    for strange in ("mcpearl-without-lock", "mcpearl-file", "other"):
        (folders / strange).mkdir(parents=True)
    (folders / "mcpearl-file").rmdir()
    (folders / "mcpearl-file").touch()
    (folders / "mcpearl-link").symlink_to(folders / "other")
    (folders / "other" / "lock").touch()
    strangers = set(folders.iterdir())
    environment = {"TMPDIR": str(folders)}
    async with crew(tmp_path, **environment) as first:
        (own,) = set(folders.iterdir()) - strangers
        async with crew(tmp_path, **environment):
            assert own.exists()  # its parent is alive
        workers = first.workers
        first.process.kill()
        await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert own.exists()
        async with crew(tmp_path, **environment):
            assert not own.exists()
    assert set(folders.iterdir()) == strangers


async def test_a_stopped_worker_makes_nothing_wait_for_ever(tmp_path: Path) -> None:
    async with crew(tmp_path, "--short-keep-alive") as running:
        session, owner = await owned(running)
        os.kill(owner, signal.SIGSTOP)
        try:
            answer = await session.use("who")  # lands at another, since this one accepts nothing
        finally:
            os.kill(owner, signal.SIGCONT)
        assert answer.status == 504
        assert "did not answer within" in answer.json["error"]["message"]
        async with asyncio.timeout(HANGS):
            assert (await session.use("who", id=2)).status == 200


def test_a_server_that_cannot_start_says_so_and_ends(tmp_path: Path) -> None:
    with started(tmp_path, "--broken") as running:
        _, said = running.process.communicate(timeout=30)
    assert running.process.returncode == 1
    assert "before it was up" in said
    assert "ZeroDivisionError" in said


async def test_workers_are_for_run_and_http_alone() -> None:
    app = Server("crew")
    with pytest.raises(ValueError, match=r"serve with `app.run`, and on HTTP alone"):
        await app.serve("http", workers=2)


async def test_whose_session_an_id_names() -> None:
    from mcpearl.transports.http_server.siblings import Siblings

    siblings = Siblings(1, [Path("0"), Path("1"), Path("2")])
    assert siblings.owner_of("0.abc") == 0
    assert siblings.owner_of("2.abc") == 2
    for own_or_nobodys in ("1.abc", "3.abc", "abc", "", ".abc", "-1.abc", "٣.abc", "9" * 50 + "."):
        assert siblings.owner_of(own_or_nobodys) is None


def test_workers_do_not_share_a_port_with_granian() -> None:
    with pytest.raises(ValueError, match="do not share a port with granian"):
        Server("app").run("http", workers=2, server="granian")


def test_a_worker_that_cannot_start_says_why() -> None:
    """And the others are ended, without anybody else being sent a signal."""
    code = (
        "from contextlib import asynccontextmanager\n"
        "from mcpearl import Server\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    yield open('no.db')\n"
        "Server('app', lifespan=lifespan).run('http', workers=2, port=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "FileNotFoundError" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("app: a worker ended with code 1 before")
    assert "During handling" not in done.stderr
