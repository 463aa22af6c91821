"""The scene: two machines with two workers each, one store, a balancer without stickiness, and a killer.

Clients call tools that note that they ran, ask back, sample, report progress and become tasks, and follow
a resource, while a worker is killed every second, and the store is restarted and then stands still, once
each. At the end the books are balanced:

- every call had one outcome, and none ran twice; a call that was answered did run;
- a subscriber heard of the last change;
- no client lost its session;
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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import redis.asyncio

from mcpearl import Client, McpError
from mcpearl.protocol.errors import ConnectionLost, RequestTimeout
from mcpearl.stores.redis_sessions import digest_of
from mcpearl.types.content import TextContent
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.sampling import CreateMessageResult
from tests.deployment.namespaces import Cabled, are_possible, enter
from tests.deployment.round_robin import balancing
from tests.interop.peers import HERE, NODE
from tests.ports import free_port
from tests.redis_server import RedisServer, running

SERVER = Path(__file__).with_name("scene_server.py")
WORKERS = 2
TOOLS = ("record", "record", "record", "count", "ask", "sample", "job")
FROZEN = 7.0  # seconds the store stands still: longer than the server waits for a reply
KEPT = 120
"""Seconds after which what is not used expires in a scene that is waited for."""
EXPIRING = 90.0  # seconds beyond that: a task is kept a minute longer than its time
STAY = ("keys", "tasks:changes")
"""What is documented to stay: the agreed keys, and the notes of tasks that changed."""
OPENED = "opened"
"""What stands among the phases of a client once its session is open."""
PATIENCE = 60.0  # seconds: a task of a dead worker waits for its lease, and perhaps for the store


def _typescript(sdk: str, mode: str) -> Callable[[str, str, float], list[str]]:
    program = str(HERE / "node" / "scene_client.mjs")
    return lambda url, name, seconds: [NODE, program, sdk, mode, url, name, str(seconds)]


def _official(mode: str) -> Callable[[str, str, float], list[str]]:
    program = str(Path(__file__).with_name("official_client.py"))
    return lambda url, name, seconds: [sys.executable, program, url, name, str(seconds), mode]


STRANGERS = {
    "typescript1": _typescript("v1", "legacy"),
    "typescript2": _typescript("v2", "legacy"),
    "typescript2modern": _typescript("v2", "2026-07-28"),
    "official": _official("legacy"),
    "officialmodern": _official("2026-07-28"),
}


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

    def kill_one(self) -> bool:
        """Kill a worker, if there is one beside another."""
        workers = self.workers
        if len(workers) < WORKERS:
            return False
        os.kill(random.choice(workers).pid, signal.SIGKILL)
        return True

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._errors.close()
        if self.cabled is not None:
            self.cabled.close()


class Books:
    """What was done, and how it ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.kinds: Counter[str] = Counter()
        self.phases: dict[str, list[str]] = {}
        self.heard: dict[str, list[float]] = {}
        self.touched = 0.0
        self.kills = 0
        self.restarts = 0
        self.stops = 0
        self.cuts = 0

    def close(self, key: str, outcome: str) -> None:
        assert key not in self.outcomes, f"{key} had two outcomes"
        self.outcomes[key] = outcome
        self.kinds[outcome.partition(":")[0]] += 1

    def silent(self) -> list[str]:
        """Return the clients that have not heard of the last change."""
        return [name for name, heard in self.heard.items() if not heard or heard[-1] < self.touched]


async def agree(params: Any, *_: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"a": "b"})


async def say_yes(params: Any, *_: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="Yes."), model="parrot-1")


async def use(client: Client, books: Books, name: str, until: float) -> None:
    """Call tools one after the other."""
    number = 0
    tools = TOOLS if client.protocol_version != "2025-06-18" else TOOLS[:-1]  # it has no tasks
    while time.monotonic() < until:
        number += 1
        tool, key = random.choice(tools), f"{name}-{number}"
        try:
            result = await client.call_tool(tool, {"key": key}, timeout=PATIENCE)
            books.close(key, "failed" if result.is_error else "answered")
        except ConnectionLost as error:
            books.close(key, f"{'may have run' if error.maybe_executed else 'not run'}: {error}")
        except RequestTimeout as error:
            books.close(key, f"timeout: {error}")
        except McpError as error:
            books.close(key, f"refused: {error}")
        await asyncio.sleep(random.uniform(0.0, 0.05))


@asynccontextmanager
async def a_client(url: str, books: Books, name: str, protocol: str) -> AsyncIterator[Client]:
    phases = books.phases[name] = []
    heard = books.heard[name] = []

    def noticed(notice: Any) -> None:
        if notice.method == "notifications/resources/updated":
            heard.append(time.monotonic())

    client = Client(
        url,
        protocol=protocol,
        elicitation=agree,
        sampling=say_yes,
        on_state=lambda phase: phases.append(phase.name),
        on_notification=noticed,
        keepalive=None,
    )
    async with client:
        await surely(lambda: client.subscribe("state://a"))
        phases.append(OPENED)  # until then, a kill that hits `initialized` makes it begin again
        yield client


async def surely(step: Callable[[], Awaitable[Any]]) -> None:
    """Repeat what may be repeated until it is done: it may hit a worker that is killed just then."""
    while True:
        try:
            await step()
            return
        except (McpError, ConnectionLost, RequestTimeout):
            await asyncio.sleep(0.1)


async def kill(machines: list[Machine], books: Books, until: float, every: float) -> None:
    turn = 0
    while time.monotonic() < until:
        await asyncio.sleep(every)
        books.kills += machines[turn % len(machines)].kill_one()
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
            async with balancing([machine.place for machine in machines]) as balancer:
                acting = _act(store, machines, balancer.port, books, seconds, clients, every)
                url = f"http://127.0.0.1:{balancer.port}/mcp"
                others = [
                    _watch(stranger(url, name, seconds), books)
                    for name, stranger in (STRANGERS.items() if strangers else ())
                ]
                await asyncio.gather(acting, *others)
            figures = _balance(books, log.read_text())
            figures["requests"] = balancer.passed
        except BaseException:
            sys.stderr.write(errors.read_text()[-5000:])
            raise
        finally:
            for machine in machines:
                machine.stop()
        figures["left"] = await _left(store, balancer.ended)
        if kept:
            began = time.monotonic()
            figures["left at the end"] = await _left_at_last(store, 2 * kept + EXPIRING)
            figures["seconds until that"] = round(time.monotonic() - began)
    return figures


async def _watch(command: list[str], books: Books) -> None:
    """Run a client that is not ours, and note the outcomes it prints."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            key, outcome = json.loads(line)
            books.close(key, outcome)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def _act(
    store: RedisServer,
    machines: list[Machine],
    port: int,
    books: Books,
    seconds: float,
    clients: int,
    every: float,
) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    until = time.monotonic() + seconds
    protocols = ("2025-11-25", "2025-06-18", "2025-11-25", "2026-07-28")
    speaks = {f"client{n}": protocols[n % len(protocols)] for n in range(clients)}

    async def visit(name: str) -> None:
        async with a_client(url, books, name, speaks[name]) as client:
            await use(client, books, name, until)
            await done.wait()

    done = asyncio.Event()
    killing = asyncio.create_task(kill(machines, books, until, every))
    cutting = asyncio.create_task(cut(store, books, seconds))
    visits = [asyncio.create_task(visit(name)) for name in speaks]
    await asyncio.gather(killing, cutting, cut_off(machines[0], books, seconds / 4))
    async with Client(url) as client:
        await touch(client, books)
        last = books.touched
        deadline = time.monotonic() + 60  # a client may wait half a minute before it comes back
        while time.monotonic() < deadline and (silent := books.silent()):
            await asyncio.sleep(0.1)
            if {speaks[name] for name in silent} == {"2026-07-28"}:
                # Their stream ended with a worker. This era repeats nothing of what was said meanwhile.
                await asyncio.sleep(1.0)
                if books.silent():
                    await touch(client, books)
        books.touched = last
    done.set()
    await asyncio.gather(*visits)


def _balance(books: Books, log: str) -> dict[str, Any]:
    ran = Counter(line.removeprefix("ran ") for line in log.splitlines())
    twice = [key for key, times in ran.items() if times > 1]
    assert not twice, f"ran twice: {twice}"
    answered = [key for key, outcome in books.outcomes.items() if outcome == "answered"]
    assert all(ran[key] == 1 for key in answered), "a call was answered that did not run"
    wrong = {key: each for key, each in books.outcomes.items() if each.startswith("not run")}
    assert not any(ran[key] for key in wrong), "a call ran of which it was said that it did not"
    assert not books.silent(), f"did not hear of the last change: {books.silent()}"
    lost = [name for name, phases in books.phases.items() if _began_again(phases)]
    assert not lost, f"lost their session: {lost}"
    by_client: dict[str, Counter[str]] = {}
    for key, outcome in books.outcomes.items():
        client = key.rpartition("-")[0]
        by_client.setdefault(client, Counter())[outcome.partition(":")[0]] += 1
    return {
        "calls": len(books.outcomes),
        "by client": {name: dict(outcomes) for name, outcomes in sorted(by_client.items())},
        "outcomes": dict(books.kinds),
        "kills": books.kills,
        "restarts of the store": books.restarts,
        "the store stood still": books.stops,
        "a machine was cut off": books.cuts,
        "errors": sorted({each for each in books.outcomes.values() if ":" in each})[:8],
    }


def _began_again(phases: list[str]) -> bool:
    """Whether a client that had a session began another."""
    return OPENED in phases and "INITIALIZING" in phases[phases.index(OPENED) :]


async def _left(store: RedisServer, ended: list[str]) -> dict[str, int]:
    """Return how many keys of each kind are left.

    Raises `AssertionError` if one stays for ever, or if more is left of a session that was ended than the
    note that it was.
    """
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket))
    owners = {digest_of(id) for id in ended}
    kinds: Counter[str] = Counter()
    async for key in client.scan_iter():
        assert await client.pttl(key) > 0, f"{key!r} stays for ever"
        owner, _, rest = key.decode().partition("{")[2].partition("}:")
        kind = rest.split(":")[0]
        if owner in owners:
            assert kind == "session", f"{key!r} is left of a session that was ended"
            assert await client.hget(key, "revision") == b"-1", f"{key!r} was ended and is there"
            kind = "ended session"
        kinds[kind] += 1
    await client.aclose()
    return dict(kinds)


async def _left_at_last(store: RedisServer, patience: float) -> list[str]:
    """Wait until everything has expired; return the keys that are documented to stay.

    Raises `AssertionError` if others stay.
    """
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket))
    deadline = time.monotonic() + patience
    while True:
        found = {key.decode() async for key in client.scan_iter()}
        others = {key for key in found if key.partition("}:")[2] not in STAY}
        if not others:
            await client.aclose()
            return sorted(found)
        assert time.monotonic() < deadline, f"{len(others)} keys are left: {sorted(others)[:20]}"
        await asyncio.sleep(0.5)


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
