"""One server on another transport, its names unchanged: a remote one on stdio, or a process over HTTP."""

from typing import Any

from mcpearl.client.entries import ServerEntry, read_entry, surroundings
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import Access, UpstreamSettings
from mcpearl.host.config import HostConfig

_NAME = "bridge"


def bridge(target: Any, *, auth: Any = None, upstreams: UpstreamSettings | None = None) -> Gateway:
    """Return a server that forwards everything to another one; serve it on the transport you need.

    >>> bridge("https://example.com/mcp", auth="oauth").run()         # for a host that has only stdio
    >>> bridge(["npx", "server-filesystem", "."]).run("http", port=8000)

    Names of tools and prompts stay as they are.

    Args:
        target: A target that `Client` accepts: a URL, the path of a file, a command as a list, or an
            entry of a host's configuration.
        auth: How to log in to a server at a URL, as for `Client`.
        upstreams: Timeouts and limits.

    Raises:
        TypeError, ValueError, OSError: No client can be made for the target.
    """
    entry = target
    if not isinstance(entry, ServerEntry):
        entry = read_entry(_NAME, target, surroundings())
    find_target(entry, ReachOptions(auth=auth))  # raises now if no client could be made for it
    config = HostConfig(source=_NAME, entries={entry.name: entry})
    return Gateway(
        config,
        name=_NAME,
        prefix=False,
        eager=True,
        upstreams=upstreams,
        access={} if auth is None else {entry.name: Access(auth=auth)},
    )
