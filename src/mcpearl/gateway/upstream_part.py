"""Makes a part of a server from a target elsewhere, such as a URL or a command."""

from typing import Any

from mcpearl.client.entries import read_entry, surroundings
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.gateway.upstream import Upstream


def upstream_part(name: str, other: Any) -> Upstream:
    """Return the part for a URL, a file, a command, an entry of a host, or a client of a server.

    Raises:
        TypeError, ValueError, OSError: No client can be made for the target.
    """
    entry = read_entry(name, other, surroundings())
    find_target(entry, ReachOptions())  # raises if no client could be made for it
    return Upstream(entry, UpstreamSettings())
