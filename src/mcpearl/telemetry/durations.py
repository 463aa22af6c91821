"""Durations of calls and sessions for OpenTelemetry: the instruments, and attributes that stay few.

The attributes are those of the MCP semantic conventions. Combinations are bounded as those of the
Prometheus page are, whatever clients send and servers answer.
"""

from functools import lru_cache
from typing import Any, Literal

from opentelemetry import metrics
from opentelemetry.context import Context

from mcpearl._version import __version__
from mcpearl.telemetry.metrics import BOUNDS, MAX_SERIES, OTHER
from mcpearl.types.jsonrpc import ERROR_CODES

Side = Literal["server", "client"]
Attributes = dict[str, str | int]
NAMES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute for what a request names, by method."""
MEDIA: dict[str, Attributes] = {
    "stdio": {"network.transport": "pipe"},
    "tcp": {"network.transport": "tcp"},
    "unix": {"network.transport": "unix"},
    "websocket": {"network.transport": "tcp", "network.protocol.name": "websocket"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
}
"""The network attributes of each wire."""


@lru_cache(maxsize=32)
def _histogram(side: Side, what: str, provider: metrics.MeterProvider) -> Any:
    """Return the one instrument that all servers or clients share: OpenTelemetry keeps each for ever."""
    description = {
        "operation": "The time from a request to its answer.",
        "session": "How long a session took.",
    }
    return provider.get_meter("mcpearl", __version__).create_histogram(
        f"mcp.{side}.{what}.duration",
        "s",
        description[what],
        explicit_bucket_boundaries_advisory=BOUNDS,
    )


class Durations:
    """Records how long the calls, questions and sessions of a server or client took.

    Args:
        side: Whose.
        server: Attributes of the server that a client is connected to.
    """

    def __init__(self, side: Side, server: Attributes) -> None:
        self._other: Side = "client" if side == "server" else "server"
        self._server = server
        self._provider = metrics.get_meter_provider()
        self._operations = _histogram(side, "operation", self._provider)
        self._sessions = _histogram(side, "session", self._provider)
        self._seen: dict[tuple[str, str, str, str, str], Attributes] = {}

    @property
    def are_recorded(self) -> bool:
        """Whether they are exported: until a provider is set, the instrument does nothing."""
        try:
            return self._operations._real_instrument is not None
        except AttributeError:
            return True

    def call(
        self,
        seconds: float,
        what: tuple[str, str],
        error: str | None,
        travels: tuple[str, str],
        context: Context,
    ) -> None:
        """Record a call.

        Args:
            seconds: How long it took.
            what: Its method, and the tool or prompt; empty where there is none.
            error: The type of its error, if it failed.
            travels: The version of the protocol, and the wire.
            context: Where its span is.
        """
        self._operations.record(seconds, self._attributes(what, error, travels), context)

    def question(
        self, seconds: float, method: str, error: str | None, travels: tuple[str, str]
    ) -> None:
        """Record a request of a server to its client: the server is the client of that."""
        asked = _histogram(self._other, "operation", self._provider)
        asked.record(seconds, self._attributes((method, ""), error, travels))

    def session(self, seconds: float, reason: Exception | None, travels: tuple[str, str]) -> None:
        """Record how long a session took."""
        error = None if reason is None else type(reason).__name__
        self._sessions.record(seconds, self._attributes(("", ""), error, travels))

    def _attributes(
        self, what: tuple[str, str], error: str | None, travels: tuple[str, str]
    ) -> Attributes:
        """Return the attributes of a combination; beyond the limit, those that stand for all others."""
        key = (*what, error or "", *travels)
        found = self._seen.get(key)
        if found is None:
            found = self._described(*key)
            if len(self._seen) >= MAX_SERIES:
                return self._described(OTHER, "", OTHER if error else "", *travels)
            self._seen[key] = found
        return found

    def _described(
        self, method: str, name: str, error: str, version: str, medium: str
    ) -> Attributes:
        found: Attributes = {**self._server, **MEDIA.get(medium, {})}
        if method:
            found["mcp.method.name"] = method
        if name:
            found[NAMES[method]] = name
        if method == "tools/call":
            found["gen_ai.operation.name"] = "execute_tool"
        if version:
            found["mcp.protocol.version"] = version
        if error:
            is_code = error.removeprefix("-").isdigit()
            kind = OTHER if is_code and int(error) not in ERROR_CODES else error
            found["error.type"] = kind
            if is_code:
                found["rpc.response.status_code"] = kind
        return found
