"""The server under measure on a socket: ``python mcpearl_socket.py <port> <tcp|ws>``."""

import sys

from mcpearl_server import app

if __name__ == "__main__":
    app.run(sys.argv[2], port=int(sys.argv[1]))
