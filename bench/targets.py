"""The metrics and the targets, as data.

A target compares mcpearl with a fixed limit, or with the best of some peers in the same run. The
ratio reached is always written so that more is better.
"""

from dataclasses import dataclass

from bench.results import Results


@dataclass(frozen=True)
class Metric:
    """One row of the report."""

    name: str
    title: str
    unit: str
    group: str
    lower_is_better: bool = False


@dataclass(frozen=True)
class Target:
    """What mcpearl should reach: ``factor`` times the best of ``peers``, or ``limit``."""

    metric: str
    factor: float = 1.0
    peers: tuple[str, ...] = ()
    limit: float | None = None
    strict: bool = False  # reaching it exactly is not enough


@dataclass(frozen=True)
class Verdict:
    """A target, what it was held against, and what was reached."""

    target: Target
    reached: float
    reference: float
    ratio: float
    met: bool


METRICS = (
    Metric("stdio_pipelined", "stdio, pipelined", "calls/s", "stdio"),
    Metric("stdio_single", "stdio, one at a time", "calls/s", "stdio"),
    Metric("stdio_pipelined_def", "stdio, pipelined, plain def", "calls/s", "stdio"),
    Metric("stdio_single_def", "stdio, one at a time, plain def", "calls/s", "stdio"),
    Metric("stdio_start", "start to initialize answer", "ms", "stdio", lower_is_better=True),
    Metric("stdio_rss", "memory after start", "MB", "stdio", lower_is_better=True),
    Metric("memory_calls", "in memory, one at a time", "calls/s", "memory"),
    Metric("memory_legacy", "in memory, legacy session", "calls/s", "memory"),
    Metric("http_modern", "HTTP, 2026-07-28", "calls/s", "http"),
    Metric("http_session", "HTTP, 2025-11-25 in a session", "calls/s", "http"),
    Metric("http_steps", "HTTP, 2026-07-28, 10 progress notifications", "calls/s", "http"),
    Metric("http_session_steps", "HTTP, 2025-11-25, 10 progress notifications", "calls/s", "http"),
    Metric("http_sessions", "HTTP, new sessions", "sessions/s", "http"),
    Metric("http_client_single", "HTTP, own client, one at a time", "calls/s", "http"),
    Metric("http_client_many", "HTTP, own client, 16 at once", "calls/s", "http"),
    Metric("http_session_memory", "memory per idle session", "KB", "http", lower_is_better=True),
    Metric("http_get_notified", "10,000 GET streams notified", "ms", "http", lower_is_better=True),
    Metric("http_get_memory", "memory per GET stream", "KB", "http", lower_is_better=True),
    Metric(
        "http_listen_notified", "10,000 listen streams notified", "ms", "http", lower_is_better=True
    ),
    Metric("http_listen_memory", "memory per listen stream", "KB", "http", lower_is_better=True),
    Metric("http_soak", "memory of the 5th minute, of the 2nd", "%", "soak", lower_is_better=True),
    Metric("http_soak_memory", "memory in the 5th minute", "MB", "soak", lower_is_better=True),
    Metric("tcp_pipelined", "TCP, pipelined", "calls/s", "sockets"),
    Metric("ws_pipelined", "WebSocket, pipelined (mcp: over HTTP)", "calls/s", "sockets"),
    Metric(
        "tcp_connections", "5,000 TCP connections called", "ms", "sockets", lower_is_better=True
    ),
    Metric(
        "tcp_connection_memory", "memory per TCP connection", "KB", "sockets", lower_is_better=True
    ),
    Metric("tcp_flooded", "throughput of others beside a flood, of before", "%", "sockets"),
    Metric("tcp_p99", "p99 of 15 clients", "ms", "sockets", lower_is_better=True),
    Metric("tcp_flooded_p99", "p99 of them beside a flood", "ms", "sockets", lower_is_better=True),
    Metric("http_jwt", "HTTP, 2026-07-28, with a verified JWT", "calls/s", "auth"),
    Metric("parse", "envelope parse", "messages/s", "components"),
    Metric("decode_arguments", "arguments by signature", "calls/s", "components"),
    Metric("validate_schema", "arguments by given schema", "calls/s", "components"),
    Metric("pending", "pending add and resolve", "requests/s", "components"),
    Metric("encode_result", "tool result encode", "results/s", "components"),
    Metric("registry_read", "resource registry read", "reads/s", "components"),
    Metric("notify", "notify to 100 subscribers", "messages/s", "components"),
    Metric("notify_one", "notify to one subscriber", "messages/s", "components"),
    Metric("import", "import adds", "ms", "import", lower_is_better=True),
    Metric("import_server", "import of Server adds", "ms", "import", lower_is_better=True),
)

TARGETS = (
    Target("stdio_pipelined", factor=60, peers=("mcp",)),
    Target("stdio_pipelined", peers=("ts_v1",), strict=True),
    Target("stdio_single", factor=8, peers=("mcp",)),
    Target("stdio_single", peers=("ts_v2",), strict=True),
    Target("stdio_start", factor=8, peers=("mcp",)),
    Target("stdio_start", peers=("ts_v1", "ts_v2")),
    Target("stdio_rss", limit=32, strict=True),
    Target("memory_calls", factor=30, peers=("mcp",)),
    Target("http_modern", factor=12, peers=("mcp",)),
    Target("http_modern", factor=0.5, peers=("echo",)),
    Target("http_session", factor=12, peers=("mcp",)),
    Target("http_steps", factor=8, peers=("mcp",)),
    Target("http_session_steps", factor=8, peers=("mcp",)),
    Target("http_sessions", factor=8, peers=("mcp",)),
    Target("http_client_single", factor=8, peers=("mcp",)),
    Target("http_client_many", factor=15, peers=("mcp",)),
    Target("http_session_memory", limit=4, strict=True),
    Target("http_get_notified", limit=1000),
    Target("http_listen_notified", limit=1000),
    Target("http_soak", limit=103),
    Target("tcp_pipelined", factor=0.9, peers=("stdio",)),
    Target("ws_pipelined", factor=20, peers=("mcp",)),
    Target("tcp_flooded", limit=80),
    Target("http_jwt", factor=0.7, peers=("open",)),
    Target("parse", limit=1_000_000),
    Target("parse", factor=5, peers=("mcp",)),
    Target("decode_arguments", limit=500_000),
    Target("validate_schema", limit=500_000),
    Target("pending", limit=553_000),
    Target("encode_result", limit=1_000_000),
    Target("registry_read", limit=242_000),
    Target("notify", limit=100_000),
    Target("notify_one", limit=100_000),
    Target("import", limit=40, strict=True),
    Target("import_server", limit=40, strict=True),
)


def metric(name: str) -> Metric:
    return next(metric for metric in METRICS if metric.name == name)


def verdicts(results: Results) -> list[Verdict]:
    """Hold what was measured against the targets; a target with a figure missing is left out."""
    found = (_verdict(target, results) for target in TARGETS)
    return [verdict for verdict in found if verdict is not None]


def _verdict(target: Target, results: Results) -> Verdict | None:
    lower = metric(target.metric).lower_is_better
    reached = results.get(target.metric, "mcpearl")
    reference = target.limit
    if reference is None:
        peers = [results.get(target.metric, peer) for peer in target.peers]
        figures = [figure for figure in peers if figure is not None]
        if len(figures) < len(peers):
            return None
        reference = min(figures) if lower else max(figures)
    if reached is None:
        return None
    ratio = reference / reached if lower else reached / reference
    met = ratio > target.factor if target.strict else ratio >= target.factor
    return Verdict(target, reached, reference, ratio, met)
