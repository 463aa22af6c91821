"""Kills, freezes, cuts and floods the upstreams of a gateway in turn, under load; then kills the gateway.

Every call has exactly one outcome, nothing runs twice, what an error says did not run did not, and no
process, descriptor, session or parked call is left. Clients that leave without a word are among the load.
`make chaos-gateway` runs it for two minutes; the tests for a few seconds.
"""

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Client, ConnectionLost, McpError, Reconnect, RequestTimeout
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from tests.faults.proxy import FaultProxy
from tests.gateway.upstream_server import LEGACY, MODERN
from tests.ports import free_port
from tests.waiting import at_rest, eventually

_SERVER = str(Path(__file__).with_name("ledger_server.py"))
_UPSTREAMS = {"old": LEGACY, "new": MODERN, "far": LEGACY + MODERN}
_SETTINGS = UpstreamSettings(
    timeout=1.0,
    max_timeout=5.0,
    patience=10.0,
    connect_timeout=30.0,
    reconnect=Reconnect(delays=(0.05, 0.2)),
    idle=0.5,
)
_IDLE = 1.0  # seconds after which the gateway ends the session of a client that is silent
EVERYTHING = [(fault, name) for name in _UPSTREAMS for fault in ("kill", "freeze", "flood")]
EVERYTHING.append(("cut", "far"))


class Load:
    """A client that calls all the time, and what became of its calls."""

    def __init__(self, name: str, url: str, protocol: str) -> None:
        self.name = name
        self.outcomes: Counter[str] = Counter()
        self.answered: list[str] = []
        self.not_run: list[str] = []  # the error said so
        self.begun = 0
        quick = Reconnect(delays=(0.05, 0.2))
        self.client = Client(
            url,
            protocol=protocol,
            timeout=20,
            reconnect=quick,
            elicitation=lambda params: {"value": True},
            validate_output=False,
        )

    async def call_until(self, stop: asyncio.Event, upstream: str) -> None:
        while not stop.is_set():
            await self.call(upstream, "ask" if self.begun % 5 == 0 else "note")

    async def call(self, upstream: str, tool: str) -> None:
        self.begun += 1
        id = f"{self.name}-{upstream}-{self.begun}"
        try:
            result = await self.client.call_tool(f"{upstream}__{tool}", {"id": id})
        except (McpError, ConnectionLost, RequestTimeout) as error:
            self.outcomes[type(error).__name__] += 1
            data = getattr(error, "data", None)
            if isinstance(data, dict) and data.get("mayHaveRun") is False:
                self.not_run.append(id)
            await asyncio.sleep(0.01)
        else:
            assert not result.is_error, result.text
            assert result.text == id
            self.outcomes["answered"] += 1
            self.answered.append(id)
            await asyncio.sleep(0.002)


class Scene:
    """The upstreams, the network to one of them, and what they wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proxy: FaultProxy
        self.total: Counter[str] = Counter()
        self._far: subprocess.Popen[bytes] | None = None
        self._port = free_port()

    def ledger(self, name: str) -> Path:
        return self.folder / f"{name}.ledger"

    def command(self, name: str) -> list[str]:
        versions = ",".join(_UPSTREAMS[name])
        return [sys.executable, _SERVER, versions, str(self.ledger(name))]

    def configuration(self) -> dict[str, Any]:
        near = f"http://127.0.0.1:{self.proxy_port}/mcp"
        servers: dict[str, Any] = {"far": {"url": near}}
        for name in ("old", "new"):
            program, *arguments = self.command(name)
            servers[name] = {"command": program, "args": arguments}
        return {"mcpServers": servers}

    async def __aenter__(self) -> "Scene":
        self.proxy_port = free_port()
        self.proxy = FaultProxy(self.proxy_port, self._port)
        await self.proxy.accept()
        self.start_far()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._far is not None:
            self._far.kill()
            self._far.wait()
        await self.proxy.close()

    def start_far(self) -> None:
        self._far = subprocess.Popen([*self.command("far"), str(self._port)])

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes of an upstream, whichever process started them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if str(self.ledger(name)) in process.cmdline():
                    found.append(process)
        return found

    def signal(self, name: str, number: int) -> None:
        for process in self.processes(name):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    async def until_gone(self, *names: str, but: int = 0) -> None:
        """Wait until upstreams have no more processes than so many."""

        async def gone() -> bool:
            await asyncio.sleep(0.1)  # looking at all processes takes a while
            return sum(len(self.processes(name)) for name in names) <= but

        await eventually(gone, otherwise=lambda: [self.processes(name) for name in names])

    # Faults

    async def kill(self, name: str, loads: list[Load]) -> None:
        self.signal(name, signal.SIGKILL)
        if name == "far":
            assert self._far is not None
            self._far.wait()
            await asyncio.sleep(0.2)
            self.start_far()

    async def freeze(self, name: str, loads: list[Load]) -> None:
        """Stop its processes for longer than a call may take."""
        self.signal(name, signal.SIGSTOP)
        await asyncio.sleep(1.2)
        self.signal(name, signal.SIGCONT)

    async def flood(self, name: str, loads: list[Load]) -> None:
        await asyncio.gather(*(load.call(name, "flood") for load in loads))

    async def cut(self, name: str, loads: list[Load]) -> None:
        self.total["connections cut"] += self.proxy.cut()
        await asyncio.sleep(0.1)
        self.total["connections cut"] += self.proxy.reset()

    def check(self, loads: list[Load]) -> None:
        """Compare what ran with what became of the calls."""
        ran: Counter[str] = Counter()
        for name in _UPSTREAMS:
            with suppress(FileNotFoundError):
                ran.update(self.ledger(name).read_text().split())
        for load in loads:
            assert sum(load.outcomes.values()) == load.begun, "one outcome for each call"
            assert all(ran[id] == 1 for id in load.answered), "what was answered ran once"
            assert not any(ran[id] for id in load.not_run), "what did not run did not"
            self.total.update(load.outcomes)
        assert max(ran.values()) == 1, "nothing ran twice"


def leave_without_a_word(url: str, count: int) -> None:
    """Open sessions, have each start a process of an upstream, and never come back."""
    host = url.removeprefix("http://").partition("/")[0]
    accept = "application/json, text/event-stream"
    for number in range(count):
        connection = http.client.HTTPConnection(host, timeout=60)
        headers = {"Content-Type": "application/json", "Accept": accept}

        def post(
            message: dict[str, Any], connection: Any = connection, headers: Any = headers
        ) -> Any:
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            response = connection.getresponse()
            response.read()
            return response

        info = {"name": "guest", "version": "1"}
        params = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": info}
        opened = post({"id": 1, "method": "initialize", "params": params})
        headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
        post({"method": "notifications/initialized"})
        call = {"name": "old__note", "arguments": {"id": f"guest-{number}"}}
        assert post({"id": 2, "method": "tools/call", "params": call}).status == 200
        connection.close()


@asynccontextmanager
async def under_load(url: str, loads: list[Load]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Call all the time; what is yielded waits until every client was answered by every upstream."""
    stop = asyncio.Event()
    for number, protocol in enumerate((LEGACY[0], MODERN[0])):
        loads.append(load := Load(f"{url.rpartition(':')[2]}-{number}", url, protocol))
        await load.client.connect()
    callers = [
        asyncio.create_task(load.call_until(stop, name))
        for load in loads[-2:]
        for name in _UPSTREAMS
    ]

    async def all_answered() -> None:
        def answered() -> Counter[tuple[str, str]]:
            return Counter(
                (load.name, id.rsplit("-", 2)[1]) for load in loads[-2:] for id in load.answered
            )

        before = answered()
        await eventually(
            lambda: all(
                answered()[load.name, name] > before[load.name, name]
                for load in loads[-2:]
                for name in _UPSTREAMS
            ),
            otherwise=lambda: [task for task in callers if task.done()],
        )

    try:
        await all_answered()
        yield all_answered
    finally:
        stop.set()
        await asyncio.gather(*callers)
        for load in loads[-2:]:
            await load.client.close()


async def faults_of_upstreams(scene: Scene, plan: list[tuple[str, str]], guests: int) -> None:
    """Do to the upstreams of one gateway what is planned, one after the other."""
    loads: list[Load] = []
    gateway = Gateway(scene.configuration(), upstreams=_SETTINGS)
    async with gateway.serving("http", port=0, idle_timeout=_IDLE) as url:
        await eventually(lambda: {status.state for status in gateway.servers.values()} == {"ready"})
        descriptors = await at_rest(psutil.Process().num_fds)
        async with under_load(url, loads) as all_answered:
            for fault, name in plan:
                await getattr(scene, fault)(name, loads)
                scene.total[f"{fault} {name}"] += 1
                await all_answered()
            await asyncio.to_thread(leave_without_a_word, url, guests)
        # One process for the gateway's own connection; those of clients and guests end.
        await scene.until_gone("old", but=1)
        await eventually(
            lambda: (
                not any(len(each.parked) or each.sessions for each in gateway.upstreams.values())
            )
        )
        await eventually(
            lambda: psutil.Process().num_fds() <= descriptors + 2,
            otherwise=lambda: (descriptors, psutil.Process().num_fds()),
        )
    await scene.until_gone("old", "new")
    scene.check(loads)


async def the_gateway_is_killed(scene: Scene, times: int) -> None:
    """Kill the gateway itself, with its clients in the middle of calls, and start it again."""
    file, port = scene.folder / "mcp.json", free_port()
    file.write_text(json.dumps(scene.configuration()))
    command = [sys.executable, "-m", "mcpearl", "gateway", str(file), "--http", "--port", str(port)]
    url, loads = f"http://127.0.0.1:{port}/mcp", []

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    process = start()
    try:
        await eventually(lambda: _listens(port))
        async with under_load(url, loads) as all_answered:
            for _ in range(times):
                process.kill()
                process.wait()
                scene.total["gateway killed"] += 1
                await scene.until_gone("old", "new")
                process = start()
                await all_answered()
    finally:
        process.kill()
        process.wait()
    await scene.until_gone("old", "new")
    scene.check(loads)


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.connect()
    except OSError:
        return False
    connection.close()
    return True


async def rampage(plan: list[tuple[str, str]], kills: int, guests: int) -> Counter[str]:
    """Run both; return what happened how often."""
    with tempfile.TemporaryDirectory() as folder:
        async with Scene(Path(folder)) as scene:
            await faults_of_upstreams(scene, plan, guests)
            await the_gateway_is_killed(scene, kills)
            return scene.total


if __name__ == "__main__":
    happened = asyncio.run(rampage(EVERYTHING * 6, kills=10, guests=30))
    for what, count in sorted(happened.items()):
        print(f"{count:8} {what}")
