"""From whatever names a server elsewhere to the part of a server that it becomes."""

from typing import Any

from mcpearl.client.entries import ServerEntry, read_entry, surroundings
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.gateway.upstream import Upstream


def upstream_part(name: str, other: Any) -> Upstream:
    """Return the part for a URL, a file, a command, or an entry of a host's configuration.

    Raises:
        TypeError, ValueError, OSError: It is nothing that a client can be made for.
    """
    entry = other if isinstance(other, ServerEntry) else read_entry(name, other, surroundings())
    find_target(entry, ReachOptions())  # refuses what no client could be made for
    return Upstream(entry, UpstreamSettings())
