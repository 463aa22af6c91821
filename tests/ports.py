"""Ports for servers that are started some time after their port was chosen."""

import os
import random
import socket
from contextlib import closing

# Each worker of a test run has ports of its own; so has what runs beside them, as the last one.
_SHARES = 16
_share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw")) % _SHARES

# In an order of the system's making, or processes started alike would choose alike. A port comes round
# again only after all others of the share: a long run takes more of them than there are.
_ports = list(range(15_000 + _share, 32_000, _SHARES))
random.SystemRandom().shuffle(_ports)
_next = 0


def free_port() -> int:
    """Choose a port that is free and stays free: the system hands out those above 32768."""
    global _next
    for _ in _ports:
        port = _ports[_next % len(_ports)]
        _next += 1
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"none of the {len(_ports)} ports of this process is free")
