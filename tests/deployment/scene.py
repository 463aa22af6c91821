"""The scene: two machines with two workers each, one store, a balancer without stickiness, and a killer.

Clients call tools that note that they ran, ask back, sample, report progress, send the client away and
become tasks, and follow a resource, while a worker is killed every second, and the store is restarted and
then stands still, once each. At the end the books are balanced (`tests.deployment.books`):

- every call had one outcome, and none ran twice; a call that was answered did run, with all its progress;
- an answer to a question that was acknowledged reached the tool that asked, unless its worker was killed,
  and no tool got the answer to another question;
- a subscriber heard of the last change;
- no client lost its session;
- every kind of client had calls of every tool answered, answered questions, heard progress and came back
  to streams, as often as the length of the scene allows to ask;
- every key in the store expires, and nothing is left there of a session that was ended;
- with `kept`, all is waited for: at the end the store has the keys of the deployment and the notes of
  changed tasks, which are documented to stay for a year and an hour, and nothing else.

`python -m tests.deployment.scene --seconds 300 --kind valkey --strangers` runs it for long, with clients
of both TypeScript SDKs and of the official Python SDK as well.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import psutil

from mcpearl import Client, McpError
from mcpearl.protocol.errors import ConnectionLost, RequestTimeout
from mcpearl.types.base import Implementation
from mcpearl.types.content import TextContent
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.sampling import CreateMessageResult
from tests.deployment import strangers as other_sdks
from tests.deployment.books import OPENED, Books, Kind, ServerNotes
from tests.deployment.leftovers import left, left_at_last
from tests.deployment.namespaces import Cabled, are_possible, enter
from tests.deployment.round_robin import Place, balancing
from tests.ports import free_port
from tests.redis_server import RedisServer, running

SERVER = Path(__file__).with_name("scene_server.py")
WORKERS = 2
CALLED = (*other_sdks.TOOLS, "job")
KINDS = (
    Kind("mcpearl 2025-11-25", CALLED, True),
    Kind("mcpearl 2025-06-18", other_sdks.TOOLS, False),  # it has no tasks, and no way to come back
    Kind("mcpearl 2025-11-25", CALLED, True),
    Kind("mcpearl 2026-07-28", CALLED, False),
)
FROZEN = 7.0  # seconds the store stands still: longer than the server waits for a reply
LEAST_KILLS = 3  # however long workers take to start
KEPT = 120
"""Seconds after which what is not used expires in a scene that is waited for."""
EXPIRING = 90.0  # seconds beyond that: a task is kept a minute longer than its time
PATIENCE = 60.0  # seconds: a task of a dead worker waits for its lease, and perhaps for the store


class Killable(Protocol):
    """A machine of a scene, as far as the killer knows it."""

    def kill_one(self) -> int | None:
        """Kill a worker; return its process, or None if none could be spared."""
        ...


class Machine:
    """One parent with its workers."""

    def __init__(
        self, store: str, log: Path, errors: Path, cabled: Cabled | None = None, kept: int = 0
    ) -> None:
        self.cabled = cabled
        self.place = "127.0.0.1" if cabled is None else cabled.host, free_port()
        self._errors = errors.open("ab")
        host, port = self.place
        command = [] if cabled is None else list(cabled.prefix)
        command += [sys.executable, str(SERVER), str(port), str(WORKERS), store, str(log), host]
        command.append(str(kept))
        self.process = subprocess.Popen(command, stderr=self._errors)

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    async def up(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                host, port = self.place
                async with Client(f"http://{host}:{port}/mcp", connect_timeout=2) as client:
                    await client.list_tools()
                return
            except Exception:
                assert self.process.poll() is None, "a machine did not start"
                await asyncio.sleep(0.05)
        raise AssertionError("a machine did not come up")

    def kill_one(self) -> int | None:
        """Kill a worker, if there is one beside another."""
        workers = self.workers
        if len(workers) < WORKERS:
            return None
        chosen = random.choice(workers).pid
        os.kill(chosen, signal.SIGKILL)
        return chosen

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._errors.close()
        if self.cabled is not None:
            self.cabled.close()


class Visitor:
    """One of our clients: it calls tools one after the other, and follows a resource.

    Args:
        books: Where it notes what happens.
        name: What it is called.
        kind: What it can do; the last word of its name is the version it speaks.
        patience: Seconds it waits for an answer.
    """

    def __init__(self, books: Books, name: str, kind: Kind, patience: float = PATIENCE) -> None:
        self._books = books
        self._patience = patience
        self.name = name
        self.kind = kind
        books.kinds[name] = kind

    async def agree(self, params: Any, *_: Any) -> ElicitResult:
        """Answer a question with the key it ends with."""
        self._books.asked[self.name] += 1
        return ElicitResult(action="accept", content={"a": params.message.split()[-1]})

    async def sample(self, params: Any, *_: Any) -> CreateMessageResult:
        """Answer for a model, with the key the question ends with."""
        self._books.asked[self.name] += 1
        said = TextContent(text=params.messages[0].content.text.split()[-1])
        return CreateMessageResult(role="assistant", content=said, model="parrot-1")

    def client(self, url: str, **options: Any) -> Client:
        """Return a client that answers questions."""
        return Client(
            url,
            protocol=self.kind.name.split()[-1],
            info=Implementation(name=self.name, version="1"),
            elicitation=self.agree,
            sampling=self.sample,
            keepalive=None,
            **options,
        )

    @asynccontextmanager
    async def subscribed(self, url: str) -> AsyncIterator[Client]:
        """Connect, and follow the resource."""
        phases = self._books.phases[self.name] = []
        heard = self._books.heard[self.name] = []

        def noticed(notice: Any) -> None:
            if notice.method == "notifications/resources/updated":
                heard.append(time.monotonic())

        client = await self._connected(
            url, on_state=lambda phase: phases.append(phase.name), on_notification=noticed
        )
        try:
            await surely(lambda: client.subscribe("state://a"))
            phases.append(OPENED)  # until then, a kill that hits `initialized` makes it begin again
            yield client
        finally:
            await client.close()

    async def _connected(self, url: str, **options: Any) -> Client:
        """Connect, as often as it takes: workers are killed from the beginning."""
        while True:
            client = self.client(url, **options)
            try:
                await client.connect()
                return client
            except (McpError, ConnectionLost, RequestTimeout):
                await client.close()
                await asyncio.sleep(0.1)

    async def use(self, client: Client, until: float, first: int = 1) -> int:
        """Call tools one after the other until time is up; return the number of the next call.

        Each tool is called at least once, however slow the machine is.
        """
        number = first
        tools = self.kind.tools
        while time.monotonic() < until or number - first < len(tools):
            await self._call(client, tools[number % len(tools)], f"{self.name}-{number}")
            number += 1
            await asyncio.sleep(random.uniform(0.0, 0.05))
        return number

    async def _call(self, client: Client, tool: str, key: str) -> None:
        progress: list[float] = []
        outcome = "lost: the client ended"
        try:
            result = await client.call_tool(
                tool,
                {"key": key},
                timeout=self._patience,
                on_progress=lambda told: progress.append(told.progress),
            )
            outcome = "failed" if result.is_error else "answered"
        except ConnectionLost as error:
            outcome = f"{'may have run' if error.maybe_executed else 'not run'}: {error}"
        except RequestTimeout as error:
            outcome = f"timeout: {error}"
        except McpError as error:
            outcome = f"refused: {error}"
        finally:
            self._books.close(self.name, key, tool, outcome, progress)


async def surely(step: Callable[[], Awaitable[Any]]) -> None:
    """Repeat what may be repeated until it is done: it may hit a worker that is killed just then."""
    while True:
        try:
            await step()
            return
        except (McpError, ConnectionLost, RequestTimeout):
            await asyncio.sleep(0.1)


async def kill(machines: list[Killable], books: Books, until: float, every: float) -> None:
    """Kill a worker of each machine in turn, until time is up and a few are killed."""
    turn = 0
    while time.monotonic() < until or books.kills < LEAST_KILLS:
        await asyncio.sleep(every)
        killed = machines[turn % len(machines)].kill_one()
        if killed is not None:
            books.kills += 1
            books.killed.add(killed)
        turn += 1


async def cut(store: RedisServer, books: Books, seconds: float) -> None:
    """Restart the store in the middle, and let it stand still later, with its connections open."""
    await asyncio.sleep(seconds / 2)
    await asyncio.to_thread(store.stop)
    await asyncio.sleep(1.0)
    await asyncio.to_thread(store.start)
    books.restarts += 1
    await asyncio.sleep(seconds / 4)
    store.pause()
    await asyncio.sleep(FROZEN)
    store.resume()
    books.stops += 1


async def cut_off(machine: Machine, books: Books, after: float) -> None:
    """Cut a machine off its clients and the store for a while, if it has a cable."""
    if machine.cabled is not None:
        await asyncio.sleep(after)
        machine.cabled.cut()
        await asyncio.sleep(FROZEN)
        machine.cabled.mend()
        books.cuts += 1


async def touch(client: Client, books: Books) -> None:
    """Change the resource, for sure."""

    async def change() -> None:
        began = time.monotonic()
        await client.call_tool("touch", {"name": "a"}, timeout=10.0)
        books.touched = began

    await surely(change)


async def play(
    kind: str,
    seconds: float,
    clients: int,
    every: float = 1.0,
    *,
    strangers: bool = False,
    namespaces: bool = False,
    kept: int = 0,
) -> dict[str, Any]:
    """Play the scene; return its figures. Raises `AssertionError` if the books do not balance.

    With `strangers`, clients that are not ours take part; what they hear of updates is not asked. With
    `namespaces`, each machine has a network of its own, and one is cut off for a while. With `kept`, what
    is in the store and not used expires after so many seconds, and is waited for.
    """
    books = Books()
    reached = ["--bind", "0.0.0.0", "--protected-mode", "no"] if namespaces else []
    port = free_port() if namespaces else 0
    with tempfile.TemporaryDirectory() as folder, running(kind, *reached, port=port) as store:
        log, errors = Path(folder) / "ran", Path(folder) / "errors"
        log.touch()
        cables = [Cabled(number) for number in range(2)] if namespaces else [None, None]
        machines = [
            Machine(
                store.url if each is None else f"redis://{each.near}:{port}",
                *(log, errors, each, kept),
            )
            for each in cables
        ]
        try:
            await asyncio.gather(*(machine.up() for machine in machines))
            places: list[Place] = [machine.place for machine in machines]
            async with balancing(places, watch=books.ledger.note) as balancer:
                url = f"http://127.0.0.1:{balancer.port}/mcp"
                visits = [
                    other_sdks.visit(each, url, seconds, books)
                    for each in (other_sdks.STRANGERS if strangers else ())
                ]
                acting = _act(store, machines, url, books, seconds, clients, every)
                await asyncio.gather(acting, *visits)
            faults = books.faults(ServerNotes(log.read_text())) + books.shortages(seconds)
            assert not faults, "\n".join(faults)
        except BaseException:
            sys.stderr.write(errors.read_text()[-5000:])
            sys.stderr.write(json.dumps(books.figures(), indent=2))
            raise
        finally:
            for machine in machines:
                machine.stop()
        figures = {**books.figures(), "requests": balancer.passed}
        figures["sessions ended"] = len(balancer.ended)
        figures["sessions not ended"] = balancer.begun - len(balancer.ended)
        figures["left"] = await left(store, balancer.ended)
        if kept:
            began = time.monotonic()
            figures["left at the end"] = await left_at_last(store, 2 * kept + EXPIRING)
            figures["seconds until that"] = round(time.monotonic() - began)
    return figures


async def _act(
    store: RedisServer,
    machines: list[Machine],
    url: str,
    books: Books,
    seconds: float,
    clients: int,
    every: float,
) -> None:
    until = time.monotonic() + seconds
    visitors = [Visitor(books, f"client{n}", KINDS[n % len(KINDS)]) for n in range(clients)]

    async def visit(visitor: Visitor) -> None:
        async with visitor.subscribed(url) as client:
            await visitor.use(client, until)
            await done.wait()

    done = asyncio.Event()
    killing = asyncio.create_task(kill(list(machines), books, until, every))
    cutting = asyncio.create_task(cut(store, books, seconds))
    visits = [asyncio.create_task(visit(each)) for each in visitors]
    await asyncio.gather(killing, cutting, cut_off(machines[0], books, seconds / 4))
    async with Client(url) as client:
        await touch(client, books)
        last = books.touched
        deadline = time.monotonic() + 60  # a client may wait half a minute before it comes back
        while time.monotonic() < deadline and (silent := books.silent()):
            await asyncio.sleep(0.1)
            if {books.kinds[name] for name in silent} == {KINDS[3]}:
                # Their stream ended with a worker. This era repeats nothing of what was said meanwhile.
                await asyncio.sleep(1.0)
                if books.silent():
                    await touch(client, books)
        books.touched = last
    done.set()
    await asyncio.gather(*visits)


def main() -> None:
    """Play the scene, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kind", choices=("redis", "valkey"), default="redis")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--strangers", action="store_true")
    parser.add_argument("--namespaces", action="store_true", help="where the system allows it")
    parser.add_argument("--kept", type=int, default=KEPT, help="0 for the times of a deployment")
    options = parser.parse_args()
    namespaces = options.namespaces and are_possible()
    if namespaces:
        enter()
    figures = asyncio.run(
        play(
            *(options.kind, options.seconds, options.clients),
            strangers=options.strangers,
            namespaces=namespaces,
            kept=options.kept,
        )
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
