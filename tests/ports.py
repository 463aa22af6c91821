"""Ports for servers that are started a moment after their port was chosen."""

import random
import socket
from contextlib import closing

_chance = random.SystemRandom()  # or workers started alike would choose alike
_given: set[int] = set()


def free_port() -> int:
    """A port nobody has, and nobody gets by chance: the system hands out those above 32768."""
    while True:
        port = _chance.randrange(15_000, 32_000)
        if port in _given:
            continue
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
