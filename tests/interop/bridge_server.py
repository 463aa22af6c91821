"""A bridge to the demo server on stdio; the argument is the version it speaks with that."""

import sys

from mcpearl import UpstreamSettings, bridge
from tests.interop.peers import DEMO_SERVER, OFFICIAL_SERVER

if __name__ == "__main__":
    protocol, which = sys.argv[1:]
    target = OFFICIAL_SERVER if which == "official" else DEMO_SERVER
    bridge(target, upstreams=UpstreamSettings(protocol=protocol, patience=60.0)).run()
