"""The metrics and the targets, as data.

A target compares mcpearl with a fixed limit, or with the best of some peers in the same run, round by
round. The ratio reached is always one of which more is better.
"""

from dataclasses import dataclass

from bench.results import Estimate, Results

OWN = "mcpearl"


@dataclass(frozen=True)
class Metric:
    """One row of the report."""

    name: str
    title: str
    unit: str
    group: str
    lower_is_better: bool = False
    resolution: float = 0.0  # below it, a figure cannot be distinguished from zero


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
    """A target, and what was reached."""

    target: Target
    reached: Estimate
    ratio: Estimate
    met: bool

    @property
    def is_clear(self) -> bool:
        """Whether both quartiles are on the same side of the target."""
        return _meets(self.target, self.ratio.low) == _meets(self.target, self.ratio.high)


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
    Metric("http_session_memory", "memory per idle session", "KB", "streams", lower_is_better=True),
    Metric(
        "http_get_notified", "10,000 GET streams notified", "ms", "streams", lower_is_better=True
    ),
    Metric("http_get_memory", "memory per GET stream", "KB", "streams", lower_is_better=True),
    Metric(
        "http_listen_notified",
        "10,000 listen streams notified",
        "ms",
        "streams",
        lower_is_better=True,
    ),
    Metric("http_listen_memory", "memory per listen stream", "KB", "streams", lower_is_better=True),
    Metric(
        "http_soak", "memory of the 5th minute, of the 2nd", "%", "streams", lower_is_better=True
    ),
    Metric("http_soak_memory", "memory in the 5th minute", "MB", "streams", lower_is_better=True),
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
    Metric("tasks_memory", "tasks created, run and collected", "tasks/s", "tasks"),
    Metric("tasks_sqlite", "the same, durable in SQLite", "tasks/s", "tasks"),
    Metric("tasks_redis", "the same, in Redis for all machines", "tasks/s", "tasks"),
    Metric("tasks_id", "from the call to the task's id", "ms", "tasks", lower_is_better=True),
    Metric("tasks_waiting", "task that waits for input", "KB", "tasks", lower_is_better=True),
    Metric("tasks_after", "tool that may become a task, of a plain call", "%", "tasks"),
    Metric("gateway_direct", "HTTP without a gateway, 16 at once", "calls/s", "gateway"),
    Metric("gateway_stdio", "HTTP to a stdio server, 16 at once", "calls/s", "gateway"),
    Metric("gateway_stdio_share", "the same, of HTTP without a gateway", "%", "gateway"),
    Metric("gateway_http", "HTTP to an HTTP server, 16 at once", "calls/s", "gateway"),
    Metric("gateway_http_share", "the same, of HTTP without a gateway", "%", "gateway"),
    Metric(
        "gateway_added",
        "added to one call, p50",
        "\N{MICRO SIGN}s",
        "gateway",
        lower_is_better=True,
    ),
    Metric(
        "mount_added",
        "added to one call by mounting in a process",
        "\N{MICRO SIGN}s",
        "gateway",
        lower_is_better=True,
    ),
    Metric("gateway_start", "start to a list of 20 servers", "ms", "gateway", lower_is_better=True),
    Metric("gateway_upstream", "memory per upstream", "KB", "gateway", lower_is_better=True),
    Metric("gateway_session", "memory per client session", "KB", "gateway", lower_is_better=True),
    Metric("isolated_pipelined", "isolated, pipelined, 2 processes", "calls/s", "isolation"),
    Metric("isolated_async", "the same, async def", "calls/s", "isolation"),
    Metric(
        "isolated_added",
        "added to one call, p50",
        "\N{MICRO SIGN}s",
        "isolation",
        lower_is_better=True,
    ),
    Metric("isolated_processor", "processor-bound def, 2 processes", "calls/s", "isolation"),
    Metric("rate_limited", "stdio, pipelined, with a rate limit, of without", "%", "limits"),
    Metric("overload_goodput", "answers at twice the load, of the best", "%", "limits"),
    Metric(
        "overload_p99", "their p99, of that at the best", "times", "limits", lower_is_better=True
    ),
    Metric(
        "names_lookup",
        "a million names, one looked up",
        "\N{MICRO SIGN}s",
        "limits",
        lower_is_better=True,
    ),
    Metric("names_size", "a million names, each", "bytes", "limits", lower_is_better=True),
    Metric("store_modern", "HTTP, 2026-07-28, with a store, of without", "%", "machines"),
    Metric("store_session", "2025-11-25, landing elsewhere, of without", "%", "machines"),
    Metric("store_sessions", "new sessions with a store, of without", "%", "machines"),
    Metric(
        "store_commands",
        "commands to the store for a call in a session",
        "commands",
        "machines",
        lower_is_better=True,
        resolution=0.01,
    ),
    Metric(
        "store_notified",
        "one update to 10,000 streams of four workers",
        "ms",
        "machines",
        lower_is_better=True,
    ),
    Metric("store_failover", "a dead worker's task is done", "s", "machines", lower_is_better=True),
    Metric(
        "scene_answered", "calls answered while a worker is killed every second", "%", "machines"
    ),
    Metric("scene_calls", "the same, in a second", "calls/s", "machines"),
    Metric("scene_kills", "workers killed meanwhile", "workers", "machines"),
    Metric("receipts_stdio_on", "stdio, pipelined, with receipts, of without", "%", "receipts"),
    Metric("receipts_stdio_durable", "the same, durable", "%", "receipts"),
    Metric("receipts_http_on", "HTTP, 2026-07-28, with receipts, of without", "%", "receipts"),
    Metric("receipts_http_durable", "the same, durable", "%", "receipts"),
    Metric("metrics_stdio", "metrics, stdio pipelined", "%", "telemetry"),
    Metric("metrics_http", "metrics, HTTP", "%", "telemetry"),
    Metric("traces_stdio", "metrics and traces at 1 %, stdio pipelined", "%", "telemetry"),
    Metric("traces_http", "metrics and traces at 1 %, HTTP", "%", "telemetry"),
    Metric("access_log_http", "access log to a file, HTTP", "%", "telemetry"),
    Metric("metrics_page", "page with 10,000 series", "ms", "telemetry", lower_is_better=True),
    Metric("console_idle", "console without a page, HTTP", "%", "console"),
    Metric("console_watched", "console with an open page, HTTP", "%", "console"),
    Metric("console_memory", "memory added while watched", "MB", "console", True, resolution=1),
    Metric("pending", "pending add and resolve", "requests/s", "components"),
    Metric("encode_result", "tool result encode", "results/s", "components"),
    Metric("registry_read", "resource registry read", "reads/s", "components"),
    Metric("notify", "notify to 100 subscribers", "messages/s", "components"),
    Metric("notify_one", "notify to one subscriber", "messages/s", "components"),
    Metric("import", "import adds", "ms", "import", lower_is_better=True, resolution=2),
    Metric(
        "import_server", "import of Server adds", "ms", "import", lower_is_better=True, resolution=2
    ),
    *(
        Metric(f"frames_{place}_{era}", f"{title}, {version}", "frames", "frames", True)
        for place, title in (
            ("stdio", "server on stdio"),
            ("http", "server over HTTP"),
            ("client", "client over HTTP"),
        )
        for era, version in (("modern", "2026-07-28"), ("legacy", "2025-11-25"))
    ),
)

TARGETS = (
    Target("stdio_pipelined", factor=60, peers=("mcp",)),
    Target("stdio_pipelined", peers=("ts_v1",), strict=True),
    Target("stdio_pipelined", factor=0.85, peers=("floor",)),
    Target("stdio_single", factor=8, peers=("mcp",)),
    Target("stdio_single", peers=("ts_v2",), strict=True),
    Target("stdio_start", factor=8, peers=("mcp",)),
    Target("stdio_start", peers=("ts_v1", "ts_v2")),
    Target("stdio_start", factor=1 / 1.2, peers=("floor",)),
    Target("stdio_rss", limit=32, strict=True),
    Target("memory_calls", factor=30, peers=("mcp",)),
    Target("http_modern", factor=12, peers=("mcp",)),
    Target("http_modern", factor=0.45, peers=("floor",)),
    Target("http_modern", peers=("echo",), strict=True),
    Target("http_session", factor=12, peers=("mcp",)),
    Target("http_session", factor=0.45, peers=("floor",)),
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
    Target("tasks_memory", factor=10, peers=("fastmcp",)),
    Target("tasks_memory", limit=5000),
    Target("tasks_sqlite", limit=1000),
    Target("tasks_redis", limit=2000),
    Target("tasks_id", limit=1, strict=True),
    Target("tasks_waiting", limit=8, strict=True),
    Target("tasks_after", limit=95),
    Target("isolated_pipelined", limit=20_000),
    Target("isolated_pipelined", factor=5, peers=("executor",)),
    Target("isolated_added", limit=120, strict=True),
    Target("isolated_processor", factor=1.8, peers=("threads",)),
    Target("rate_limited", limit=97),
    Target("metrics_stdio", limit=95),
    Target("metrics_http", limit=95),
    Target("traces_stdio", limit=92),
    Target("traces_http", limit=92),
    Target("access_log_http", limit=85),
    Target("metrics_page", limit=50),
    Target("console_idle", limit=97, strict=True),
    Target("console_watched", limit=97, strict=True),
    Target("receipts_stdio_on", limit=80),
    Target("receipts_http_on", limit=80),
    Target("overload_goodput", limit=90),
    Target("store_modern", limit=97),
    Target("store_session", limit=85),
    Target("store_sessions", limit=80),
    Target("store_commands", limit=0.01),
    Target("store_notified", limit=1000),
    Target("store_failover", limit=15, strict=True),
    Target("overload_p99", limit=3, strict=True),
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
    Target("gateway_stdio_share", limit=35),
    Target("gateway_http_share", limit=25),
    Target("gateway_added", limit=250, strict=True),
    Target("mount_added", limit=3, strict=True),
    Target("gateway_start", factor=3.0, peers=("fastmcp",)),
    Target("gateway_upstream", limit=200, strict=True),
    Target("gateway_session", limit=8, strict=True),
    Target("frames_stdio_modern", limit=38),
    Target("frames_stdio_legacy", limit=38),
    Target("frames_http_modern", limit=74),
    Target("frames_http_legacy", limit=74),
    Target("frames_client_modern", limit=85),
    Target("frames_client_legacy", limit=85),
)


def metric(name: str) -> Metric:
    return next(metric for metric in METRICS if metric.name == name)


def verdicts(results: Results) -> list[Verdict]:
    """Compare what was measured with the targets; a target with a figure missing is left out."""
    found = (_verdict(target, results) for target in TARGETS)
    return [verdict for verdict in found if verdict is not None]


def _verdict(target: Target, results: Results) -> Verdict | None:
    reached, ratio = results.get(target.metric, OWN), _ratio(target, results)
    if reached is None or ratio is None:
        return None
    return Verdict(target, reached, ratio, _meets(target, ratio.median))


def _ratio(target: Target, results: Results) -> Estimate | None:
    lower = metric(target.metric).lower_is_better
    measured = results.rounds.get(target.metric, {})
    if target.limit is None:
        if not all(peer in measured for peer in target.peers):
            return None
        return results.ratio(target.metric, OWN, target.peers, lower_is_better=lower)
    reached = results.get(target.metric, OWN)
    if reached is None:
        return None
    share = reached.over(target.limit)
    return share.inverse() if lower else share


def _meets(target: Target, ratio: float) -> bool:
    return ratio > target.factor if target.strict else ratio >= target.factor
