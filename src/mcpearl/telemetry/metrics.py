"""Counters of one process, kept by an observer. Calls that are read together are added up at once.

`snapshot` copies the numbers for what shows them: `prometheus` renders them as text, `shared` passes them
between workers. What needs no counting, such as how much is open, is read from the server when a snapshot
is made.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from msgspec import Struct

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import EncodedToolResult
from mcpearl.runtime import clock
from mcpearl.runtime.observer import (
    AnsweredMessage,
    Bound,
    Counters,
    FastObserver,
    Outcome,
    Row,
    outcome_of,
)
from mcpearl.types.jsonrpc import ERROR_CODES
from mcpearl.types.methods import REQUESTS

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of durations, in seconds, as the MCP semantic conventions have them."""
SHORT = BOUNDS[0]
"""The upper bound of the first bucket."""
MAX_SERIES = 2_000
"""Combinations of method, name and outcome that are counted apart."""
OTHER = "_OTHER"
"""Stands for names and error codes that are not counted apart."""

_LARGEST = {"lag", "lag_max"}  # gauges for which the largest value of all processes is shown
_NAMED = ("tools/call", "prompts/get")
_MAX_ROWS = 256  # rows that are kept before they are settled

Key = tuple[str, str, str]
"""Method, name of the tool or prompt, and type of the error; empty where there is none."""
Numbers = list[Any]
"""Of one series: seconds in all, bytes of answers in all, then how many fell into each bucket."""


class Series:
    """The observations of one series."""

    __slots__ = ("_longer", "seconds", "short", "size")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds in all."""
        self.size = 0
        """Bytes of answers in all."""
        self.short = 0
        """How many fell into the first bucket, as most do."""
        self._longer = [0] * len(BOUNDS)  # how many fell into each of the others

    def add(self, seconds: float, size: int) -> None:
        """Add an observation."""
        self.seconds += seconds
        self.size += size
        if seconds <= SHORT:
            self.short += 1
        else:
            self._longer[bisect_left(BOUNDS, seconds) - 1] += 1

    @property
    def numbers(self) -> Numbers:
        """The numbers as they are now."""
        return [self.seconds, self.size, self.short, *self._longer]


class MetricsSnapshot(Struct):
    """The numbers of one process at a moment, or of several added up."""

    calls: dict[Key, Numbers] = {}
    """Calls by method, name and type of error."""
    sessions: dict[str, Numbers] = {}
    """Sessions that have ended, by wire; their bytes are not counted."""
    counters: dict[str, dict[str, float]] = {}
    """Totals that only grow, by metric and label: bounds reached, connections made, restarts."""
    gauges: dict[str, dict[str, float]] = {}
    """Current values, by metric and label."""

    def add(self, other: "MetricsSnapshot", *, gauges: bool = True) -> None:
        """Add the numbers of another process."""
        _add_series(self.calls, other.calls)
        _add_series(self.sessions, other.sessions)
        _add_numbers(self.counters, other.counters)
        if gauges:
            for name in _LARGEST & self.gauges.keys() & other.gauges.keys():
                worst = max(self.gauges[name][""], other.gauges[name][""])
                self.gauges[name][""], other.gauges[name][""] = worst, 0.0
            _add_numbers(self.gauges, other.gauges)


def _add_series(to: dict[Any, Numbers], more: dict[Any, Numbers]) -> None:
    for key, series in more.items():
        mine = to.get(key)
        to[key] = (
            list(series) if mine is None else [a + b for a, b in zip(mine, series, strict=True)]
        )


def _add_numbers(to: dict[str, dict[str, float]], more: dict[str, dict[str, float]]) -> None:
    for name, labelled in more.items():
        mine = to.setdefault(name, {})
        for label, number in labelled.items():
            mine[label] = mine.get(label, 0) + number


class Metrics(FastObserver):
    """Counts what a server does. Cardinality is bounded whatever clients send.

    A name is counted apart once a call of it was answered with a result, or when `knows` says that there
    is a tool or prompt of that name; calls of other names are counted together, as `_OTHER`.

    Args:
        knows: Whether there is a tool (`tools/call`) or prompt (`prompts/get`) of a name.
        max_series: Combinations of method, name and type of error that are counted apart.
    """

    adds_up = True

    def __init__(
        self,
        knows: Callable[[str, str], bool] | None = None,
        max_series: int = MAX_SERIES,
    ) -> None:
        self._knows = knows
        self._max_series = max_series
        self._calls: dict[Key, Series] = {}
        self._tools: dict[str, Series] = {}  # those of the above that are of tools that succeeded
        self._rows: set[Row] = set()  # of connections whose last calls are not counted yet
        self._sessions: dict[str, Series] = {}
        self._began: dict[object, float] = {}  # when each open connection began
        # They are 0 from the start: Prometheus does not see the first event of a series that begins at 1.
        self._counters: dict[str, dict[str, float]] = {
            "bounds": dict.fromkeys(get_args(Bound), 0.0),
            "blocked": {"times": 0.0, "seconds": 0.0},
        }
        self._connections: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._reading: list[tuple[str, Callable[[], tuple[int, int]]]] = []
        self._sent: dict[str, float] = {}  # over connections that have ended
        self._sources: list[Counters] = []
        self._gauges: list[Callable[[], dict[str, dict[str, float]]]] = []
        self.base = MetricsSnapshot()
        """What processes before this one have counted."""

    def started(self, counters: Counters) -> None:
        """Read the counters of a server with each snapshot."""
        self._sources.append(counters)

    def add_gauges(self, read: Callable[[], dict[str, dict[str, float]]]) -> None:
        """Read further numbers with each snapshot, by metric and label."""
        self._gauges.append(read)

    def add_bytes(self, medium: str, read: Callable[[], tuple[int, int]]) -> None:
        """Read how many bytes came and left over a wire with each snapshot, where the wire counts them.

        Args:
            medium: The wire.
            read: Returns the bytes that were received and those that were sent.
        """
        self._reading.append((medium, read))

    # Calls

    def answered(self, call: Any, answer: Any, size: int) -> None:
        """Count a call and its time.

        With a size of 0 the call did not run, was counted before, or its batch is not complete.
        """
        noted = call.noted
        if (
            type(answer) is EncodedToolResult
            and size
            and type(noted) is float
            and call.method == "tools/call"
        ):  # as most are
            took = clock.monotonic() - noted
            series = self._tools.get(call.params.name)
            if series is None or took > SHORT:
                self._series_of_tool(call.params.name).add(took, size)
            else:
                series.seconds += took
                series.size += size
                series.short += 1
        elif type(noted) is list:
            self.tell_followed(call, answer, size)
        elif noted is not None and (size or call.batch is not None):
            self.call_ended(noted, call, outcome_of(answer), size, answer)
            if not size:
                call.noted = None  # it may be answered a second time

    def call_ended(self, began: float, call: Any, outcome: Outcome, size: int, answer: Any) -> None:
        """Count a call that was cancelled, or one that other observers are told of too."""
        self._series_of(call, outcome, answer).add(clock.monotonic() - began, size)

    def _series_of(self, call: Any, outcome: Outcome, answer: Any) -> Series:
        """Return the series of a call; one that is seen for the first time is admitted."""
        method = call.method
        name = call.params.name if method in _NAMED else ""
        error = "" if outcome == "result" else _type_of(outcome, answer)
        series = self._calls.get((method, name, error))
        if series is None:
            series = self._admit(method, name, error, outcome)
        return series

    def add_up(self, row: Row) -> None:
        """Count calls of a tool that succeeded."""
        times, series = row.times, self._series_of_tool(row.tool)
        series.size += row.size
        if max(times) <= SHORT:  # as most rows are
            series.seconds += sum(times)
            series.short += len(times)
            return
        for took in times:
            series.add(took, 0)

    def keep(self, row: Row) -> None:
        """Remember a row until the numbers are wanted; when there are many, settle all."""
        if len(self._rows) >= _MAX_ROWS:
            self._settle()
        self._rows.add(row)

    def _settle(self) -> None:
        """Count the calls that are not counted yet."""
        rows, self._rows = self._rows, set()
        for row in rows:
            row.settle()

    def _series_of_tool(self, name: str) -> Series:
        """Return the series of a tool that succeeded."""
        series = self._tools.get(name)
        return self._admit("tools/call", name, "", "result") if series is None else series

    def _admit(self, method: str, name: str, error: str, outcome: Outcome) -> Series:
        """Return the series of a combination that is seen for the first time, or the one of others."""
        if name and not self._is_known(method, name, outcome):
            name = OTHER
        key = (method, name, error)
        if key not in self._calls and len(self._calls) >= self._max_series:
            key = (OTHER, "", OTHER)
        series = self._calls.setdefault(key, Series())
        if key == ("tools/call", name, ""):
            self._tools[name] = series
        return series

    def _is_known(self, method: str, name: str, outcome: Outcome) -> bool:
        if outcome in ("result", "tool_error") or (method, name, "") in self._calls:
            return True
        return self._knows is not None and self._knows(method, name)

    def message_answered(self, message: AnsweredMessage) -> None:
        """Count a request that was answered without a call."""
        error = "" if message.code is None else code_of(message.code)
        series = self._admit(known_method(message.method), "", error, "result")
        series.add(message.seconds, message.size)

    # Everything else

    def connection_began(self, connection: Any) -> None:
        """Note when a connection or session began."""
        medium = _medium_of(connection)
        if medium is not None:
            self._connections[medium] = self._connections.get(medium, 0) + 1
            self._began[connection] = clock.monotonic()
            connection.transport.tally(partial(self.count_received, medium))

    def connection_ended(self, connection: Any, reason: Exception | None) -> None:
        """Count how long the connection or session lasted."""
        began = self._began.pop(connection, None)
        medium = _medium_of(connection)
        if began is None or medium is None:
            return
        self._sent[medium] = self._sent.get(medium, 0) + _written(connection)
        series = self._sessions.setdefault(medium, Series())
        series.add(clock.monotonic() - began, 0)

    def count_received(self, medium: str, size: int) -> None:
        """Count bytes that came over a wire."""
        self._received[medium] = self._received.get(medium, 0) + size

    def bound_reached(self, bound: str, detail: str) -> None:
        """Count a limit that was reached, by its name, which clients cannot choose."""
        self.count("bounds", bound)

    def loop_blocked(self, what: str, seconds: float) -> None:
        """Count how often the loop was held up, and for how long."""
        self.count("blocked", "times")
        self.count("blocked", "seconds", seconds)

    def count(self, metric: str, label: str = "", number: float = 1) -> None:
        """Add to a counter that only grows.

        Args:
            metric: Its key in `prometheus.METRICS`.
            label: The value of its label.
            number: How much to add.
        """
        counts = self._counters.setdefault(metric, {})
        counts[label] = counts.get(label, 0) + number

    # Showing

    @property
    def series(self) -> int:
        """How many combinations of method, name and type of error are counted apart."""
        self._settle()
        return len(self._calls)

    def snapshot(self) -> MetricsSnapshot:
        """Return the numbers of this process, with those of the processes before it."""
        self._settle()
        counters: dict[str, dict[str, float]] = {
            name: dict(labelled) for name, labelled in self._counters.items()
        }
        counters["connections"] = dict(self._connections)
        found = MetricsSnapshot(
            {key: series.numbers for key, series in self._calls.items()},
            {key: series.numbers for key, series in self._sessions.items()},
            counters,
        )
        media = dict.fromkeys(self._connections, 0.0)  # 0 where all have left, and not nothing
        sent = dict(self._sent)
        for connection in self._began:
            medium = _medium_of(connection) or OTHER
            media[medium] = media.get(medium, 0) + 1
            sent[medium] = sent.get(medium, 0) + _written(connection)
        sent.pop("http", None)  # its sessions are not connections
        received = dict(self._received)
        for medium, reading in self._reading:
            came, left = reading()
            received[medium] = received.get(medium, 0) + came
            sent[medium] = sent.get(medium, 0) + left
        found.counters |= {"received": received, "sent": sent}
        found.gauges["sessions"] = media
        # Sessions over HTTP share connections, which the wire counts itself.
        found.gauges["open_connections"] = {
            medium: number for medium, number in media.items() if medium != "http"
        }
        for source in self._sources:
            server = {name: float(number) for name, number in source().items()}
            server.pop("connections", None)  # they are above
            _add_numbers(found.gauges, {"server": server})
        for read in self._gauges:
            _add_numbers(found.gauges, read())
        found.add(self.base, gauges=False)
        return found


def _type_of(outcome: Outcome, answer: Any) -> str:
    """Return the value of `error.type`: the code of an error, or the kind of failure."""
    if outcome == "error":
        if not isinstance(answer, McpError):
            return type(answer).__name__
        return code_of(answer.code)
    return outcome


def code_of(code: int) -> str:
    """Return the label of an error code: codes that servers make up share one."""
    return str(code) if code in ERROR_CODES else OTHER


def known_method(method: str) -> str:
    """Return the label of a method: methods that clients make up share one."""
    return method if method in REQUESTS else OTHER


def _written(connection: Any) -> float:
    """Return the bytes that were sent on a connection, where that is known."""
    return float(connection.transport.written)


def _medium_of(connection: Any) -> str | None:
    """Return the wire of a connection; None for the one that serves clients without a session."""
    return None if connection.transport is None else connection.transport.medium
