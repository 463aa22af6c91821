"""A command whose standard streams are a connection to a port: a server process on a bad network."""

import os
import select
import socket
import sys

far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    ready, _, _ = select.select([0, far], [], [])
    if far in ready:
        data = far.recv(65536)
        if not data:
            sys.exit("the connection was cut")
        os.write(1, data)
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            break
        far.sendall(data)
