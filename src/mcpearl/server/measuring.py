"""The metrics of a server: a collector that counts calls, and gauges that are read on demand.

It is made when something asks for metrics, as `app.run("http", metrics="/metrics")` does. Without it,
calls do no work for metrics.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mcpearl.runtime.tree import Node
from mcpearl.telemetry.metrics import OTHER, Metrics, MetricsSnapshot
from mcpearl.telemetry.process import process_gauges
from mcpearl.telemetry.prometheus import CONTENT_TYPE, render
from mcpearl.telemetry.shared import SharedSnapshots
from mcpearl.transports.http_server.pages import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from mcpearl.server.server import Server


logger = logging.getLogger("mcpearl.server")

MAX_PARTS = 500
"""Parts of a server that have series of their own."""

_EACH = 4  # updates of the counters after which other workers see them


class Measuring:
    """The numbers of one server.

    Args:
        server: The server, which must not run yet.
        knows: Whether it has a tool (`tools/call`) or prompt (`prompts/get`) of a name.
    """

    def __init__(self, server: "Server", knows: Callable[[str, str], bool]) -> None:
        self._server = server
        self.metrics = Metrics(knows)
        self.lag = server.lag
        self.lag.wanted = True
        self.lag.also.append(self._look)
        self._shared: SharedSnapshots | None = None  # with the other workers
        self._number = 0
        self._looks = 0
        self.metrics.add_gauges(process_gauges)
        self.metrics.add_gauges(self._gauges)
        server.core.observe(self.metrics)

    def share(self, shared: SharedSnapshots, number: int) -> None:
        """Show the numbers of all workers together, and continue from those of this worker's predecessor.

        Args:
            shared: Where the workers store their numbers.
            number: The number of this worker.
        """
        self._shared, self._number = shared, number
        before = shared.read(number)
        if before is not None:
            self.metrics.base = before[0]
            self.metrics.base.gauges.clear()
        self.metrics.count("worker_starts")
        self._leave()

    def _look(self) -> None:
        """Tell the other workers what was counted, once for every four looks."""
        self._looks += 1
        if self._looks % _EACH == 0:
            self._leave()

    def _leave(self) -> None:
        if self._shared is not None and not self._shared.write(
            self._number, self.metrics.snapshot()
        ):
            logger.warning("the metrics of this worker are too many to be shown by the others")

    def snapshot(self) -> MetricsSnapshot:
        """Return the current numbers, with those that the other workers last stored."""
        found = self.metrics.snapshot()
        if self._shared is not None:
            for snapshot, is_there in self._shared.others(self._number):
                found.add(snapshot, gauges=is_there)
        return found

    async def page(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        return HttpResponse(await render(self.snapshot()), content_type=CONTENT_TYPE)

    def _gauges(self) -> dict[str, dict[str, float]]:
        parts = list(self._server.tree().walk())
        down = [node for _, node in parts if _is_down(node)]
        store = self._server.shared
        recorder = self._server.core.recorder
        is_refusing = recorder is not None and recorder.refusing is not None
        is_draining = self._server.web.draining
        is_ready = not (down or is_draining or is_refusing) and (store is None or store.is_up)
        isolation = self._server.isolation
        waiting = 0 if isolation is None else sum(pool.waiting for pool in isolation.pools)
        upstreams = Counter(self._server.upstream_states())
        found = {} if store is None else {"store_up": {"": float(store.is_up)}}
        return {
            **found,
            "bytes_limit": {"": float(self._server.core.budget.total)},
            "isolated_waiting": {"": float(waiting)},
            "upstreams": {state: float(count) for state, count in upstreams.items()},
            **_by_part(parts),
            "parts_down": {"": float(len(down))},
            "ready": {"": float(is_ready)},
            "lag": {"": self.lag.last},
            "lag_max": {"": self.lag.worst()},
        }


def _by_part(parts: Iterable[tuple[tuple[str, ...], Node]]) -> dict[str, dict[str, float]]:
    """Return what metrics say of each part. Parts beyond `MAX_PARTS` are added up."""
    restarts: dict[str, float] = {}
    up: dict[str, float] = {}
    for path, node in parts:
        if node.fleeting:
            continue
        label = "/".join(path) if len(up) < MAX_PARTS else OTHER
        restarts[label] = restarts.get(label, 0.0) + node.restarts
        up[label] = up.get(label, 0.0) + (not _is_down(node))
    return {"restarts": restarts, "parts_up": up}


def _is_down(node: Node) -> bool:
    return node.state in ("failed", "waiting")
