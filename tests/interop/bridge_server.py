"""A bridge on stdio: `bridge_server.py VERSION demo|official|tasks|ADDRESS`; VERSION is the server's."""

import sys

from mcpearl import UpstreamSettings, bridge
from tests.interop.peers import DEMO_SERVER, OFFICIAL_SERVER, TASKS_SERVER

if __name__ == "__main__":
    protocol, which = sys.argv[1:]
    known = {"official": OFFICIAL_SERVER, "demo": DEMO_SERVER, "tasks": TASKS_SERVER}
    target = known.get(which, which)
    bridge(target, upstreams=UpstreamSettings(protocol=protocol, patience=60.0)).run()
