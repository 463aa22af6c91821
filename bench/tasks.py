"""Tasks on stdio: created, run and collected, beside FastMCP's on its memory broker.

The driver calls a tool that becomes a task a hundred times at once, looks at the tasks until all are
completed, and does that again. It speaks 2026-07-28 to every server.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
from tests.redis_server import running

from bench.environments import SERVERS, python_peer
from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.stdio import Process, write

AT_ONCE = 100
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "bench", "version": "1.0.0"},
    f"{PREFIX}clientCapabilities": {
        "elicitation": {},
        "extensions": {f"{PREFIX}tasks": {}},
    },
}


class Modern(Process):
    """A server that is spoken to in 2026-07-28."""

    _last = 0

    def initialize(self) -> None:
        """See that the server has tasks."""
        (answer,) = self.ask("server/discover", [{}])
        if f"{PREFIX}tasks" not in answer["capabilities"].get("extensions", {}):
            raise WrongAnswer(f"it has no tasks: {answer}")

    def ask(self, method: str, params: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send requests together and return their results in order."""
        first = self._last + 1
        self._last += len(params)
        write(
            self.stdin,
            b"".join(
                msgspec.json.encode(
                    {
                        "jsonrpc": "2.0",
                        "id": first + number,
                        "method": method,
                        "params": {**each, "_meta": META},
                    }
                )
                + b"\n"
                for number, each in enumerate(params)
            ),
        )
        results: dict[int, dict[str, Any]] = {}
        for line in self.read_lines(len(params)):
            answer = msgspec.json.decode(line)
            if "result" not in answer:
                raise WrongAnswer(f"{method} was answered with {answer}")
            results[answer["id"]] = answer["result"]
        return [results[first + number] for number in range(len(params))]

    def call(self, tool: str, count: int) -> list[dict[str, Any]]:
        """Call a tool several times at once."""
        arguments = [{"a": number, "b": 7 * number} for number in range(count)]
        return self.ask("tools/call", [{"name": tool, "arguments": each} for each in arguments])


def run(results: Results, *, quick: bool) -> None:
    """Measure tasks of mcpearl in memory and on disk, and of FastMCP in memory."""
    rounds = 1 if quick else 5
    for number in range(1, rounds + 1):
        say(f"tasks: round {number} of {rounds}")
        with results.noting("tasks, FastMCP"), fastmcp() as server:
            rate(server, 2)
            results.add_round("tasks_memory", "fastmcp", rate(server, 2 if quick else 5))
        with results.noting("tasks, mcpearl"), mcpearl() as server:
            rate(server, 5)
            results.add_round("tasks_memory", MCPEARL.name, rate(server, 5 if quick else 50))
            results.add_round("tasks_id", MCPEARL.name, time_to_id(server, 20 if quick else 500))
            calls = 5 if quick else 100
            results.add_round("tasks_after", MCPEARL.name, after_against_plain(server, calls))
        with results.noting("waiting tasks, mcpearl"), mcpearl() as server:
            waiting = memory_of_waiting(server, 200 if quick else 5000)
            results.add_round("tasks_waiting", MCPEARL.name, waiting)
        with tempfile.TemporaryDirectory() as folder:
            store = f"sqlite:///{folder}/tasks.db"
            with results.noting("tasks in SQLite, mcpearl"), mcpearl(store) as server:
                rate(server, 2)
                results.add_round("tasks_sqlite", MCPEARL.name, rate(server, 3 if quick else 20))
        with (
            results.noting("tasks in Redis, mcpearl"),
            running("redis", "--appendfsync", "everysec") as redis,
            mcpearl(redis.url) as server,
        ):
            rate(server, 2)
            results.add_round("tasks_redis", MCPEARL.name, rate(server, 3 if quick else 20))


@contextmanager
def mcpearl(*arguments: str) -> Iterator[Modern]:
    """Serve mcpearl's tasks."""
    server = Modern([sys.executable, str(SERVERS / "mcpearl_task_server.py"), *arguments])
    try:
        yield server
    finally:
        server.close()


@contextmanager
def fastmcp() -> Iterator[Modern]:
    """Serve FastMCP's tasks."""
    python: Path = python_peer("fastmcp")
    server = Modern([str(python), str(SERVERS / "fastmcp_task_server.py")])
    try:
        yield server
    finally:
        server.close()


def rate(server: Modern, bursts: int) -> float:
    """Tasks created, run and collected per second."""
    began = time.perf_counter()
    for _ in range(bursts):
        open_tasks = {task["taskId"]: n for n, task in enumerate(server.call("add_task", AT_ONCE))}
        while open_tasks:
            for task in server.ask("tasks/get", [{"taskId": id} for id in open_tasks]):
                if task["status"] == "completed":
                    number = open_tasks.pop(task["taskId"])
                    if task["result"]["structuredContent"] != {"result": 8 * number}:
                        raise WrongAnswer(f"a task ended with {task}")
                elif task["status"] != "working":
                    raise WrongAnswer(f"a task is {task}")
    return bursts * AT_ONCE / (time.perf_counter() - began)


def time_to_id(server: Modern, count: int) -> float:
    """Milliseconds from a call to the id of its task, in the median."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        server.call("add_task", 1)
        times.append(time.perf_counter() - began)
    return sorted(times)[count // 2] * 1000


def after_against_plain(server: Modern, bursts: int) -> float:
    """Calls of a tool that may become a task, in percent of calls of a plain one."""
    spent = {"add": 0.0, "add_after": 0.0}
    for _ in range(bursts):
        for tool in spent:
            began = time.perf_counter()
            server.call(tool, AT_ONCE)
            spent[tool] += time.perf_counter() - began
    return 100 * spent["add"] / spent["add_after"]


def memory_of_waiting(server: Modern, count: int) -> float:
    """Kilobytes of a task that waits for input."""
    process = psutil.Process(server.popen.pid)
    server.call("asks", AT_ONCE)
    before = process.memory_info().rss
    for _ in range(count // AT_ONCE):
        ids = [task["taskId"] for task in server.call("asks", AT_ONCE)]
        while any(
            task["status"] != "input_required"
            for task in server.ask("tasks/get", [{"taskId": id} for id in ids])
        ):
            pass
    return (process.memory_info().rss - before) / count / 1024
