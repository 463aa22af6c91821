"""A client that calls without end, as fast as it can: ``python flood.py <port>``."""

import socket
import sys
import threading

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"flood","version":"1.0.0"}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
CALLS = b"".join(
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
    b'{"name":"add","arguments":{"a":1,"b":2}}}\n' % number
    for number in range(1, 10_001)
)


def read(connection: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    while connection.recv_into(buffer):
        pass


if __name__ == "__main__":
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(INITIALIZE)
        connection.recv(1 << 16)
        threading.Thread(target=read, args=(connection,), daemon=True).start()
        print("flooding", flush=True)
        while True:
            connection.sendall(CALLS)  # the same ids again, long after they were answered
