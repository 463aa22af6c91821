"""What a server counts for those who ask: a collector beside its calls, and what is read on demand.

It is made when something asks for numbers, as `app.run("http", metrics="/metrics")` does. Without it no
call does any work for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpearl.runtime.lag import LoopLag
from mcpearl.telemetry.metrics import Metrics, Snapshot
from mcpearl.telemetry.process import process_gauges
from mcpearl.telemetry.prometheus import CONTENT_TYPE, render
from mcpearl.transports.http_server.pages import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from mcpearl.server.server import Server


class Measuring:
    """The numbers of one server.

    Args:
        server: The server, which must not run yet.
        knows: Whether it has a tool (`tools/call`) or prompt (`prompts/get`) of a name.
    """

    def __init__(self, server: "Server", knows: Callable[[str, str], bool]) -> None:
        self._server = server
        self.metrics = Metrics(knows)
        self.lag = LoopLag(self.metrics.fold)
        self.metrics.add_gauges(process_gauges)
        self.metrics.add_gauges(self._gauges)
        server.core.observe(self.metrics)

    def start(self) -> None:
        """Begin to measure the running loop."""
        self.lag.start()

    def stop(self) -> None:
        """Measure no more."""
        self.lag.stop()

    def snapshot(self) -> Snapshot:
        """Return all numbers as they are now."""
        return self.metrics.snapshot()

    async def page(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        return HttpResponse(await render(self.snapshot()), content_type=CONTENT_TYPE)

    def _gauges(self) -> dict[str, dict[str, float]]:
        parts = list(self._server.tree().walk())
        down = [node for _, node in parts if node.state in ("failed", "waiting")]
        is_ready = not down and not self._server.web.draining
        return {
            "restarts": {"/".join(path): float(node.restarts) for path, node in parts},
            "parts_down": {"": float(len(down))},
            "ready": {"": float(is_ready)},
            "lag": {"": self.lag.last},
            "lag_max": {"": self.lag.worst()},
        }
