"""Serves the tools of `apps` on a wire, in a process of its own: `python -m … stdio`."""

import sys

from mcpearl import Isolate
from tests.server.isolation.apps import make


def main() -> None:
    app = make(Isolate(processes=2), grace=1.0)
    wire, *port = sys.argv[1:]
    if wire == "stdio":
        app.run()
    elif wire == "workers":
        app.run("http", port=int(port[0]), workers=2)
    else:
        app.run(wire, port=int(port[0]))


if __name__ == "__main__":
    main()
