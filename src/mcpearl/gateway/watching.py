"""Spans and durations of a gateway's requests to one upstream: the gateway is a client of it."""

from typing import TYPE_CHECKING

from mcpearl.runtime.observers import Guarded

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream


class UpstreamWatch:
    """Makes the observer of all connections to one upstream, if the gateway exports anything.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._observer: Guarded | None = None
        self._names: dict[str, tuple[object, frozenset[str]]] = {}  # by method, of one list each

    def observer(self, address: object) -> Guarded | None:
        """Return the observer for clients of the upstream; None if nothing is exported.

        Args:
            address: The URL of the upstream, if it has one.
        """
        core = self._upstream.outer_core
        if core is None or core.exported is None:
            return None
        if self._observer is None:
            from mcpearl.telemetry.otel import OpenTelemetry, server_attributes

            server = server_attributes(address)
            self._observer = Guarded(
                OpenTelemetry("client", core.exported, self._is_listed, server=server)
            )
        return self._observer

    def _is_listed(self, method: str, name: str) -> bool:
        """Whether the upstream has a tool or prompt of a name, as far as is known."""
        lists = self._upstream.lists
        listed = lists.tools() if method == "tools/call" else lists.prompts()
        known = self._names.get(method)
        if known is None or known[0] is not listed:
            known = self._names[method] = listed, frozenset(each.name for each in listed or ())
        return name in known[1]
