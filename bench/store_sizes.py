"""What everything takes in the store: commands, bytes on its wire, and memory, for each kind of event.

    python -m bench.store_sizes --kind valkey

These are counts, so other work on the machine does not change them. Two servers share a store of their
own; each kind of event is made a number of times, and the difference of the store's own counters is
divided by that. "Commands" are those a server sends, a script being one; "inside" are those that the
store carries out, those of scripts included. What the servers send once a second in any case is measured
beside and taken off.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import redis.asyncio
from tests.deployment.machines import TAKES_TASKS, Machine, two_machines
from tests.redis_server import RedisServer, running
from tests.transports.raw_http import Response, Session, modern

from mcpearl.server.tasks.options import Tasks

COUNT = 200
IDLE_SECONDS = 10.0
_SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval")
_OTHERS = ("cmdstat_info", "cmdstat_client", "cmdstat_hello", "cmdstat_ping", "cmdstat_memory")

Kind = Callable[[int], Awaitable[Any]]


class Figures(NamedTuple):
    """What the store has counted so far, and the time."""

    sent: float
    inside: float
    received: float
    replied: float
    memory: float
    time: float

    def minus(self, other: "Figures") -> "Figures":
        """Return the difference."""
        return Figures(*(mine - its for mine, its in zip(self, other, strict=True)))


class Meter:
    """Reads the counters of the store."""

    def __init__(self, store: RedisServer, machines: tuple[Machine, Machine]) -> None:
        self._client = redis.asyncio.Redis(unix_socket_path=str(store.socket))
        self._machines = machines
        self._idle = Figures(0, 0, 0, 0, 0, 1)

    async def now(self) -> Figures:
        """Return the counters; writes that are put off are waited for."""
        await asyncio.sleep(1.5)
        info = await self._client.info("everything")
        inside = sum(
            each["calls"]
            for name, each in info.items()
            if name.startswith("cmdstat_") and name not in _SCRIPTS and not name.startswith(_OTHERS)
        )
        return Figures(
            sum(machine.store.link.sent for machine in self._machines),
            inside,
            info["total_net_input_bytes"],
            info["total_net_output_bytes"],
            info["used_memory_dataset"],
            asyncio.get_running_loop().time(),
        )

    async def idle(self) -> Figures:
        """Measure what is sent without any event."""
        before = await self.now()
        await asyncio.sleep(IDLE_SECONDS)
        self._idle = (await self.now()).minus(before)
        return self._idle

    async def of(self, kind: Kind) -> Figures:
        """Return what one event of a kind takes."""
        before = await self.now()
        for number in range(COUNT):
            await kind(number)
        spent = (await self.now()).minus(before)
        share = spent.time / self._idle.time
        idle = [each * share for each in self._idle[:4]]
        found = [(all - beside) / COUNT for all, beside in zip(spent[:4], idle, strict=True)]
        return Figures(*found, spent.memory / COUNT, spent.time)


class Scenes:
    """The kinds of events, each in the sessions that the first one began."""

    def __init__(self, one: Machine, two: Machine) -> None:
        self._one = one
        self._two = two
        self._sessions: list[Session] = []
        self._elsewhere: list[Session] = []
        self._streams: list[Response] = []

        @one.app.tool(task=Tasks(required=True))
        async def job() -> str:
            "Work as a task."
            return "done"

    def all(self) -> dict[str, Kind]:
        """Return the kinds of events, in the order they have to be made."""
        return {
            "a session that begins": self.begin,
            "a call in it, at the same worker": self.call,
            "the first call at another worker": self.call_elsewhere,
            "a further call there": self.call_elsewhere_again,
            "a modern call": self.call_modern,
            "a subscription to a resource": self.subscribe,
            "a change of the log level": self.set_level,
            "a value in `Context.session`": self.keep,
            "a standing stream that is opened": self.listen,
            "a call with five progress messages": self.count,
            "a question whose answer lands elsewhere": self.ask,
            "a task: created, run, collected": self.task,
            "a session that is ended": self.end,
        }

    async def begin(self, number: int) -> None:
        session = await self._one.raw.initialize()
        self._sessions.append(session)
        self._elsewhere.append(self._two.take_up(session))

    async def call(self, number: int) -> None:
        await self._sessions[number].use("add", {"a": 1, "b": 2})

    async def call_elsewhere(self, number: int) -> None:
        await self._elsewhere[number].use("add", {"a": 1, "b": 2})

    call_elsewhere_again = call_elsewhere

    async def call_modern(self, number: int) -> None:
        await self._one.raw.call("add", {"a": 1, "b": 2})

    async def subscribe(self, number: int) -> None:
        await self._sessions[number].ask("resources/subscribe", {"uri": "config://a"})

    async def set_level(self, number: int) -> None:
        await self._sessions[number].ask("logging/setLevel", {"level": "warning"})

    async def keep(self, number: int) -> None:
        await self._sessions[number].use("keep")

    async def listen(self, number: int) -> None:
        stream = await self._sessions[number].get()
        await stream.event()
        self._streams.append(stream)

    async def count(self, number: int) -> None:
        stream = await self._sessions[number].use("count", {"to": 5}, id=7, token="t")
        await stream.rest()

    async def ask(self, number: int) -> None:
        stream = await self._sessions[number].use("ask", id=8)
        question = await stream.next()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        await self._elsewhere[number].post(answer)
        await stream.rest()

    async def task(self, number: int) -> None:
        raw = self._one.raw
        headers, body = modern("tools/call", {"name": "job", "arguments": {}}, **TAKES_TASKS)
        id = (await raw.post(body, headers)).json["result"]["taskId"]
        while True:
            headers, body = modern("tasks/get", {"taskId": id}, **TAKES_TASKS)
            if (await raw.post(body, headers)).json["result"]["status"] == "completed":
                return

    async def end(self, number: int) -> None:
        await self._sessions[number].delete()

    async def announce(self) -> None:
        """Announce an update to all streams, and wait until all have it."""
        self._one.app.notify_resource_updated("config://a")
        for stream in self._streams:
            while (await stream.next())["method"] != "notifications/resources/updated":
                pass


async def measure(kind: str) -> None:
    """Measure on a store of a kind, and print a table."""
    with running(kind, "--appendfsync", "no") as store:
        async with two_machines(store.url) as machines:
            for machine in machines:
                machine.go.set()
            meter, scenes = Meter(store, machines), Scenes(*machines)
            idle = await meter.idle()
            print("| in the store | commands | inside | bytes to it | bytes from it | memory |")
            print("|---|---|---|---|---|---|")
            rate = [each / idle.time / len(machines) for each in idle[:4]]
            print(f"| a process that does nothing, in a second | {_shown(*rate)} | 0 |")
            for name, event in scenes.all().items():
                if name == "a session that is ended":
                    before = await meter.now()
                    await scenes.announce()
                    spent = (await meter.now()).minus(before)
                    each = [figure / COUNT for figure in spent[:5]]
                    print(f"| an update, for each of {COUNT} streams | {_shown(*each)} |")
                found = await meter.of(event)
                print(f"| {name} | {_shown(*found[:5])} |", flush=True)


def _shown(*figures: float) -> str:
    numbers = [f"{max(0.0, figure):,.2f}" for figure in figures[:2]]
    return " | ".join([*numbers, *(f"{figure:,.0f}" for figure in figures[2:])])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("redis", "valkey"), default="redis")
    asyncio.run(measure(parser.parse_args().kind))


if __name__ == "__main__":
    main()
