"""A bridge on stdio: `bridge_server.py VERSION demo|official|ADDRESS`; VERSION is the server's."""

import sys

from mcpearl import UpstreamSettings, bridge
from tests.interop.peers import DEMO_SERVER, OFFICIAL_SERVER

if __name__ == "__main__":
    protocol, which = sys.argv[1:]
    target = {"official": OFFICIAL_SERVER, "demo": DEMO_SERVER}.get(which, which)
    bridge(target, upstreams=UpstreamSettings(protocol=protocol, patience=60.0)).run()
