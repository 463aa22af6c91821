"""Who is measured, and how many calls each gets.

The fast peers get more calls than the slow ones, or their runs would be over before the clock
says anything. mcpearl and the TypeScript SDK get the same number, so Node has the same time to
warm up.
"""

import sys
from dataclasses import dataclass

from bench import environments


@dataclass(frozen=True)
class Peer:
    """One SDK, its stdio server and the calls of one run."""

    name: str
    title: str
    pipelined_calls: int
    single_calls: int
    has_plain_def: bool = True  # a tool from a plain `def`, beside the `async def` one


MCPEARL = Peer("mcpearl", "mcpearl", 60_000, 6_000)
MCP = Peer("mcp", "mcp", 6_000, 1_500)
FASTMCP = Peer("fastmcp", "FastMCP", 6_000, 1_500)
TS_V1 = Peer("ts_v1", "TypeScript v1", 60_000, 6_000, has_plain_def=False)
TS_V2 = Peer("ts_v2", "TypeScript v2", 60_000, 6_000, has_plain_def=False)

PEERS = (MCPEARL, MCP, FASTMCP, TS_V1, TS_V2)
PYTHON_PEERS = (MCPEARL, MCP, FASTMCP)


def interpreter(peer: Peer) -> str:
    """The Python that runs a Python peer; mcpearl runs from the environment of the project."""
    if peer is MCPEARL:
        return sys.executable
    return str(environments.python_peer(peer.name))


def server_command(peer: Peer) -> list[str]:
    """The command that starts the stdio server of a peer."""
    if peer in PYTHON_PEERS:
        return [interpreter(peer), str(environments.SERVERS / f"{peer.name}_server.py")]
    home = environments.typescript_peers()
    return [str(environments.node()), str(home / f"{peer.name}.mjs")]
