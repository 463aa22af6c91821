"""What a server looks like at a moment, as the page shows it. Nothing here changes the server."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count, islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from mcpearl.console.watch import LiveWatch, name_of, session_of, trace_of
from mcpearl.host.records import ServerStatus
from mcpearl.protocol.events import Call
from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime import clock
from mcpearl.server.connection import ServerConnection
from mcpearl.server.server import Server
from mcpearl.server.solo_connection import SoloConnection
from mcpearl.telemetry.process import process_gauges

MAX_ROWS = 200  # sessions, calls and tasks that are shown at once
Usage = Callable[[], Mapping[str, tuple[int, int]]]
"""Returns how much of each bound of a wire is in use, and the bound."""
Connection = ServerConnection | SoloConnection


class RunningCall(NamedTuple):
    """A call that is in flight."""

    number: int
    call: Call
    connection: Connection
    since: float


def _began(call: Call, now: float) -> float:
    """Return when a call began, which observers note; `now` for one that is not noted yet."""
    noted = call.noted if isinstance(call.noted, list) else [call.noted]  # of several observers
    return next((each for each in noted if isinstance(each, float)), now)


class Live:
    """Looks at one server for all open pages.

    Args:
        server: The server.
        watch: Its observer.
        usages: Tell how near the bounds of wires are.
    """

    def __init__(self, server: Server, watch: LiveWatch, usages: list[Usage]) -> None:
        self._server = server
        self._watch = watch
        self._usages = usages
        self._numbers = count(1)
        self._connections: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self.running: dict[int, RunningCall] = {}  # calls in flight at the last look, by `id`
        self._looked_at = clock.monotonic()
        self._cpu = process_gauges()["process_cpu_seconds"][""]
        self._calls = watch.calls
        self._outcomes = dict(watch.outcomes)

    # Figures

    def pulse(self, lag: float) -> dict[str, Any]:
        """Return the figures of the interval since the last look; `lag` is the loop's."""
        watch, core = self._watch, self._server.core
        process = process_gauges()
        now, cpu = clock.monotonic(), process["process_cpu_seconds"][""]
        elapsed = max(now - self._looked_at, 1e-6)
        calls = watch.calls - self._calls
        times = watch.take_times()
        failed = {
            kind: amount - self._outcomes[kind]
            for kind, amount in watch.outcomes.items()
            if kind != "result"
        }
        used = (cpu - self._cpu) / elapsed
        self._looked_at, self._cpu, self._calls = now, cpu, watch.calls
        self._outcomes = dict(watch.outcomes)
        return {
            "at": clock.now(),
            "rate": calls / elapsed,
            "calls": calls,
            "times": [round(took * 1e6) for took in times],  # µs; the page merges those of workers
            "errors": sum(failed.values()) / elapsed,
            "failed": failed,
            "in_flight": sum(len(each.end.in_flight) for each in core.roster),
            "connections": len(core.roster),
            "sessions": sum(each.session is not None for each in core.roster),
            "lag": lag,
            "cpu": used,
            "memory": process.get("process_resident_memory_bytes", {}).get("", 0),
            "held": core.budget.held,
            "totals": {"calls": watch.calls, **watch.outcomes},
        }

    # Tables

    def sessions(self) -> dict[str, Any]:
        """Return the clients that are connected, and what they hold."""
        roster = self._server.core.roster
        rows = [self._row(each) for each in islice(roster, MAX_ROWS)]
        rows.sort(key=lambda row: row["number"])  # the roster has no order that lasts
        return {"rows": rows, "all": len(roster)}

    def _row(self, connection: Connection) -> dict[str, Any]:
        number = self._connections.get(connection)
        if number is None:
            number = self._connections[connection] = next(self._numbers)
        flying = len(connection.end.in_flight)
        if isinstance(connection, SoloConnection):
            return {"number": number, "client": None, "in_flight": flying}
        caller, transport = connection.end.caller, connection.transport
        client = None if caller is None else caller.client
        id = transport.session_id
        heard = connection.heard_at
        principal = None if caller is None else caller.principal
        return {
            "number": number,
            "client": "(without a session)"
            if client is None
            else f"{client.name} {client.version}",
            "protocol": None if caller is None else caller.version.name,
            "session": id[:10] if id is not None else None,
            "wire": transport.medium,
            "principal": None if principal is None else principal.subject,
            "in_flight": flying,
            "asked": len(connection.end.pending),
            "subscriptions": connection.followed(),
            "held": connection.held,
            "silent": connection.loop.time() - heard if heard else None,
            "is_session": connection.session is not None,
        }

    def find_connection(self, number: int) -> Connection | None:
        """Return the connection that is shown under a number."""
        return next((each for each, own in self._connections.items() if own == number), None)

    def calls_in_flight(self) -> dict[str, Any]:
        """Return the calls that are in flight, the oldest first."""
        now, found = clock.monotonic(), dict[int, RunningCall]()
        total = 0
        for connection in self._server.core.roster:
            flying = connection.end.in_flight
            total += len(flying)
            for call in islice(flying.values(), max(MAX_ROWS - len(found), 0)):
                known = self.running.get(id(call))
                if known is None or known.call is not call:
                    known = RunningCall(next(self._numbers), call, connection, _began(call, now))
                found[id(call)] = known
        self.running = found
        rows = [
            {
                "number": each.number,
                "method": each.call.method,
                "name": name_of(each.call),
                "session": session_of(each.call),
                "trace": trace_of(each.call),
                "client": client.name if (client := each.call.caller.client) else None,
                "seconds": max(now - each.since, 0.0),
            }
            for each in sorted(found.values(), key=lambda each: each.since)
        ]
        return {"rows": rows, "all": total}

    def tasks(self) -> dict[str, Any] | None:
        """Return the tasks of this process by state; None if no tool can be a task."""
        feed = self._server.core.tasks
        if feed is None:
            return None
        engine = feed.engine
        states: dict[str, int] = {state: engine.ended[state] for state in sorted(TERMINAL)}
        rows: list[dict[str, Any]] = []
        for task_id, run in tuple(engine.runs.items()):
            record = run.record
            state = "working" if record is None else record.status
            states[state] = states.get(state, 0) + 1
            if len(rows) < MAX_ROWS:
                rows.append(
                    {
                        "id": task_id[:12],
                        "name": name_of(run.call),
                        "state": state,
                        "message": None if record is None else record.status_message,
                        "seconds": 0 if record is None else clock.now() - record.created,
                    }
                )
        return {"states": states, "waiting": len(engine.queue), "rows": rows}

    def upstreams(self) -> list[dict[str, Any]]:
        """Return how the servers stand that this one passes calls on to."""
        found: dict[str, Any] = dict(getattr(self._server, "servers", ()))
        for name, mount in self._server.mounts.items():
            found.setdefault(name, getattr(mount.part, "status", None))
        return [
            {
                "name": name,
                "state": status.state,
                "reason": status.reason,
                "tries": status.tries,
                "seconds": clock.now() - status.since if status.since else None,
                "protocol": status.protocol_version,
            }
            for name, status in islice(found.items(), MAX_ROWS)
            if isinstance(status, ServerStatus)
        ]

    def bounds(self) -> list[dict[str, Any]]:
        """Return how near each bound is, and how often it was reached."""
        server, core = self._server, self._server.core
        fullest = max((len(each.end.in_flight) for each in core.roster), default=0)
        uses: dict[str, tuple[int, int]] = {
            "max_held": (core.budget.held, core.budget.total),
            "Limits.max_in_flight": (fullest, core.limits.max_in_flight),
            "threads": (server.threads.busy, server.threads.size),
            "waiting for a thread": (server.threads.waiting, server.threads.backlog),
        }
        if core.tasks is not None:
            engine = core.tasks.engine
            uses["TaskBounds.max_running"] = (len(engine.runs), engine.bounds.max_running)
        for usage in self._usages:
            uses |= usage()
        reached = self._watch.bounds
        rows = [
            {
                "name": name,
                "used": used,
                "limit": limit,
                "reached": reached[name],
                "detail": self._watch.reached.get(name),
            }
            for name, (used, limit) in uses.items()
        ]
        rows += [
            {"name": name, "reached": times, "detail": self._watch.reached.get(name)}
            for name, times in reached.items()
            if name not in uses
        ]
        return rows

    def tree(self) -> Any:
        """Return the supervision tree."""
        return self._server.tree()


class LagMeter:
    """How late the event loop comes round to its timers; it runs only while a page is open."""

    _EVERY = 0.1

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._longest = 0.0

    def start(self) -> None:
        """Begin to measure."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._EVERY, self._look, loop, loop.time() + self._EVERY)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._longest = max(self._longest, loop.time() - due)
        self.start()

    def take(self) -> float:
        """Return the longest delay since the last time, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
