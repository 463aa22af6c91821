"""The servers that are measured, and the number of calls each gets.

The fast ones get more calls than the slow ones, whose runs would otherwise take minutes. mcpearl, its
floor and the TypeScript SDK get the same number, so Node has the same time to warm up.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from bench import environments


@dataclass(frozen=True)
class Peer:
    """An SDK or a bare server, and the calls of one run on stdio."""

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
# The least a Python server does for the same call, and the least an ASGI application does.
FLOOR = Peer("floor", "the floor", 60_000, 6_000, has_plain_def=False)
# A proxy only, measured beside the gateway.
MCP_PROXY = Peer("mcp-proxy", "mcp-proxy", 0, 0)
ECHO = Peer("echo", "the bare ASGI echo", 0, 0)

PEERS = (MCPEARL, MCP, FASTMCP, TS_V1, TS_V2)
PYTHON_PEERS = (MCPEARL, MCP, FASTMCP)
_IN_PROJECT = (MCPEARL, FLOOR, ECHO)


ROUNDS = 3
"""Rounds with all peers. Later ones are for what differs by little: mcpearl and its floors."""


def in_turn(peers: Iterable[Peer], number: int) -> list[Peer]:
    """The peers in the order of a round: every second one is reversed, so that drift cancels out."""
    order = [peer for peer in peers if number <= ROUNDS or peer in _IN_PROJECT]
    return order if number % 2 else order[::-1]


def interpreter(peer: Peer) -> str:
    """The Python that runs a Python peer: the project's own, or that of the peer's environment."""
    if peer in _IN_PROJECT:
        return sys.executable
    return str(environments.python_peer(peer.name))


def command(peer: Peer, kind: str) -> list[str]:
    """The command that starts a script of a peer, as in ``bench/servers/<peer>_<kind>``."""
    if peer in PYTHON_PEERS or peer in _IN_PROJECT:
        return [interpreter(peer), str(environments.SERVERS / f"{peer.name}_{kind}.py")]
    home = environments.typescript_peers()
    return [str(environments.node()), str(home / f"{peer.name}_{kind}.mjs")]


def server_command(peer: Peer) -> list[str]:
    """The command that starts the stdio server of a peer."""
    return command(peer, "server")
