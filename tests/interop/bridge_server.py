"""A bridge on stdio, with lists in short pages: `bridge_server.py VERSION NAME|ADDRESS`.

VERSION is the one to speak with the server, and NAME is one of `peers.SERVERS`.
"""

import sys

from mcpearl import Gateway, UpstreamSettings
from tests.interop.peers import SERVERS

if __name__ == "__main__":
    protocol, which = sys.argv[1:]
    settings = UpstreamSettings(protocol=protocol, patience=60.0)
    target = SERVERS.get(which, which)
    Gateway({"server": target}, prefix=False, eager=True, page_size=5, upstreams=settings).run()
