"""Which parts of the tree of a server can be killed, and those that the server under attack has."""

from typing import Any


def can_be_killed(path: list[str]) -> bool:
    """Whether a part is a child of a supervisor, or recovers by itself.

    The others are timers, connections or threads that belong to the part above them, and processes of
    isolated tools, which come and go and are killed by their number.
    """
    match path:
        case ["wires", *_]:  # what the server is asked on
            return False
        case [_, _, _, *_]:
            return path[0] == "upstreams" and path[2:] == ["lists"]
        case ["upstreams"] | ["exporter", _]:
            return False
    return True


def expected(settings: dict[str, Any]) -> set[str]:
    """Return the parts that can be killed, by what the server was told to have."""
    wires = (
        f"http 127.0.0.1:{settings['http']}",
        f"tcp 127.0.0.1:{settings['tcp']}",
        f"websocket 127.0.0.1:{settings['ws']}",
        f"unix {settings['unix']}",
    )
    return {
        "bus",
        *("store", "members", "names", "count of sessions", "rates"),
        *("isolation", "isolation/zygote", "isolation/pool of `isolated`"),
        "watchdog of the event loop",
        "exporter",
        "receipts",
        "leases of tasks",
        *("background", "background/ticker", "background/flaky"),
        *("upstreams/far", "upstreams/far/lists", "upstreams/near", "upstreams/near/lists"),
        *("wires 2", *(f"wires 2/{wire}" for wire in wires)),
    }
