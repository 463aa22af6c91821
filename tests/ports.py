"""Ports for servers that are started some time after their port was chosen."""

import os
import random
import socket
from contextlib import closing

# Of the system, or workers started alike would choose alike.
_random = random.SystemRandom()
_chosen: set[int] = set()

# Each worker of a test run has ports of its own; so has what runs beside them, as the last one.
_SHARES = 16
_share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw")) % _SHARES


def free_port() -> int:
    """Choose a port that is free and stays free: the system hands out those above 32768."""
    while True:
        port = _random.randrange(15_000 + _share, 32_000, _SHARES)
        if port in _chosen:
            continue
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _chosen.add(port)
        return port
